// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import "k8s.io/apimachinery/pkg/types"

// candidate is what next needs to know of a snapshot that is queued or in flight.
type candidate struct {
	priority Priority
	owner    types.UID
	// ownerLimit is what the owner may have in flight, with this one; 0 means no limit of its own.
	ownerLimit int
	driver     string
	inFlight   bool
}

// limits on what may be in flight at once; 0 and absent mean no limit.
type limits struct {
	server int
	// owner holds for those owners that have no limit of their own.
	owner  int
	driver map[string]driverLimit
}

// driverLimit is what one driver may be asked; 0 means no limit.
type driverLimit struct {
	// inFlight limits all, batch those of priority Batch: they start only while fewer than that are in flight, with those
	// of priority Frozen.
	inFlight, batch int
	// starts is how many of priority Batch may be started now; negative means none.
	starts int
}

// next says which of the snapshots, given in the order in which they were queued, may start now: it returns their
// indexes in the order of starting.
//
// Frozen comes before Batch across all owners. Inside a priority the owner with the fewest in flight is served, then the
// one that was served longest ago (turns, the number of each owner's last start), then the one who asked first. Inside an
// owner the driver with the fewest in flight is served, so that one that hangs doesn't take the places of another; inside a
// driver it is first in, first out. A snapshot that its driver's limit holds back lets those of other drivers pass.
// A full server is never made fuller: nothing is taken back from those already in flight.
func next(snapshots []candidate, turns map[types.UID]uint64, lim limits) []int {
	p := newPlan(snapshots, turns, lim)
	if reached(p.total, lim.server) {
		return nil // most events of a full server end here
	}
	byPriority := lanesOf(snapshots)
	for _, priority := range []Priority{Frozen, Batch} {
		lanes := byPriority[priority]
		for lane := p.best(lanes); lane != nil; lane = p.best(lanes) {
			p.start(lane)
		}
	}
	return p.chosen
}

// lane is the queue of one owner's snapshots of one driver: the finest part in which order is fixed.
type lane struct{ queue []int }

func lanesOf(snapshots []candidate) map[Priority][]*lane {
	type key struct {
		priority Priority
		owner    types.UID
		driver   string
	}
	byKey, byPriority := map[key]*lane{}, map[Priority][]*lane{}
	var last key
	var current *lane
	for i, s := range snapshots {
		if s.inFlight {
			continue
		}
		// Neighbours mostly share a lane.
		if k := (key{s.priority, s.owner, s.driver}); current == nil || k != last {
			last, current = k, byKey[k]
			if current == nil {
				current = &lane{}
				byKey[k] = current
				byPriority[s.priority] = append(byPriority[s.priority], current)
			}
		}
		current.queue = append(current.queue, i)
	}
	return byPriority
}

// plan is the state of one call of next.
type plan struct {
	snapshots []candidate
	lim       limits
	total     int
	byOwner   map[types.UID]int
	byDriver  map[string]int
	started   map[string]int
	turns     map[types.UID]uint64
	turn      uint64
	chosen    []int
}

func newPlan(snapshots []candidate, turns map[types.UID]uint64, lim limits) *plan {
	p := &plan{
		snapshots: snapshots, lim: lim,
		byOwner: map[types.UID]int{}, byDriver: map[string]int{}, started: map[string]int{}, turns: map[types.UID]uint64{},
	}
	for owner, turn := range turns {
		p.turns[owner] = turn
		p.turn = max(p.turn, turn)
	}
	for _, s := range snapshots {
		if s.inFlight {
			p.count(s)
		}
	}
	return p
}

func (p *plan) count(s candidate) {
	p.total++
	p.byOwner[s.owner]++
	p.byDriver[s.driver]++
}

// best is the lane whose head may start and is to be served first; nil when there is none.
func (p *plan) best(lanes []*lane) *lane {
	if reached(p.total, p.lim.server) {
		return nil
	}
	var best *lane
	for _, l := range lanes {
		if len(l.queue) > 0 && p.allowed(l.queue[0]) && (best == nil || p.before(l.queue[0], best.queue[0])) {
			best = l
		}
	}
	return best
}

func (p *plan) allowed(i int) bool {
	s := p.snapshots[i]
	ownerLimit := s.ownerLimit
	if ownerLimit == 0 {
		ownerLimit = p.lim.owner
	}
	return !reached(p.byOwner[s.owner], ownerLimit) && p.driverAllows(s)
}

func (p *plan) driverAllows(s candidate) bool {
	lim := p.lim.driver[s.driver]
	switch {
	case reached(p.byDriver[s.driver], lim.inFlight):
		return false
	case s.priority == Frozen:
		return true
	default:
		return lim.starts >= 0 && !reached(p.started[s.driver], lim.starts) && !reached(p.byDriver[s.driver], lim.batch)
	}
}

func (p *plan) before(i, j int) bool {
	a, b := p.snapshots[i].owner, p.snapshots[j].owner
	if p.byOwner[a] != p.byOwner[b] {
		return p.byOwner[a] < p.byOwner[b]
	}
	if p.turns[a] != p.turns[b] {
		return p.turns[a] < p.turns[b]
	}
	if d, e := p.byDriver[p.snapshots[i].driver], p.byDriver[p.snapshots[j].driver]; a == b && d != e {
		return d < e
	}
	return i < j
}

func (p *plan) start(l *lane) {
	i := l.queue[0]
	l.queue = l.queue[1:]
	p.chosen = append(p.chosen, i)
	p.count(p.snapshots[i])
	if p.snapshots[i].priority == Batch {
		p.started[p.snapshots[i].driver]++
	}
	p.turn++
	p.turns[p.snapshots[i].owner] = p.turn
}

func reached(count, limit int) bool { return limit > 0 && count >= limit }
