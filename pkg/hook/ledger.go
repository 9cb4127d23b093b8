// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"sync"
	"time"
)

// Window is the time in which a pod is, or may be, frozen: from the start of its first pre hook to the end of its last
// post hook. A pod with pre hooks only is taken to be thawed at the moment when its post hooks would have run.
type Window struct {
	Namespace string
	Pod       string
	Start     time.Time
	// End is zero while the pod is still frozen.
	End time.Time
}

// podKey names a pod within a backup.
type podKey struct {
	namespace, name string
}

// hookKey is what makes a hook distinct in a backup's count. It is stock's definition, and two hooks of the same name
// and place in the same container count as one.
type hookKey struct {
	pod       podKey
	phase     Phase
	source    Source
	name      string
	container string
	index     int
}

// outcome is what has become of a hook so far.
type outcome int

const (
	attempted outcome = iota
	succeeded
	failed
)

// ledger keeps what a Runner tells its caller afterwards. It locks itself.
type ledger struct {
	mu      sync.Mutex
	hooks   map[hookKey]outcome
	windows []Window
}

// attempt notes that a hook is due, whether or not it will run.
func (l *ledger) attempt(key hookKey) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, known := l.hooks[key]; !known {
		l.hooks[key] = attempted
	}
}

// settle notes how a hook ended. The first end of a hook counts.
func (l *ledger) settle(key hookKey, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.hooks[key] != attempted {
		return
	}
	if err != nil {
		l.hooks[key] = failed
	} else {
		l.hooks[key] = succeeded
	}
}

func (l *ledger) stats() (attemptedHooks, failedHooks int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, o := range l.hooks {
		if o == failed {
			failedHooks++
		}
	}
	return len(l.hooks), failedHooks
}

// open begins a window and returns its place for close.
func (l *ledger) open(pod podKey, start time.Time) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.windows = append(l.windows, Window{Namespace: pod.namespace, Pod: pod.name, Start: start})
	return len(l.windows) - 1
}

// close ends a window and returns its length.
func (l *ledger) close(window int, end time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.windows[window].End = end
	return end.Sub(l.windows[window].Start)
}

func (l *ledger) list() []Window {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]Window(nil), l.windows...)
}
