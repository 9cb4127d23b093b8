// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"context"
	"sync"
)

// board owns the recording of a running experiment. Whoever sees something writes it here; whoever waits for something is
// woken by each change and looks again. It is safe for concurrent use.
type board struct {
	mu      sync.Mutex
	rec     *recording
	changed chan struct{} // closed and replaced at every change
}

func newBoard() *board {
	return &board{rec: newRecording(), changed: make(chan struct{})}
}

// update changes the recording and wakes everyone who waits. The function must not keep the pointer.
func (b *board) update(change func(*recording)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change(b.rec)
	close(b.changed)
	b.changed = make(chan struct{})
}

// wake makes those who wait look again after a change that the recording does not hold.
func (b *board) wake() { b.update(func(*recording) {}) }

// view reads the recording. The function must not keep the pointer.
func (b *board) view(read func(*recording)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	read(b.rec)
}

// wait returns when the condition holds, or with the context's cause when that ends first.
func (b *board) wait(ctx context.Context, condition func(*recording) bool) error {
	for {
		b.mu.Lock()
		met, changed := condition(b.rec), b.changed
		b.mu.Unlock()
		if met {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
