// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package freezerecord

import (
	"context"
	"fmt"
	"sync"
)

// hands says in whose hands a pod is in this process: in those of a backup that freezes it, or of a recovery that thaws it after an
// earlier backup. A pod that a running backup has frozen must not be thawed by the recovery of another.
type hands struct {
	mu   sync.Mutex
	pods map[string]*hand
}

// hand is of one pod.
type hand struct {
	// freezes are the running backups that have it frozen.
	freezes int
	// thawed is closed when the recovery that thaws it is over; nil when none does.
	thawed chan struct{}
}

// handKey tells a pod from a later one of its name.
func handKey(e Entry) string { return e.String() + "/" + string(e.UID) }

// freeze takes a pod for a backup. It waits for a recovery that thaws it, as long as ctx.
func (h *hands) freeze(ctx context.Context, e Entry) error {
	for {
		wait := h.tryFreeze(handKey(e))
		if wait == nil {
			return nil
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return fmt.Errorf("pod %s is still frozen by an earlier backup, and is being thawed: %w", e, context.Cause(ctx))
		}
	}
}

func (h *hands) tryFreeze(key string) (wait <-chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	pod := h.of(key)
	if pod.thawed != nil {
		return pod.thawed
	}
	pod.freezes++
	return nil
}

// unfreeze gives a pod back.
func (h *hands) unfreeze(e Entry) {
	h.mu.Lock()
	defer h.mu.Unlock()
	key := handKey(e)
	if pod := h.of(key); pod.freezes > 0 {
		pod.freezes--
	}
	h.tidy(key)
}

// thaw takes a pod for a recovery. It waits for another one, as long as ctx; it returns nil when a running backup has the pod.
func (h *hands) thaw(ctx context.Context, e Entry) (release func()) {
	key := handKey(e)
	for {
		wait, taken := h.tryThaw(key)
		if taken {
			return sync.OnceFunc(func() { h.unthaw(key) })
		}
		if wait == nil {
			return nil
		}
		select {
		case <-wait:
		case <-ctx.Done():
			return nil
		}
	}
}

func (h *hands) tryThaw(key string) (wait <-chan struct{}, taken bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	pod := h.of(key)
	if pod.freezes > 0 || pod.thawed != nil {
		return pod.thawed, false
	}
	pod.thawed = make(chan struct{})
	return nil, true
}

func (h *hands) unthaw(key string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	pod := h.of(key)
	close(pod.thawed)
	pod.thawed = nil
	h.tidy(key)
}

func (h *hands) of(key string) *hand {
	pod := h.pods[key]
	if pod == nil {
		pod = new(hand)
		h.pods[key] = pod
	}
	return pod
}

func (h *hands) tidy(key string) {
	if pod := h.pods[key]; pod != nil && pod.freezes == 0 && pod.thawed == nil {
		delete(h.pods, key)
	}
}
