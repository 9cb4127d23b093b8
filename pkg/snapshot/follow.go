// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import "context"

// follow follows removals to their end, however long a driver takes to answer, until ctx ends. It is one goroutine for all of
// them; the tracker's watch wakes it.
func (r *Remover) follow(ctx context.Context) {
	woken := newMailbox[*settling]()
	open := map[*settling]bool{}
	defer func() {
		for s := range open {
			r.tracker.unsubscribe(s.sub)
		}
	}()
	for ctx.Err() == nil {
		for _, ref := range r.toFollow.take() {
			s := &settling{Remover: r, ref: ref, helped: map[string]bool{}}
			s.sub = r.tracker.subscribe(ref.key(), func() { woken.put(s) })
			open[s] = true
			woken.put(s)
		}
		for _, s := range woken.take() {
			if open[s] && s.advance(ctx) {
				delete(open, s)
				r.tracker.unsubscribe(s.sub)
				r.log.Infof("The removed VolumeSnapshot %s and its content are gone", s.ref.key())
			}
		}
		select {
		case <-r.toFollow.signal:
		case <-woken.signal:
		case <-ctx.Done():
		}
	}
}
