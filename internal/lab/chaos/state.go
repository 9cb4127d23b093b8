// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"strings"
	"sync"
	"time"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/velero-clipper/clipper/internal/lab/driver"
	"github.com/velero-clipper/clipper/internal/lab/kubelet"
)

// seen is what there is and what happened, as the watches tell it. Conditions read it.
type seen struct {
	// backups that exist, by name.
	backups map[string]velerov1.BackupStatus
	// phases are those that each backup was in since the point began.
	phases map[velerov1.BackupPhase]map[string]bool
	// snapshots and contents that exist, by UID.
	snapshots, contents map[types.UID]string
	// Since the point began: VolumeSnapshots, contents that got a handle, VolumeSnapshots whose deletion was asked for.
	created, cut, deleting map[types.UID]bool
	// records are the freeze records that exist, by name; written says that there was one since the point began.
	records map[string]bool
	written bool
	// files are the files of backups that were written to the object store since the point began: names without their backup's.
	files []string
	// execs are the commands in containers since the point began, calls the driver's CreateSnapshot calls.
	execs []kubelet.ExecCall
	calls []driver.Call
	// busy says that a call of the driver is under way.
	busy bool
	// available says that the storage location is.
	available bool
	// starts counts the server's processes since the point began; exits are ends that nobody asked for.
	starts int
	exits  []string
}

// state owns what was seen. Whoever waits for something is woken by each change. It is safe for concurrent use.
type state struct {
	mu      sync.Mutex
	seen    seen
	changed chan struct{} // closed and replaced at each change
	// look reads the records of kubelet stand-in and driver.
	look func(*seen)
}

func newState() *state {
	s := &state{changed: make(chan struct{}), seen: seen{
		backups: map[string]velerov1.BackupStatus{}, snapshots: map[types.UID]string{}, contents: map[types.UID]string{},
		records: map[string]bool{},
	}}
	s.begin()
	return s
}

// update changes what was seen and wakes those who wait. The function must not keep the pointer.
func (s *state) update(change func(*seen)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.seen)
	close(s.changed)
	s.changed = make(chan struct{})
}

// wake makes those who wait look again.
func (s *state) wake() { s.update(func(*seen) {}) }

// view reads. The function must not keep the pointer.
func (s *state) view(read func(*seen)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refresh()
	read(&s.seen)
}

// refresh reads what keeps a record of its own. The caller holds the lock.
func (s *state) refresh() {
	if s.look != nil {
		s.look(&s.seen)
	}
}

// begin begins a point: what was counted is forgotten.
func (s *state) begin() {
	s.update(func(seen *seen) {
		seen.phases = map[velerov1.BackupPhase]map[string]bool{}
		seen.created, seen.cut, seen.deleting = map[types.UID]bool{}, map[types.UID]bool{}, map[types.UID]bool{}
		seen.written, seen.files, seen.starts, seen.exits = len(seen.records) > 0, nil, 0, nil
	})
}

// condition is true of what was seen, or not yet.
type condition func(*seen) bool

// await returns when the condition holds, or with the context's cause when that ends first.
func (s *state) await(ctx context.Context, holds condition) error {
	for {
		s.mu.Lock()
		s.refresh()
		met, changed := holds(&s.seen), s.changed
		s.mu.Unlock()
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

// The commands of the workload's hooks.
const (
	freezeCommand = "freeze"
	thawCommand   = "thaw"
)

// hookRuns are the runs of both hooks of a pod. Those that are still going on count.
type hookRuns struct {
	freezes, thaws int
	// again counts freezes of a pod that was frozen.
	again                 int
	lastFreeze, firstThaw time.Time // start of the last freeze, end of the first thaw after it
	running               bool
}

func (r hookRuns) isFrozen() bool { return r.freezes > 0 && r.firstThaw.IsZero() }

// hooks gathers the runs by pod.
func (s *seen) hooks() map[string]hookRuns {
	pods := map[string]hookRuns{}
	for _, call := range s.execs {
		pod := call.Namespace + "/" + call.Pod
		runs := pods[pod]
		runs.running = runs.running || call.End.IsZero()
		switch strings.Join(call.Command, " ") {
		case freezeCommand:
			if runs.isFrozen() {
				runs.again++
			}
			runs.freezes++
			runs.lastFreeze, runs.firstThaw = call.Start, time.Time{}
		case thawCommand:
			runs.thaws++
			if runs.firstThaw.IsZero() {
				runs.firstThaw = call.End
			}
		}
		pods[pod] = runs
	}
	return pods
}

// frozen counts the pods whose freeze has ended and whose thaw hasn't.
func (s *seen) frozen() int {
	open := map[string]bool{}
	for _, call := range s.execs {
		pod := call.Namespace + "/" + call.Pod
		switch {
		case call.End.IsZero():
		case call.Command[0] == freezeCommand:
			open[pod] = true
		case call.Command[0] == thawCommand:
			delete(open, pod)
		}
	}
	return len(open)
}

// isTerminal says whether a backup has reached its end.
func isTerminal(phase velerov1.BackupPhase) bool {
	switch phase {
	case velerov1.BackupPhaseCompleted, velerov1.BackupPhasePartiallyFailed, velerov1.BackupPhaseFailed, velerov1.BackupPhaseFailedValidation:
		return true
	default:
		return false
	}
}
