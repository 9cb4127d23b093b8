// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import "sync"

// NewFuture returns a Snapshot that belongs to no Taker, for those who stand in for one, such as the tests of a Taker's
// callers. decide gives its outcome, of Phase Cut or Failed; ready says that a cut snapshot is usable. Both may be called
// from any goroutine; only the first call of each counts.
func NewFuture(request Request) (s *Snapshot, decide func(Outcome), ready func()) {
	s = newSnapshot(request)
	closeReady := sync.OnceFunc(func() { close(s.ready) })
	var once sync.Once
	decide = func(outcome Outcome) {
		once.Do(func() {
			s.update(func(o *Outcome) { *o = outcome })
			close(s.decided)
			if outcome.Phase == Failed {
				closeReady()
			}
		})
	}
	return s, decide, closeReady
}
