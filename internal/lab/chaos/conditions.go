// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"fmt"
	"slices"
	"time"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"

	"github.com/velero-clipper/clipper/internal/lab/kubelet"
)

// momentLimit bounds the wait for the moment of a point.
const momentLimit = 2 * time.Minute

// awaitMoment waits for a condition, and for some time after it.
func (l *Lab) awaitMoment(ctx context.Context, holds condition, after time.Duration) error {
	limited, cancel := context.WithTimeoutCause(ctx, momentLimit, fmt.Errorf("it did not come within %s", momentLimit))
	defer cancel()
	if err := l.state.await(limited, holds); err != nil {
		return err
	}
	return pause(ctx, after)
}

// pause lets time pass.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// begun is true from the start of a point.
func begun(*seen) bool { return true }

// recorded: a freeze record was written.
func recorded(s *seen) bool { return s.written }

// unrecorded: there was a freeze record, and there is none any more.
func unrecorded(s *seen) bool { return s.written && len(s.records) == 0 }

// reached: so many backups were in a phase.
func reached(n int, phase velerov1.BackupPhase) condition {
	return func(s *seen) bool { return len(s.phases[phase]) >= n }
}

// running: a run of a hook has begun.
func running(command string) condition {
	return func(s *seen) bool {
		return slices.ContainsFunc(s.execs, func(call kubelet.ExecCall) bool { return call.Command[0] == command })
	}
}

// frozenPods: so many pods are frozen at this moment.
func frozenPods(n int) condition { return func(s *seen) bool { return s.frozen() >= n } }

// ran: so many runs of a hook have ended.
func ran(n int, command string) condition {
	return func(s *seen) bool {
		count := 0
		for _, call := range s.execs {
			if call.Command[0] == command && !call.End.IsZero() {
				count++
			}
		}
		return count >= n
	}
}

// created, called and cut: VolumeSnapshots, the driver's calls for them, their handles.
func created(n int) condition { return func(s *seen) bool { return len(s.created) >= n } }
func called(n int) condition  { return func(s *seen) bool { return len(s.calls) >= n } }
func cut(n int) condition     { return func(s *seen) bool { return len(s.cut) >= n } }

// removing: the deletion of so many VolumeSnapshots was asked for.
func removing(n int) condition { return func(s *seen) bool { return len(s.deleting) >= n } }

// uploaded: a file of a backup was written. Names are without that of the backup.
func uploaded(file string) condition {
	return func(s *seen) bool { return slices.Contains(s.files, file) }
}

// started: the server was started since the point began.
func started(s *seen) bool { return s.starts > 0 }

// whileFrozen adds that a pod is frozen.
func whileFrozen(holds condition) condition {
	return func(s *seen) bool { return s.frozen() > 0 && holds(s) }
}
