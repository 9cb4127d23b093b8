// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/itemoperation"
	"github.com/vmware-tanzu/velero/pkg/kuberesource"
	velero "github.com/vmware-tanzu/velero/pkg/plugin/velero"
	biav2 "github.com/vmware-tanzu/velero/pkg/plugin/velero/backupitemaction/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/velero-clipper/clipper/pkg/backup"
)

// action is a plugin that started an operation.
type action struct {
	biav2.BackupItemAction
	progress  func(operation string) (velero.OperationProgress, error)
	cancelErr error
	cancelled []string
}

func (a *action) Progress(operation string, _ *velerov1.Backup) (velero.OperationProgress, error) {
	return a.progress(operation)
}

func (a *action) Cancel(operation string, _ *velerov1.Backup) error {
	a.cancelled = append(a.cancelled, operation)
	return a.cancelErr
}

// operationsOf returns one new operation for each of the actions, created when the tests' time begins.
func operationsOf(actions ...string) []*itemoperation.BackupOperation {
	var operations []*itemoperation.BackupOperation
	for _, name := range actions {
		created := metav1.NewTime(now)
		operations = append(operations, &itemoperation.BackupOperation{
			Spec: itemoperation.BackupOperationSpec{
				BackupName: "b", BackupItemAction: name, OperationID: "operation-of-" + name,
				ResourceIdentifier: velero.ResourceIdentifier{GroupResource: kuberesource.VolumeSnapshots, Namespace: "app", Name: "data"},
			},
			Status: itemoperation.OperationStatus{Phase: itemoperation.OperationPhaseNew, Created: &created},
		})
	}
	return operations
}

func TestOperationsAreAskedOnce(t *testing.T) { // 65, 66, 321, 322
	const limit = 4 * time.Hour
	started, updated := now.Add(time.Second), now.Add(2*time.Second)
	answer := func(progress velero.OperationProgress, err error) *action {
		return &action{progress: func(string) (velero.OperationProgress, error) { return progress, err }}
	}
	for _, c := range []struct {
		name      string
		action    *action
		after     time.Duration
		want      itemoperation.OperationPhase
		err       string
		cancelled bool
		warnings  int
	}{
		{name: "not started", action: answer(velero.OperationProgress{}, nil), want: itemoperation.OperationPhaseNew},
		{name: "started", action: answer(velero.OperationProgress{Started: started}, nil), want: itemoperation.OperationPhaseInProgress},
		{name: "completed", action: answer(velero.OperationProgress{Completed: true, Started: started, Updated: updated, NCompleted: 5, NTotal: 9, OperationUnits: "Bytes", Description: "copied"}, nil), want: itemoperation.OperationPhaseCompleted},
		{name: "completed with an error", action: answer(velero.OperationProgress{Completed: true, Err: "disk full"}, nil), want: itemoperation.OperationPhaseFailed, err: "disk full"},
		{name: "no progress", action: answer(velero.OperationProgress{}, errBoom), want: itemoperation.OperationPhaseFailed, err: "asking for the progress: boom"},
		{name: "plugin missing", want: itemoperation.OperationPhaseFailed, err: "starting the plugin: there is no plugin a"},
		{name: "at the time limit", action: answer(velero.OperationProgress{Started: started}, nil), after: limit, want: itemoperation.OperationPhaseInProgress},
		{name: "after the time limit", action: answer(velero.OperationProgress{Started: started}, nil), after: limit + 1, want: itemoperation.OperationPhaseFailed, err: "it was not completed within spec.itemOperationTimeout (4h0m0s)", cancelled: true},
		{
			name: "after the time limit, and can't be cancelled", after: limit + 1, cancelled: true, warnings: 1,
			action: &action{progress: answer(velero.OperationProgress{}, nil).progress, cancelErr: errBoom},
			want:   itemoperation.OperationPhaseFailed, err: "it was not completed within spec.itemOperationTimeout (4h0m0s)",
		},
		{name: "completed after the time limit", action: answer(velero.OperationProgress{Completed: true}, nil), after: limit + 1, want: itemoperation.OperationPhaseCompleted},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := NewWithT(t)
			h := newHarness(t, with(ready("b")))
			if c.action != nil {
				h.plugins.actions["a"] = c.action
			}
			h.clock.SetTime(now.Add(c.after))
			h.engine.returns(&backup.Result{Operations: operationsOf("a")}, nil)
			ended := h.reconcile(t, "b")

			var uploaded []*itemoperation.BackupOperation
			h.bucket.decode(t, "b", "b-itemoperations.json.gz", &uploaded)
			g.Expect(uploaded).To(HaveLen(1))
			status := uploaded[0].Status
			g.Expect(status.Phase).To(Equal(c.want))
			g.Expect(status.Error).To(Equal(c.err))
			g.Expect(ended.Status.BackupItemOperationsAttempted).To(Equal(1))
			g.Expect(ended.Status.Warnings).To(Equal(c.warnings))
			if c.cancelled {
				g.Expect(c.action.cancelled).To(Equal([]string{"operation-of-a"}))
			}
			log := string(h.bucket.read(t, "b", "b-logs.gz"))
			switch c.want {
			case itemoperation.OperationPhaseFailed:
				g.Expect(ended.Status.BackupItemOperationsFailed).To(Equal(1))
				g.Expect(ended.Status.Errors).To(Equal(1))
				g.Expect(ended.Status.Phase).To(Equal(velerov1.BackupPhaseFinalizingPartiallyFailed))
				g.Expect(log).To(ContainSubstring("volumesnapshots.snapshot.storage.k8s.io app/data failed"))
			case itemoperation.OperationPhaseCompleted:
				g.Expect(ended.Status.BackupItemOperationsCompleted).To(Equal(1))
				g.Expect(ended.Status.Phase).To(Equal(velerov1.BackupPhaseFinalizing))
			default:
				g.Expect(ended.Status.BackupItemOperationsCompleted + ended.Status.BackupItemOperationsFailed).To(BeZero())
				g.Expect(ended.Status.Phase).To(Equal(velerov1.BackupPhaseWaitingForPluginOperations))
				g.Expect(strings.Contains(log, "level=error")).To(BeFalse())
			}
		})
	}
}

