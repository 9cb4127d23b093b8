// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"io"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/sirupsen/logrus"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/itemoperation"
	"github.com/vmware-tanzu/velero/pkg/kuberesource"
	velero "github.com/vmware-tanzu/velero/pkg/plugin/velero"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/velero-clipper/clipper/pkg/backup"
)

// GetObject reads what was uploaded.
func (b *bucket) GetObject(_, key string) (io.ReadCloser, error) {
	content, found := b.objects[key]
	if !found {
		return nil, errBoom
	}
	return io.NopCloser(bytes.NewReader(content)), nil
}

// secondLook is a SecondLook that appends to the tarball.
type secondLook struct {
	bucket *bucket
	err    error
	// released are the backups that were, each with the phase that object storage had by then.
	released []string
}

func (l *secondLook) Look(_ context.Context, request backup.LookRequest, in io.Reader, out io.Writer) error {
	before, err := io.ReadAll(in)
	if err == nil {
		_, err = out.Write(append(before, " looked at "+request.Backup.Status.Phase...))
	}
	if l.err != nil {
		return l.err
	}
	return err
}

func (l *secondLook) Release(backup types.UID, _ logrus.FieldLogger) {
	stored := new(velerov1.Backup)
	_ = json.Unmarshal(l.bucket.objects["backups/b/velero-backup.json"], stored) // none is no phase
	l.released = append(l.released, string(backup)+" "+string(stored.Status.Phase))
}

// finalizing is a FinalizerReconciler among the fakes of a harness, and a backup in object storage.
type finalizing struct {
	*harness
	look       *secondLook
	reconciler *FinalizerReconciler
}

func newFinalizing(t *testing.T, phase velerov1.BackupPhase, operations []itemoperation.BackupOperation, calls interceptor.Funcs) *finalizing {
	t.Helper()
	started := metav1.NewTime(now.Add(-90 * time.Second))
	h := newHarness(t, intercepting(calls), with(ready("b", scheduled("nightly"), func(b *velerov1.Backup) {
		b.Spec.StorageLocation = "default"
		b.Status = velerov1.BackupStatus{Phase: phase, StartTimestamp: &started}
	})))
	f := &finalizing{harness: h, look: &secondLook{bucket: h.bucket}}
	h.bucket.objects["backups/b/b.tar.gz"] = []byte("tarball")
	if len(operations) > 0 {
		h.bucket.objects["backups/b/b-itemoperations.json.gz"] = gzipJSON(t, operations)
	}
	deps := h.reconciler.deps
	f.reconciler = NewFinalizerReconciler(FinalizerDeps{
		Client: h.client, Looks: f.look, Tracker: h.tracker, NewPluginManager: deps.NewPluginManager, Stores: deps.Stores,
		Metrics: deps.Metrics, Log: deps.Log, Clock: h.clock, ResourceTimeout: time.Millisecond,
	})
	return f
}

func gzipJSON(t *testing.T, value any) []byte {
	t.Helper()
	var out bytes.Buffer
	writer := gzip.NewWriter(&out)
	NewWithT(t).Expect(json.NewEncoder(writer).Encode(value)).To(Succeed())
	NewWithT(t).Expect(writer.Close()).To(Succeed())
	return out.Bytes()
}

func (f *finalizing) try(t *testing.T) error {
	t.Helper()
	result, err := f.reconciler.Reconcile(t.Context(), requestFor("b"))
	NewWithT(t).Expect(result).To(Equal(ctrl.Result{}))
	return err
}

// stored is the phase in object storage; empty when there is no metadata.
func (f *finalizing) stored(t *testing.T) velerov1.BackupPhase {
	t.Helper()
	content, found := f.bucket.objects["backups/b/velero-backup.json"]
	if !found {
		return ""
	}
	backup := new(velerov1.Backup)
	NewWithT(t).Expect(json.Unmarshal(content, backup)).To(Succeed())
	return backup.Status.Phase
}

func snapshotOperations(phases ...itemoperation.OperationPhase) (all []itemoperation.BackupOperation) {
	for _, phase := range phases {
		operation := itemoperation.BackupOperation{Status: itemoperation.OperationStatus{Phase: phase}}
		operation.Spec.ResourceIdentifier = velero.ResourceIdentifier{GroupResource: kuberesource.VolumeSnapshots}
		all = append(all, operation)
	}
	return all
}

