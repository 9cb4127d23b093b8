// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"fmt"
	"sync"
)

// Snapshot is the future of one Request. All methods may be called from any goroutine.
type Snapshot struct {
	request        Request
	decided, ready chan struct{}

	mu      sync.Mutex
	outcome Outcome
}

func newSnapshot(request Request) *Snapshot {
	return &Snapshot{
		request: request,
		decided: make(chan struct{}),
		ready:   make(chan struct{}),
		outcome: Outcome{Phase: Queued},
	}
}

// Request is what was asked for.
func (s *Snapshot) Request() Request { return s.request }

// Decided is closed once the snapshot is cut or has failed.
func (s *Snapshot) Decided() <-chan struct{} { return s.decided }

// Ready is closed once readyToUse is true on both the VolumeSnapshot and its content, or when the snapshot has failed.
// It stays open when a cut snapshot never becomes ready, or is deleted before that: don't wait for it without a bound.
func (s *Snapshot) Ready() <-chan struct{} { return s.ready }

// Outcome is what became of the request; before Decided it is how far it has come (Phase Queued or Cutting), with the
// last error in Message. After the cut its objects go on being renewed until they are ready. The objects are shared with
// the cache: callers must not change them.
func (s *Snapshot) Outcome() Outcome {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.outcome
}

// update changes the outcome under the lock.
func (s *Snapshot) update(change func(*Outcome)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.outcome)
}

// Wait returns once all the snapshots are decided, whatever their outcomes, or with an error when ctx ends first.
func Wait(ctx context.Context, snaps ...*Snapshot) error {
	for i, s := range snaps {
		select {
		case <-s.Decided():
		case <-ctx.Done():
			return fmt.Errorf("waiting for the snapshot of PVC %s/%s (%d of %d): %w",
				s.request.Namespace, s.request.PVC, i+1, len(snaps), context.Cause(ctx))
		}
	}
	return nil
}