func TestProgressIsNotedInTheOperation(t *testing.T) {
	g := NewWithT(t)
	h := newHarness(t, with(ready("b")))
	started, updated := now.Add(time.Second), now.Add(2*time.Second)
	h.plugins.actions["a"] = &action{progress: func(string) (velero.OperationProgress, error) {
		return velero.OperationProgress{Started: started, Updated: updated, NCompleted: 5, NTotal: 9, OperationUnits: "Bytes", Description: "copying"}, nil
	}}
	operations := operationsOf("a")
	h.engine.returns(&backup.Result{Operations: operations}, nil)
	h.reconcile(t, "b")

	status := operations[0].Status
	g.Expect([]int64{status.NCompleted, status.NTotal}).To(Equal([]int64{5, 9}))
	g.Expect([]string{status.OperationUnits, status.Description}).To(Equal([]string{"Bytes", "copying"}))
	g.Expect(status.Created.Time).To(Equal(now))
	g.Expect(status.Started.Time).To(Equal(started))
	g.Expect(status.Updated.Time).To(Equal(updated))
}

func TestOperationsAreCounted(t *testing.T) { // 66
	g := NewWithT(t)
	h := newHarness(t, with(ready("b")))
	for name, progress := range map[string]velero.OperationProgress{
		"done": {Completed: true}, "failed": {Completed: true, Err: "disk full"}, "going on": {Started: now},
	} {
		h.plugins.actions[name] = &action{progress: func(string) (velero.OperationProgress, error) { return progress, nil }}
	}
	h.engine.returns(&backup.Result{Operations: operationsOf("done", "failed", "going on", "done", "missing")}, nil)
	status := h.reconcile(t, "b").Status
	g.Expect(status.BackupItemOperationsAttempted).To(Equal(5))
	g.Expect(status.BackupItemOperationsCompleted).To(Equal(2))
	g.Expect(status.BackupItemOperationsFailed).To(Equal(2))
	g.Expect(status.Errors).To(Equal(2))
	g.Expect(status.Phase).To(Equal(velerov1.BackupPhaseWaitingForPluginOperationsPartiallyFailed))
}
