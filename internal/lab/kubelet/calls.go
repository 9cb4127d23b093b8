// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"
)

// ExecCall is one command that was run, or is running, in a container.
type ExecCall struct {
	Namespace string    `json:"namespace"`
	Pod       string    `json:"pod"`
	Container string    `json:"container"`
	Command   []string  `json:"command"`
	Start     time.Time `json:"start"`
	// End is zero while the command runs.
	End      time.Time `json:"end,omitzero"`
	ExitCode int       `json:"exitCode"`
	// Err is why the command didn't come to an exit code of its own; empty if it did.
	Err string `json:"err,omitempty"`
}

// calls is the record. It locks itself.
type calls struct {
	mu      sync.Mutex
	list    []*ExecCall
	changed chan struct{}
}

func (c *calls) start(call ExecCall) *ExecCall {
	c.mu.Lock()
	defer c.mu.Unlock()
	call.Start = time.Now()
	c.list = append(c.list, &call)
	c.notify()
	return &call
}

func (c *calls) end(call *ExecCall, result Result) {
	c.mu.Lock()
	defer c.mu.Unlock()
	call.End = time.Now()
	call.ExitCode = result.ExitCode
	if result.Err != nil {
		call.Err = result.Err.Error()
	}
	c.notify()
}

// notify wakes those who wait. The caller holds the lock.
func (c *calls) notify() {
	close(c.changed)
	c.changed = make(chan struct{})
}

// Calls returns every command so far, in the order of their start.
func (k *Kubelet) Calls() []ExecCall { return k.CallsFrom(0) }

// CallsFrom returns the commands after the first n ones, for those who have seen these.
func (k *Kubelet) CallsFrom(n int) []ExecCall {
	k.calls.mu.Lock()
	defer k.calls.mu.Unlock()
	all := make([]ExecCall, 0, len(k.calls.list)-n)
	for _, call := range k.calls.list[n:] {
		found := *call
		found.Command = slices.Clone(call.Command)
		all = append(all, found)
	}
	return all
}

// Changed returns a channel that is closed when a command starts or ends after Changed was called. To wait without
// missing anything, take the channel first and look at the calls second, as Await does.
func (k *Kubelet) Changed() <-chan struct{} {
	k.calls.mu.Lock()
	defer k.calls.mu.Unlock()
	return k.calls.changed
}

// Await returns when the condition is true, looking at it after every change, or with an error when ctx has ended. The
// condition may call any method of the Kubelet.
func (k *Kubelet) Await(ctx context.Context, condition func() bool) error {
	for {
		changed := k.Changed()
		if condition() {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("waiting for the kubelet stand-in: %w", context.Cause(ctx))
		}
	}
}
