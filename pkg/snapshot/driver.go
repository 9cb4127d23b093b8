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
func (d *driver) progressed(now time.Time) { d.since, d.created = now, true }

// paceHold is the shortest time between two reductions: answers to what was asked before the first one must not count again.
const paceHold = 10 * time.Second

// pace is the in-flight limit of a driver that throttles: halved when it does, raised by one for each full round of
// cuts, lifted when it is back where it was at first. Its zero value is no limit.
type pace struct {
	limit, ceiling float64
	reduced        time.Time
}

// throttled takes in that the driver asked for less, with that many in flight; true when the limit changed.
func (p *pace) throttled(inFlight int, now time.Time) bool {
	if p.limit > 0 && now.Sub(p.reduced) < paceHold {
		return false
	}
	busy := float64(inFlight)
	if p.limit == 0 {
		p.ceiling = busy
	} else {
		busy = min(busy, p.limit)
	}
	before := p.current()
	p.limit, p.reduced = max(1, busy/2), now
	return p.current() != before
}

// cut takes in a success; true when the limit changed.
func (p *pace) cut() bool {
	if p.limit == 0 {
		return false
	}
	before := p.current()
	p.limit += 1 / p.limit
	if p.limit >= p.ceiling {
		*p = pace{}
	}
	return p.current() != before
}

// current is the limit in whole snapshots; 0 means none.
func (p *pace) current() int { return int(p.limit) }
