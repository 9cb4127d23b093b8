// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"errors"
	"fmt"
	"time"

	"github.com/vmware-tanzu/velero/pkg/itemoperation"
	velero "github.com/vmware-tanzu/velero/pkg/plugin/velero"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// operationState sums up a backup's operations.
type operationState struct {
	completed, failed int
	// running is true when at least one goes on.
	running bool
}

// updateOperations asks each operation once how far it is (65). An operation that has failed is an error line; the others
// are left to Velero's operations controller.
func (r *BackupReconciler) updateOperations(x *execution, operations []*itemoperation.BackupOperation) operationState {
	var state operationState
	for _, operation := range operations {
		if err := r.updateOperation(x, operation); err != nil {
			operation.Status.Phase = itemoperation.OperationPhaseFailed
			operation.Status.Error = err.Error()
			if reported := new(reportedError); errors.As(err, reported) {
				operation.Status.Error = string(*reported) // the plugin's own words and no others, as in stock (66)
			}
			x.log.WithError(err).Errorf("The operation that %s started for %s %s/%s failed", operation.Spec.BackupItemAction,
				operation.Spec.ResourceIdentifier.GroupResource, operation.Spec.ResourceIdentifier.Namespace, operation.Spec.ResourceIdentifier.Name)
		}
		switch operation.Status.Phase {
		case itemoperation.OperationPhaseCompleted:
			state.completed++
		case itemoperation.OperationPhaseFailed:
			state.failed++
		default:
			state.running = true
		}
	}
	return state
}

// reportedError is what a plugin says of an operation of its own that has failed.
type reportedError string

func (e reportedError) Error() string { return string(e) }

// updateOperation asks a plugin about one of its operations. An error is the operation's end (321, 322).
func (r *BackupReconciler) updateOperation(x *execution, operation *itemoperation.BackupOperation) error {
	action, err := x.plugins.GetBackupItemActionV2(operation.Spec.BackupItemAction)
	if err != nil {
		return fmt.Errorf("starting the plugin: %w", err)
	}
	progress, err := action.Progress(operation.Spec.OperationID, x.backup)
	if err != nil {
		return fmt.Errorf("asking for the progress: %w", err)
	}
	note(&operation.Status, progress)
	if progress.Completed {
		if progress.Err != "" {
			return fmt.Errorf("the plugin reports: %w", reportedError(progress.Err))
		}
		operation.Status.Phase = itemoperation.OperationPhaseCompleted
		return nil
	}
	if r.deps.Clock.Now().After(operation.Status.Created.Add(x.backup.Spec.ItemOperationTimeout.Duration)) {
		if err := action.Cancel(operation.Spec.OperationID, x.backup); err != nil {
			x.log.WithError(err).Warn("An operation that took too long can't be cancelled")
		}
		return fmt.Errorf("it was not completed within spec.itemOperationTimeout (%s)", x.backup.Spec.ItemOperationTimeout.Duration)
	}
	if operation.Status.Started != nil {
		operation.Status.Phase = itemoperation.OperationPhaseInProgress
	}
	return nil
}

// note copies what a plugin tells into the operation's record.
func note(status *itemoperation.OperationStatus, progress velero.OperationProgress) {
	status.NCompleted, status.NTotal = progress.NCompleted, progress.NTotal
	status.OperationUnits, status.Description = progress.OperationUnits, progress.Description
	status.Started = timeOrNil(progress.Started)
	status.Updated = timeOrNil(progress.Updated)
}

func timeOrNil(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	at := metav1.NewTime(t)
	return &at
}
