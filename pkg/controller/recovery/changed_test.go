// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package recovery

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"

	"github.com/velero-clipper/clipper/pkg/controller/instance"
	"github.com/velero-clipper/clipper/pkg/hook"
)

// The killed server has put the backup back into the queue, and not deleted its record; another one runs it by now, with pods in
// the same record.
func TestABackupThatIsRunAgainIsNotThawedFromItsOldRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := setup(t)
		b := h.backup("nightly", dead, velerov1.BackupPhaseInProgress)
		h.frozen(b, "a")
		b.Annotations[AnnServer] = alive
		h.Expect(h.client.Update(t.Context(), b)).To(Succeed())
		h.instances.set(alive, instance.Alive)
		started := make(chan struct{})
		go func() { defer close(started); h.atStart() }()
		<-time.After(time.Minute)
		h.Expect(h.events).To(BeEmpty())

		h.instances.set(alive, instance.Dead)
		<-started
		h.Expect(h.executor.all()).To(HaveLen(2))
		h.Expect(h.snapshots.removed).To(HaveLen(1))
	})
}

// The other way round: its record is a living server's.
func TestARecordOfALivingServerIsNotTouched(t *testing.T) {
	h := setup(t)
	h.instances.set(alive, instance.Alive)
	h.store.Server = alive
	h.frozen(h.backup("nightly", dead, velerov1.BackupPhaseInProgress), "a")
	ctx, cancel := context.WithCancel(t.Context())
	h.deps.Instances = lookFunc(func(id instance.ID) instance.State {
		if id == alive {
			cancel()
			return instance.Alive
		}
		return instance.Dead
	})
	New(h.deps).AtStart(ctx)
	h.Expect(h.events).To(BeEmpty())
}

type lookFunc func(instance.ID) instance.State

func (f lookFunc) Look(_ context.Context, id instance.ID) (instance.State, error) { return f(id), nil }

// What is listed may be old: before the server is looked at, it brings its backup to its end and ends in order, or another one takes
// the backup over.
func TestABackupThatHasChangedSinceItWasListed(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*velerov1.Backup)
		want   velerov1.BackupPhase
	}{
		"complete": {func(b *velerov1.Backup) {
			b.Status.Phase = velerov1.BackupPhaseFinalizing
			delete(b.Annotations, AnnServer)
		}, velerov1.BackupPhaseFinalizing},
		"taken over": {func(b *velerov1.Backup) { b.Annotations[AnnServer] = alive }, velerov1.BackupPhaseInProgress},
	} {
		t.Run(name, func(t *testing.T) {
			h := setup(t)
			h.backup("nightly", dead, velerov1.BackupPhaseInProgress)
			ctx, cancel := context.WithCancel(t.Context())
			h.deps.Instances = lookFunc(func(id instance.ID) instance.State {
				if id == alive {
					cancel()
					return instance.Alive
				}
				b := h.get("nightly")
				test.change(b)
				h.Expect(h.client.Update(context.Background(), b)).To(Succeed())
				return instance.Dead
			})
			New(h.deps).AtStart(ctx)
			h.Expect(h.events).To(BeEmpty())
			h.Expect(h.get("nightly").Status.Phase).To(Equal(test.want))
		})
	}
}

// The same while pods are thawed: they are, but the rest isn't done.
func TestABackupThatEndsWhileItsPodsAreThawed(t *testing.T) {
	h := setup(t)
	h.frozen(h.backup("nightly", dead, velerov1.BackupPhaseInProgress), "a")
	h.executor.answer = func(hook.Command) error {
		b := h.get("nightly")
		b.Status.Phase = velerov1.BackupPhaseFailed
		delete(b.Annotations, AnnServer)
		return h.client.Update(context.Background(), b)
	}
	h.atStart()
	h.Expect(h.executor.all()).To(HaveLen(2))
	h.Expect(h.snapshots.removed).To(BeEmpty())
	h.Expect(h.records()).To(BeEmpty())
}