func TestABackupIsFinalized(t *testing.T) { // 327 to 334
	done := itemoperation.OperationPhaseCompleted
	cases := map[string]struct {
		phase, end velerov1.BackupPhase
		operations []itemoperation.BackupOperation
		contents   string
		snapshots  int
		metric     string
	}{
		"without operations": {
			phase: velerov1.BackupPhaseFinalizing, end: velerov1.BackupPhaseCompleted, contents: "tarball", metric: "velero_backup_success_total",
		},
		"with operations": {
			phase: velerov1.BackupPhaseFinalizing, end: velerov1.BackupPhaseCompleted,
			operations: snapshotOperations(done, itemoperation.OperationPhaseFailed, done), snapshots: 2,
			contents: "tarball looked at Finalizing", metric: "velero_backup_success_total",
		},
		"with errors": {
			phase: velerov1.BackupPhaseFinalizingPartiallyFailed, end: velerov1.BackupPhasePartiallyFailed,
			operations: snapshotOperations(done), snapshots: 1,
			contents: "tarball looked at FinalizingPartiallyFailed", metric: "velero_backup_partial_failure_total",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			f := newFinalizing(t, tc.phase, tc.operations, interceptor.Funcs{})
			g.Expect(f.try(t)).To(Succeed())
			b := f.get(t, "b")
			g.Expect(b.Status.Phase).To(Equal(tc.end))
			g.Expect(b.Status.CompletionTimestamp.Time).To(BeTemporally("==", now))
			g.Expect(b.Status.CSIVolumeSnapshotsCompleted).To(Equal(tc.snapshots))
			g.Expect(f.stored(t)).To(Equal(tc.end))
			g.Expect(string(f.bucket.objects["backups/b/b.tar.gz"])).To(Equal(tc.contents))
			g.Expect(f.look.released).To(Equal([]string{"uid-of-b " + string(tc.end)}), "when all is in object storage")
			g.Expect(f.tracker.calls).To(Equal([]string{"delete velero/b"}))
			g.Expect(f.metric(t, tc.metric, "schedule", "nightly")).To(Equal(1.0))
			g.Expect(f.metric(t, "velero_backup_duration_seconds", "schedule", "nightly")).To(Equal(90.0))
			g.Expect(f.plugins.cleanedUp).To(Equal(1))

			g.Expect(f.try(t)).To(Succeed())
			g.Expect(f.look.released).To(HaveLen(1), "a backup that has ended is left alone")
		})
	}
}

func TestABackupThatCannotBeUploadedStaysFinalizing(t *testing.T) { // 334
	for name, broken := range map[string]string{"the metadata": "velero-backup.json", "the contents": ".tar.gz"} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			f := newFinalizing(t, velerov1.BackupPhaseFinalizing, snapshotOperations(itemoperation.OperationPhaseCompleted), interceptor.Funcs{})
			f.bucket.failing[broken] = errBoom
			g.Expect(f.try(t)).To(MatchError(And(ContainSubstring("boom"), ContainSubstring("stays Finalizing"))))
			g.Expect(f.get(t, "b").Status.Phase).To(Equal(velerov1.BackupPhaseFinalizing))
			g.Expect(f.get(t, "b").Status.CompletionTimestamp).To(BeNil())
			g.Expect(f.stored(t)).To(BeEmpty(), "nothing says that it is complete")
			g.Expect(f.look.released).To(BeEmpty())
			g.Expect(f.tracker.calls).To(BeEmpty(), "it still counts as running")
			g.Expect(f.metric(t, "velero_backup_success_total", "schedule", "nightly")).To(BeNumerically("<=", 0))

			delete(f.bucket.failing, broken)
			g.Expect(f.try(t)).To(Succeed())
			g.Expect(f.get(t, "b").Status.Phase).To(Equal(velerov1.BackupPhaseCompleted))
			g.Expect(f.stored(t)).To(Equal(velerov1.BackupPhaseCompleted))
			g.Expect(f.look.released).To(HaveLen(1))
			g.Expect(f.metric(t, "velero_backup_success_total", "schedule", "nightly")).To(Equal(1.0), "once")
		})
	}
}

func TestASecondLookThatFailsIsRepeated(t *testing.T) {
	g := NewWithT(t)
	f := newFinalizing(t, velerov1.BackupPhaseFinalizing, snapshotOperations(itemoperation.OperationPhaseCompleted), interceptor.Funcs{})
	f.look.err = errBoom
	g.Expect(f.try(t)).To(MatchError(errBoom))
	g.Expect(string(f.bucket.objects["backups/b/b.tar.gz"])).To(Equal("tarball"))
	g.Expect(f.get(t, "b").Status.Phase).To(Equal(velerov1.BackupPhaseFinalizing))
}

func TestAnEndThatCannotBeWritten(t *testing.T) {
	cases := map[string]struct {
		answer  error
		tracked []string
		again   bool
	}{
		"the API is away":     {answer: errBoom, tracked: []string{"delete velero/b", "post velero/b"}, again: true},
		"the Backup has gone": {answer: apierrors.NewNotFound(velerov1.Resource("backups"), "b"), tracked: []string{"delete velero/b"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			f := newFinalizing(t, velerov1.BackupPhaseFinalizing, nil, interceptor.Funcs{
				Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
					return tc.answer
				},
			})
			err := f.try(t)
			g.Expect(err != nil).To(Equal(tc.again), "%v", err)
			g.Expect(f.tracker.calls).To(Equal(tc.tracked))
			g.Expect(f.metric(t, "velero_backup_success_total", "schedule", "nightly")).To(BeNumerically("<=", 0))
		})
	}
}

func TestBackupsThatAreNotBeingFinalized(t *testing.T) {
	for _, phase := range []velerov1.BackupPhase{
		velerov1.BackupPhaseNew, velerov1.BackupPhaseInProgress, velerov1.BackupPhaseWaitingForPluginOperations, velerov1.BackupPhaseFailed,
	} {
		t.Run(string(phase), func(t *testing.T) {
			g := NewWithT(t)
			f := newFinalizing(t, phase, nil, interceptor.Funcs{})
			before := slices.Clone(f.bucket.asked)
			g.Expect(f.try(t)).To(Succeed())
			g.Expect(f.get(t, "b").Status.Phase).To(Equal(phase))
			g.Expect(f.bucket.asked).To(Equal(before))
		})
	}
}
