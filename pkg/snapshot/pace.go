// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"time"
)

const (
	// firstWindow is what a driver of which nothing is known may have in flight for batches: as many as a csi-snapshotter
	// sidecar has workers by default. A storage that refuses to be asked so much says so at once, and has refused few.
	firstWindow = 10
	// widest bounds the window; it is as good as none.
	widest = 1 << 20
	// widenAfter is how long a window must have been full without a refusal to be lifted. An answer takes a second to get
	// here through the sidecar and the API, more on a busy cluster.
	widenAfter = 2 * time.Second

	// episodeLength is how long refusals belong together: they answer what was asked before the first of them was known.
	episodeLength = 2 * time.Second
	// firstBackoff is the sidecar's pause before it asks again for a snapshot that was refused.
	firstBackoff = time.Second
	// backOff is what is left of the rate at a refusal, after the first episode; half of it when much less is delivered.
	backOff = 0.85
	// growthPerSecond is the part by which the rate grows while nothing is refused.
	growthPerSecond = 0.02
	// slowest is the lowest rate, in starts per second.
	slowest = 0.2
	// forgetAfter is how long a driver is taken for throttling without a refusal, and how long what was learned of one that
	// is asked for nothing holds.
	forgetAfter = time.Minute
	// deliveryWindow is the time over which cuts are counted to know what a driver delivers.
	deliveryWindow = 3 * time.Second
)

// pace is how fast a driver is asked, as learned from its answers. There are two kinds of limits below us that we
// aren't told: on calls per second, and on snapshots in progress. Both are found by their refusals, and both are kept to:
// starts are spaced by rate, and their number in flight stays near what the rate needs (rate x time to a cut).
//
// A driver of which nothing is known starts with a small window, which is widened by each cut and lifted soon. The first
// refusal ends that: the rate becomes what was accepted. From then on it grows slowly, and is cut back at each further episode of refusals.
// It is a plain value: no clock, no lock.
type pace struct {
	// window is what may be in flight while the driver doesn't throttle; full is when it was filled, zero when it has been
	// widened since, or emptied.
	window int
	full   time.Time

	// refusedAt is the time of the last refusal; zero while the driver doesn't throttle.
	refusedAt time.Time
	// episode is the time of the first refusal of an episode. asked and flying are what had been asked for in the second
	// before it, and what was in flight; refused is how many of these were refused since.
	episode                time.Time
	asked, flying, refused int
	// learning: the first episode isn't over.
	learning bool
	// rate is in starts per second, limit in snapshots in flight.
	rate, limit float64
	grown       time.Time
	// next is when the next start may be.
	next time.Time

	// latency is the smoothed time from the creation to the cut of snapshots that were never refused.
	latency      time.Duration
	starts, cuts moments
}

// allowance is what a driver may be asked now for batches. Nothing that is learned holds back the snapshots of a frozen
// application: what the driver refuses of them the sidecar asks for again, while a place in our queue is never refused.
type allowance struct {
	// inFlight is how many may be in flight.
	inFlight int
	// spaced says that one may start now, or, when blocked, none.
	spaced, blocked bool
	// again is when the answer changes with nothing else happening; zero when it doesn't.
	again time.Time
}

// allow answers with that many in flight.
func (p *pace) allow(now time.Time, inFlight int) allowance {
	p.advance(now)
	if p.throttles() {
		a := allowance{inFlight: p.current(), spaced: true, blocked: now.Before(p.next), again: p.next}
		if !a.blocked {
			a.again = now.Add(p.spacing()) // the limit in flight has grown by then
		}
		return a
	}
	p.window = max(p.window, firstWindow)
	switch {
	case !p.full.IsZero() && now.Sub(p.full) >= widenAfter:
		p.window, p.full = widest, time.Time{}
	case inFlight == 0 && p.starts.within(now, forgetAfter) == 0:
		p.window, p.full = firstWindow, time.Time{} // what was true then need not be now
	case inFlight == 0:
		p.full = time.Time{} // what was asked for has been answered
	}
	a := allowance{inFlight: p.window}
	if !p.full.IsZero() {
		a.again = p.full.Add(widenAfter)
	}
	return a
}

// atRest: there is nothing left to forget.
func (p *pace) atRest() bool { return !p.throttles() && p.window <= firstWindow }

