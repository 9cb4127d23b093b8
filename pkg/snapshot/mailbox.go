// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import "sync"

// mailbox is an unbounded queue for one receiver. Putting never blocks, so that neither callers nor informer handlers
// ever wait for the receiver.
type mailbox[T any] struct {
	mu    sync.Mutex
	items []T
	// signal has room for one token: it says that there may be something to take.
	signal chan struct{}
}

func newMailbox[T any]() *mailbox[T] {
	return &mailbox[T]{signal: make(chan struct{}, 1)}
}

func (m *mailbox[T]) put(item T) {
	m.mu.Lock()
	m.items = append(m.items, item)
	m.mu.Unlock()
	select {
	case m.signal <- struct{}{}:
	default:
	}
}

// take returns everything put since the last call, in order.
func (m *mailbox[T]) take() []T {
	m.mu.Lock()
	defer m.mu.Unlock()
	items := m.items
	m.items = nil
	return items
}
