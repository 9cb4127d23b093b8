// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package recovery

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	"github.com/sirupsen/logrus"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/velero-clipper/clipper/pkg/controller/instance"
)

var (
	errForbidden = apierrors.NewForbidden(schema.GroupResource{Resource: "leases"}, "velero-server-old-0", errors.New("no right"))
	errAway      = errors.New("connection refused")
)

// Leases can't be read. The start goes on all the same, some time.
func TestServersOfWhichNothingCanBeKnown(t *testing.T) {
	for name, test := range map[string]struct {
		server string
		err    error
		after  time.Duration
		phase  velerov1.BackupPhase
		thaws  int
	}{
		"the API server is away":                 {dead, errAway, findLimit, velerov1.BackupPhaseInProgress, 0},
		"there is no right":                      {dead, errForbidden, 0, velerov1.BackupPhaseFailed, 2},
		"the one before us, of our name":         {"new-0_0", errAway, 0, velerov1.BackupPhaseFailed, 2},
		"the one before us, and no right either": {"new-0_0", errForbidden, 0, velerov1.BackupPhaseFailed, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := setup(t)
				h.instances.err = test.err
				h.store.Server = test.server
				h.frozen(h.backup("nightly", test.server, velerov1.BackupPhaseInProgress), "a")
				begun := time.Now()
				h.atStart()
				h.Expect(time.Since(begun)).To(BeNumerically("~", test.after, 5*time.Second))
				h.Expect(h.get("nightly").Status.Phase).To(Equal(test.phase))
				h.Expect(h.executor.all()).To(HaveLen(test.thaws))
				if test.thaws == 0 {
					h.Expect(h.log.LastEntry().Level).To(Equal(logrus.ErrorLevel))
				}
			})
		})
	}
}

// Without the right to read Leases a thaw that another server owes would wait for ever: its backup is over.
func TestAnOwedThawOfAServerOfWhichNothingCanBeKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := setup(t)
		h.instances.err = errForbidden
		h.store.Server = alive
		h.frozen(h.backup("over", "", velerov1.BackupPhaseCompleted), "a")
		h.backup("theirs", alive, velerov1.BackupPhaseInProgress)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- New(h.deps).Run(ctx) }()
		<-time.After(2 * DefaultInterval)
		h.Expect(h.executor.all()).To(Equal([]string{"a resume", "a thaw"}))
		h.Expect(h.records()).To(BeEmpty())
		h.Expect(h.get("theirs").Status.Phase).To(Equal(velerov1.BackupPhaseInProgress), "it may be alive")
		cancel()
		h.Expect(<-done).To(Succeed())
	})
}

// Two records of the same pod, of servers of which nothing can be known, don't wait for each other.
func TestTwoOwedThawsOfTheSamePodDoNotWaitForEachOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := setup(t)
		h.instances.err = errForbidden
		h.frozen(h.backup("yesterday", "", velerov1.BackupPhaseCompleted), "a")
		<-time.After(time.Hour)
		h.frozen(h.backup("today", "", velerov1.BackupPhaseCompleted), "a")
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- New(h.deps).Run(ctx) }()
		<-time.After(3 * DefaultInterval)
		h.Expect(h.executor.all()).To(ContainElement("a thaw"))
		h.Expect(h.records()).To(BeEmpty())
		cancel()
		h.Expect(<-done).To(Succeed())
	})
}

// Another server always has a backup in progress.
func TestABusyServerDoesNotKeepAnotherFromStartingForEver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := setup(t)
		h.instances.set(alive, instance.Alive)
		first := h.backup("first", alive, velerov1.BackupPhaseInProgress)
		started := make(chan struct{})
		go func() { defer close(started); h.atStart() }()
		<-time.After(time.Minute)
		h.backup("second", alive, velerov1.BackupPhaseInProgress)
		<-time.After(time.Minute)
		h.Expect(started).NotTo(BeClosed())
		h.end(first, velerov1.BackupPhaseCompleted)
		<-started
		h.Expect(h.get("second").Status.Phase).To(Equal(velerov1.BackupPhaseInProgress))
	})
}
