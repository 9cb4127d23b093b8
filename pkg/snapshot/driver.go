// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import "time"

// driver is what the loop knows of one CSI driver.
type driver struct {
	name             string
	queued, inFlight int
	// since is the beginning of the present stretch in which something was in flight and nothing was cut. It means
	// something only while inFlight > 0.
	since time.Time
	// created: something was created in this stretch. Until then since is the start of the first try.
	created bool
	// watched: the agenda has an entry that looks for missing progress.
	watched bool
	// lastError is the driver's last error text, for messages.
	lastError string
	pace      pace
	// limit is what the configuration lets it have in flight; 0 means no limit.
	limit int
	// again is when the agenda looks next at what the pace allows; zero when it doesn't.
	again time.Time
}

// allow says what the driver may be asked now, and when the answer changes by itself; zero when it doesn't.
func (d *driver) allow(now time.Time) (driverLimit, time.Time) {
	a := d.pace.allow(now, d.inFlight)
	lim := driverLimit{inFlight: d.limit, batch: a.inFlight}
	switch {
	case a.blocked:
		lim.starts = -1
	case a.spaced:
		lim.starts = 1
	}
	return lim, a.again
}

// lowest is the lower of two limits, where 0 means none.
func lowest(a, b int) int {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

// begin notes that something goes in flight.
func (d *driver) begin(now time.Time) {
	if d.inFlight == 0 {
		d.since, d.created = now, false
	}
}

// made notes that a VolumeSnapshot was created: waiting for the driver starts with the first one.
func (d *driver) made(now time.Time) {
	if !d.created {
		d.since, d.created = now, true
	}
}

// progressed notes a cut.
func (d *driver) progressed(now time.Time) { d.since, d.created, d.lastError = now, true, "" }
