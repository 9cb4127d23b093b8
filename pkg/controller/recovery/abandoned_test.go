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
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/velero-clipper/clipper/pkg/controller/instance"
)

// The start of a second server's Velero half has marked the backup Failed while the first had it in hand; then the first dies.
func TestABackupThatWasMarkedFailedWhileItsServerRanIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := setup(t)
		h.instances.set(alive, instance.Alive)
		h.store.Server = alive
		h.snapshots.found = 2
		b := h.backup("nightly", alive, velerov1.BackupPhaseFailed)
		b.Status.FailureReason = "found in progress at a start"
		h.Expect(h.client.Update(t.Context(), b)).To(Succeed())
		h.frozen(b, "a")
		h.atStart() // it doesn't wait: the worst has happened
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- New(h.deps).Run(ctx) }()
		<-time.After(2 * DefaultInterval)
		h.Expect(h.events).To(BeEmpty(), "its server lives, and has it in hand")

		h.instances.set(alive, instance.Dead)
		<-time.After(2 * DefaultInterval)
		h.Expect(h.executor.all()).To(Equal([]string{"a resume", "a thaw"}))
		h.Expect(h.snapshots.removed).To(Equal([]types.UID{"nightly-uid"}))
		got := h.get("nightly")
		h.Expect(got.Annotations).To(BeEmpty())
		h.Expect(got.Status.Phase).To(Equal(velerov1.BackupPhaseFailed))
		h.Expect(got.Status.FailureReason).To(And(HavePrefix("found in progress at a start; "), HaveSuffix("CSI snapshots removed: 2")))
		h.Expect(h.records()).To(BeEmpty())
		cancel()
		h.Expect(<-done).To(Succeed())
	})
}

// It lives after all, and comes to the end of its run when the recovery is about to remove its snapshots.
func TestABackupThatIsCompletedWhenItIsTakenOver(t *testing.T) {
	h := setup(t)
	h.backup("nightly", dead, velerov1.BackupPhaseInProgress)
	once := true
	h.onPatch = func(o client.Object) error {
		if !once {
			return nil
		}
		once = false
		b := h.get("nightly")
		b.Status.Phase = velerov1.BackupPhaseFinalizing
		return h.client.Update(context.Background(), b)
	}
	h.atStart()
	h.Expect(h.snapshots.removed).To(BeEmpty())
	h.Expect(h.get("nightly").Status.Phase).To(Equal(velerov1.BackupPhaseFinalizing))
}
