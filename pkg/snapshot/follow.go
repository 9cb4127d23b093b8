// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// followKey is one incarnation of a VolumeSnapshot; an unknown UID is one of its own.
type followKey struct {
	types.NamespacedName
	uid types.UID
}

func (r Ref) followKey() followKey { return followKey{NamespacedName: r.key(), uid: r.UID} }

// isFollowed says whether follow has a removal in hand.
func (r *Remover) isFollowed(ref Ref) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.followed[ref.followKey()]
}

// beginFollowing returns false when the removal is followed already.
func (r *Remover) beginFollowing(ref Ref) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.followed[ref.followKey()] {
		return false
	}
	r.followed[ref.followKey()] = true
	return true
}

func (r *Remover) endFollowing(ref Ref) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.followed, ref.followKey())
}

// follow follows removals to their end, however long a driver takes to answer, until ctx ends. It is one goroutine for all of
// them; the tracker's watch wakes it.
func (r *Remover) follow(ctx context.Context) {
	woken := newMailbox[*settling]()
	open := map[*settling]bool{}
	defer func() {
		for s := range open {
			r.tracker.unsubscribe(s.sub)
			r.endFollowing(s.ref)
		}
	}()
	for ctx.Err() == nil {
		for _, ref := range r.toFollow.take() {
			if !r.beginFollowing(ref) {
				continue
			}
			s := &settling{Remover: r, ref: ref, helped: map[string]bool{}}
			s.sub = r.tracker.subscribe(ref.key(), func() { woken.put(s) })
			open[s] = true
			woken.put(s)
		}
		for _, s := range woken.take() {
			if open[s] && s.look(ctx) {
				delete(open, s)
				r.tracker.unsubscribe(s.sub)
				r.endFollowing(s.ref)
				r.log.Infof("The removed VolumeSnapshot %s and its content are gone", s.ref.key())
			}
		}
		r.pauseFollowing(ctx, woken, open)
	}
}

// pauseFollowing waits for something to look at. What a request failed for is looked at again after a while.
func (r *Remover) pauseFollowing(ctx context.Context, woken *mailbox[*settling], open map[*settling]bool) {
	var failed []*settling
	for s := range open {
		if s.failed != nil {
			failed = append(failed, s)
		}
	}
	var again <-chan time.Time
	if len(failed) > 0 {
		timer := r.clock.NewTimer(callTimeout)
		defer timer.Stop()
		again = timer.C()
	}
	select {
	case <-r.toFollow.signal:
	case <-woken.signal:
	case <-again:
		for _, s := range failed {
			woken.put(s)
		}
	case <-ctx.Done():
	}
}

// look is advance for one among many: a request that the API goes on refusing must not hold up the others.
func (s *settling) look(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return s.advance(ctx)
}