func (p *pace) throttles() bool { return !p.refusedAt.IsZero() }

// current is the limit on what is in flight; 0 means none.
func (p *pace) current() int {
	if !p.throttles() {
		return 0
	}
	return max(1, int(p.limit))
}

func (p *pace) spacing() time.Duration { return time.Duration(float64(time.Second) / p.rate) }

// advance lets the limits grow for the time in which nothing was refused.
func (p *pace) advance(now time.Time) {
	if !p.throttles() {
		return
	}
	if now.Sub(p.refusedAt) >= forgetAfter {
		*p = pace{}
		return
	}
	since := p.grown
	if calm := p.refusedAt.Add(firstBackoff); calm.After(since) {
		since = calm
	}
	if passed := now.Sub(since).Seconds(); passed > 0 {
		p.rate *= 1 + growthPerSecond*passed
		p.limit = max(p.limit, min(p.limit+p.rate*passed, p.needed()))
		p.grown = now
	}
}

// needed is what must be in flight to keep up the rate, with a little room.
func (p *pace) needed() float64 {
	if p.latency == 0 {
		return float64(p.flying)
	}
	return 1.25*p.rate*p.latency.Seconds() + 1
}

// started takes in a start, after which that many are in flight.
func (p *pace) started(now time.Time, inFlight int) {
	p.starts.add(now, time.Second)
	switch {
	case p.throttles():
		p.reserve(now)
	case inFlight >= p.window && p.full.IsZero():
		p.full = now
	}
}

// reserve takes the next place in the row of starts.
func (p *pace) reserve(from time.Time) {
	if from.After(p.next) {
		p.next = from
	}
	p.next = p.next.Add(p.spacing())
}

// refuse takes in that the driver refused to be asked so much, with that many in flight. It reports whether an episode
// has begun, which is worth telling. A refusal of what was refused before tells of the sidecar's pace, not of ours.
func (p *pace) refuse(now time.Time, inFlight int, before bool) (began bool) {
	p.advance(now)
	if before && p.throttles() {
		p.refusedAt = now
		p.reserve(now.Add(firstBackoff))
		return false
	}
	first := !p.throttles()
	began = first || now.Sub(p.episode) >= episodeLength
	if began {
		p.episode, p.asked, p.flying, p.refused, p.learning = now, p.starts.within(now, time.Second), inFlight, 0, first
	}
	p.refused++
	accepted := max(1, float64(p.asked-p.refused))
	switch {
	case first:
		p.rate, p.limit = accepted, float64(inFlight)
	case p.learning:
		p.rate = min(p.rate, accepted)
	case began:
		p.rate = max(slowest, min(p.rate*backOff, max(p.rate/2, p.delivered(now))))
	}
	p.limit = max(1, min(p.limit, float64(p.flying-p.refused)))
	p.refusedAt, p.grown = now, now
	// The sidecar asks again by itself, and needs a place in the row for that.
	p.reserve(now.Add(firstBackoff))
	return began
}

// delivered is the rate of cuts.
func (p *pace) delivered(now time.Time) float64 {
	return float64(p.cuts.within(now, deliveryWindow)) / deliveryWindow.Seconds()
}

// cut takes in a success, that long after the creation; refused says that the driver had refused it before.
func (p *pace) cut(now time.Time, took time.Duration, refused bool) {
	p.cuts.add(now, deliveryWindow)
	if !refused {
		if p.latency == 0 {
			p.latency = took
		}
		p.latency += (took - p.latency) / 8
	}
	if !p.throttles() {
		p.window = min(p.window+1, widest)
		return
	}
	if now.Sub(p.episode) < deliveryWindow {
		return
	}
	// What is delivered can't be too much to ask.
	p.rate = max(p.rate, backOff*p.delivered(now))
}

// moments are points in time, in order.
type moments []time.Time

// add adds one and drops what is older than keep.
func (m *moments) add(now time.Time, keep time.Duration) {
	old := 0
	for old < len(*m) && now.Sub((*m)[old]) > keep {
		old++
	}
	*m = append((*m)[old:], now)
}

// within counts those of the last d.
func (m moments) within(now time.Time, d time.Duration) int {
	count := 0
	for i := len(m) - 1; i >= 0 && now.Sub(m[i]) <= d; i-- {
		count++
	}
	return count
}
