// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"slices"
	"sync"
)

// place is room for snapshots that will be asked for in a moment.
type place struct {
	requests []Request
	// granted is closed when there is room, or nothing more to wait for.
	granted chan struct{}
	held    bool
}

// Reserve waits until there is room for the snapshots of an application that is about to be frozen, or until ctx ends. The room is
// kept until release is called, which is to be done right after Take: an application must not be stopped while snapshots
// of others have all the places. While a reservation waits, no snapshot of priority Batch is started. Reservations of more than
// may ever be in flight are granted when nothing else is.
func (t *Taker) Reserve(ctx context.Context, requests ...Request) (release func()) {
	if len(requests) == 0 {
		return func() {}
	}
	p := &place{requests: slices.Clone(requests), granted: make(chan struct{})}
	t.mu.Lock()
	stopped := t.stopped
	if !stopped {
		t.inbox.put(func(l *loop) {
			l.places = append(l.places, p)
			l.pending = true
		})
	}
	t.mu.Unlock()
	if stopped {
		return func() {}
	}
	select {
	case <-p.granted:
	case <-ctx.Done():
	}
	return sync.OnceFunc(func() {
		t.inbox.put(func(l *loop) {
			l.places = slices.DeleteFunc(l.places, func(other *place) bool { return other == p })
			l.pending = true
		})
	})
}

// grant grants those reservations that there is room for, in the order in which they were asked for, and says whether one has
// to go on waiting.
func (l *loop) grant(lim limits) (waiting bool) {
	for _, p := range l.places {
		if p.held {
			continue
		}
		if !l.hasRoom(p, lim) {
			return true
		}
		p.held = true
		close(p.granted)
	}
	return false
}

// hasRoom asks next what it would do if the snapshots were asked for now.
func (l *loop) hasRoom(p *place, lim limits) bool {
	candidates := l.inFlight()
	flying := len(candidates)
	if flying == 0 {
		return true
	}
	for _, e := range l.entries {
		if e.state == queued && e.request.Priority == Frozen {
			candidates = append(candidates, e.candidate())
		}
	}
	own := len(candidates)
	for _, r := range p.requests {
		candidates = append(candidates, candidateOf(r, false))
	}
	startable := 0
	for _, i := range next(candidates, nil, lim) {
		if i >= own {
			startable++
		}
	}
	return startable == len(p.requests)
}

// inFlight are the candidates of what is in flight, and of what was granted.
func (l *loop) inFlight() []candidate {
	var flying []candidate
	for _, e := range l.entries {
		if e.state.inFlight() {
			flying = append(flying, e.candidate())
		}
	}
	return append(flying, l.heldPlaces()...)
}

func (l *loop) heldPlaces() []candidate {
	var held []candidate
	for _, p := range l.places {
		if p.held {
			for _, r := range p.requests {
				held = append(held, candidateOf(r, true))
			}
		}
	}
	return held
}

// grantAll lets everybody go who waits; what comes after will fail by itself.
func (l *loop) grantAll() {
	for _, p := range l.places {
		if !p.held {
			p.held = true
			close(p.granted)
		}
	}
}

func candidateOf(r Request, inFlight bool) candidate {
	return candidate{priority: Frozen, owner: r.Owner.UID, ownerLimit: r.Owner.Limit, driver: r.Driver, inFlight: inFlight}
}
