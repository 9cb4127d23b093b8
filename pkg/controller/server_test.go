// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/velero-clipper/clipper/pkg/backup"
	"github.com/velero-clipper/clipper/pkg/controller/recovery"
	"github.com/velero-clipper/clipper/pkg/hook/freezerecord"
	"github.com/velero-clipper/clipper/pkg/snapshot"
)

// While a backup runs it says which server runs it, so that another one doesn't take it for a dead one's. Nothing of that is in
// what comes of it.
func TestTheServerIsNamedWhileTheBackupRuns(t *testing.T) {
	g := NewWithT(t)
	h := newHarness(t, with(ready("b1")), func(s *setup) { s.options.Server = "velero-0_ab12" })
	var during *velerov1.Backup
	h.engine.run = func(request backup.Request, _ io.Writer) (*backup.Result, error) {
		during = h.get(t, "b1")
		g.Expect(request.Backup.Annotations).NotTo(HaveKey(freezerecord.AnnServer), "plugins get it")
		return &backup.Result{}, nil
	}
	after := h.reconcile(t, "b1")
	g.Expect(during.Annotations).To(HaveKeyWithValue(freezerecord.AnnServer, "velero-0_ab12"))
	g.Expect(after.Annotations).NotTo(HaveKey(freezerecord.AnnServer))
	uploaded := new(velerov1.Backup)
	h.bucket.decode(t, "b1", "velero-backup.json", uploaded)
	g.Expect(uploaded.Name).To(Equal("b1"))
	g.Expect(uploaded.Annotations).NotTo(HaveKey(freezerecord.AnnServer))
}

// Another server took this one for dead. Its snapshots are removed, so a phase that says otherwise must not be written over.
func TestABackupThatAnotherServerHasTakenKeepsWhatThatWrote(t *testing.T) {
	const us, other = "velero-0_ab12", "velero-1_cd34"
	for name, test := range map[string]struct {
		phase  velerov1.BackupPhase
		server string
		change func(*velerov1.Backup)
		after  string
	}{
		"marked by its recovery":       {phase: velerov1.BackupPhaseFailed},
		"marked by Velero's own start": {phase: velerov1.BackupPhaseFailed, server: us},
		"back in the queue":            {phase: velerov1.BackupPhaseNew},
		"being recovered": {phase: velerov1.BackupPhaseInProgress, server: us, after: us, change: func(b *velerov1.Backup) {
			b.Annotations[recovery.AnnRecoverer] = other
		}},
		"run again by the other":         {phase: velerov1.BackupPhaseInProgress, server: other, after: other},
		"deleted and made a second time": {phase: velerov1.BackupPhaseInProgress, change: func(b *velerov1.Backup) { b.UID = "second" }},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			h := newHarness(t, with(ready("b1")), func(s *setup) { s.options.Server = us })
			h.engine.run = func(backup.Request, io.Writer) (*backup.Result, error) {
				b := h.get(t, "b1")
				b.Status.Phase, b.Status.FailureReason = test.phase, "theirs"
				delete(b.Annotations, freezerecord.AnnServer)
				if test.server != "" {
					b.Annotations = map[string]string{freezerecord.AnnServer: test.server}
				}
				if test.change == nil {
					g.Expect(h.client.Update(t.Context(), b)).To(Succeed())
					return &backup.Result{}, nil
				}
				g.Expect(h.client.Delete(t.Context(), b)).To(Succeed())
				test.change(b)
				b.ResourceVersion = ""
				g.Expect(h.client.Create(t.Context(), b)).To(Succeed())
				return &backup.Result{}, nil
			}
			after := h.reconcile(t, "b1")
			g.Expect(after.Status.Phase).To(Equal(test.phase))
			g.Expect(after.Status.FailureReason).To(Equal("theirs"))
			g.Expect(after.Annotations[freezerecord.AnnServer]).To(Equal(test.after))
			g.Expect(h.log.LastEntry().Message).To(ContainSubstring("can't be changed from InProgress"))
			g.Expect(h.tracker.calls[len(h.tracker.calls)-1]).To(Equal("delete velero/b1"))
		})
	}
}

// The end was written, and only the answer to that lost: the finalizer may have taken the backup further before the next try.
func TestAnEndWhoseAnswerWasLostIsOurs(t *testing.T) {
	g := NewWithT(t)
	var h *harness
	h = newHarness(t, with(ready("b1")), intercepting(patches(func(n int, _ *velerov1.Backup) error {
		if n != 2 {
			return nil
		}
		b := h.get(t, "b1")
		b.Status.Phase = velerov1.BackupPhaseCompleted
		delete(b.Annotations, freezerecord.AnnServer)
		g.Expect(h.client.Update(t.Context(), b)).To(Succeed())
		return errors.New("connection reset")
	})), func(s *setup) { s.options.Server = "velero-0_ab12" })
	g.Expect(h.reconcile(t, "b1").Status.Phase).To(Equal(velerov1.BackupPhaseCompleted))
	g.Expect(h.tracker.calls).NotTo(ContainElement("delete velero/b1"))
}

func TestAnAnnotationThatSomebodyRemovedDoesNotKeepABackupInProgress(t *testing.T) {
	g := NewWithT(t)
	h := newHarness(t, with(ready("b1")), func(s *setup) { s.options.Server = "velero-0_ab12" })
	h.engine.run = func(backup.Request, io.Writer) (*backup.Result, error) {
		b := h.get(t, "b1")
		delete(b.Annotations, freezerecord.AnnServer)
		g.Expect(h.client.Update(t.Context(), b)).To(Succeed())
		return &backup.Result{}, nil
	}
	g.Expect(h.reconcile(t, "b1").Status.Phase).To(Equal(velerov1.BackupPhaseFinalizing))
}

// The queue of a second server that is behind makes a backup ready to start that is being run.
func TestABackupThatAnotherServerRunsIsNotRunASecondTime(t *testing.T) {
	g := NewWithT(t)
	h := newHarness(t, with(ready("b1", func(b *velerov1.Backup) {
		b.Annotations = map[string]string{freezerecord.AnnServer: "velero-1_cd34"}
		b.Status.StartTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	})), func(s *setup) { s.options.Server = "velero-0_ab12" })
	after := h.reconcile(t, "b1")
	g.Expect(h.engine.requests).To(BeEmpty())
	g.Expect(after.Status.Phase).To(Equal(velerov1.BackupPhaseInProgress), "who recovers it must find it, if the other is dead")
	g.Expect(after.Annotations).To(HaveKeyWithValue(freezerecord.AnnServer, "velero-1_cd34"))
	g.Expect(h.tracker.calls).To(Equal([]string{"delete velero/b1"}), "or the queue would count it as running here")
}

// The annotation says nothing on a Backup that was created with it, or of a run of this process that is over: nobody would run it.
func TestABackupThatOnlySeemsToBeRunByAServerIsRun(t *testing.T) {
	for name, change := range map[string]func(*velerov1.Backup){
		"a copied annotation": func(b *velerov1.Backup) {
			b.Annotations = map[string]string{freezerecord.AnnServer: "velero-1_cd34"}
		},
		"our own, of a run that is over": func(b *velerov1.Backup) {
			b.Annotations = map[string]string{freezerecord.AnnServer: "velero-0_ab12"}
			b.Status.StartTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			h := newHarness(t, with(ready("b1", change)), func(s *setup) { s.options.Server = "velero-0_ab12" })
			g.Expect(h.reconcile(t, "b1").Status.Phase).To(Equal(velerov1.BackupPhaseFinalizing))
			g.Expect(h.engine.requests).To(HaveLen(1))
		})
	}
}

// And the one that runs it gives it its end all the same.
func TestABackupThatWasPutBackWhileItRanGetsItsEnd(t *testing.T) {
	g := NewWithT(t)
	h := newHarness(t, with(ready("b1")), func(s *setup) { s.options.Server = "velero-0_ab12" })
	h.engine.run = func(backup.Request, io.Writer) (*backup.Result, error) {
		b := h.get(t, "b1")
		b.Status.Phase = velerov1.BackupPhaseReadyToStart
		g.Expect(h.client.Update(t.Context(), b)).To(Succeed())
		return &backup.Result{}, nil
	}
	after := h.reconcile(t, "b1")
	g.Expect(after.Status.Phase).To(Equal(velerov1.BackupPhaseFinalizing))
	g.Expect(after.Annotations).NotTo(HaveKey(freezerecord.AnnServer))
}

// No metric counts an end that isn't the backup's.
func TestAnEndThatIsNotWrittenIsNotCounted(t *testing.T) {
	g := NewWithT(t)
	h := newHarness(t, with(ready("b1")), func(s *setup) { s.options.Server = "velero-0_ab12" })
	h.engine.run = func(backup.Request, io.Writer) (*backup.Result, error) {
		b := h.get(t, "b1")
		b.Status.Phase = velerov1.BackupPhaseNew
		delete(b.Annotations, freezerecord.AnnServer)
		g.Expect(h.client.Update(t.Context(), b)).To(Succeed())
		return nil, errors.New("ours")
	}
	h.reconcile(t, "b1")
	g.Expect(h.metric(t, "velero_backup_failure_total", "schedule", "")).To(BeNumerically("<=", 0))
	g.Expect(h.metric(t, "velero_backup_attempt_total", "schedule", "")).To(Equal(1.0))
}

// Another server took this one for dead, and may be about to thaw its pods and to remove its snapshots: the run ends, and leaves the rest
// to the other.
func TestAServerThatHasLostItsLeaseEndsItsBackups(t *testing.T) {
	for name, runErr := range map[string]error{"in the middle of a run": errors.New("listing pods: context canceled"), "at its end": nil} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			h := newHarness(t, with(ready("b1")), func(s *setup) { s.options.Server = "velero-0_ab12" })
			lost, lose := context.WithCancelCause(t.Context())
			h.reconciler.deps.Lost = lost
			removed := &removals{}
			h.reconciler.deps.Snapshots = removed
			engine := engineFunc(func(ctx context.Context) (*backup.Result, error) {
				lose(errors.New("another server has taken the Lease"))
				<-ctx.Done()
				g.Expect(context.Cause(ctx)).To(MatchError("another server has taken the Lease"))
				return &backup.Result{}, runErr
			})
			h.reconciler.deps.Engine = engine
			after := h.reconcile(t, "b1")
			g.Expect(after.Status.Phase).To(Equal(velerov1.BackupPhaseInProgress), "its end is the other's to write")
			g.Expect(after.Annotations).To(HaveKey(freezerecord.AnnServer), "by which it is found")
			g.Expect(h.bucket.objects).To(BeEmpty())
			g.Expect(removed.of).To(BeEmpty())
			g.Expect(h.metric(t, "velero_backup_failure_total", "schedule", "")).To(BeNumerically("<=", 0))
			g.Expect(h.tracker.calls[len(h.tracker.calls)-1]).To(Equal("delete velero/b1"))
		})
	}
}

// removals notes whose snapshots are removed.
type removals struct {
	of   []types.UID
	left []snapshot.Leftover
	call func(ctx context.Context)
}

func (r *removals) RemoveOwned(ctx context.Context, backup types.UID) (int, []snapshot.Leftover, error) {
	r.of = append(r.of, backup)
	if r.call != nil {
		r.call(ctx)
	}
	return 36, r.left, nil
}

// The sweep has ended with the server. What is cut already would stay until the next start.
func TestABackupThatTheEndOfTheServerEndsHasItsSnapshotsRemoved(t *testing.T) {
	g := NewWithT(t)
	server, stop := context.WithCancel(t.Context())
	h := newHarness(t, with(ready("b1")))
	limit, end := context.WithCancel(t.Context())
	h.reconciler.deps.Limit = limit
	h.reconciler.deps.Engine = engineFunc(func(ctx context.Context) (*backup.Result, error) {
		stop()
		<-ctx.Done()
		return nil, context.Cause(ctx)
	})
	removed := &removals{left: []snapshot.Leftover{{Ref: snapshot.Ref{Name: "vs"}, Reason: "the driver hangs"}}}
	removed.call = func(ctx context.Context) {
		g.Expect(h.get(t, "b1").Status.Phase).To(Equal(velerov1.BackupPhaseFailed), "that comes first, so that it isn't lost")
		g.Expect(ctx.Err()).NotTo(HaveOccurred())
		end()
		<-ctx.Done() // as long as the process may take, and no longer
	}
	h.reconciler.deps.Snapshots = removed
	_, err := h.reconciler.Reconcile(server, requestFor("b1"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(removed.of).To(Equal([]types.UID{"uid-of-b1"}))
	g.Expect(h.log.LastEntry().Message).To(ContainSubstring("Of 36 snapshots of the backup 1 aren't removed yet"))
}

// While the server goes on the sweep is woken instead.
func TestABackupThatFailsByItselfIsLeftToTheSweep(t *testing.T) {
	g := NewWithT(t)
	h := newHarness(t, with(ready("b1")))
	removed := &removals{}
	h.reconciler.deps.Snapshots = removed
	h.engine.returns(nil, errors.New("no space"))
	g.Expect(h.reconcile(t, "b1").Status.Phase).To(Equal(velerov1.BackupPhaseFailed))
	g.Expect(removed.of).To(BeEmpty())
}
