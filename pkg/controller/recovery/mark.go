// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package recovery

import (
	"context"
	"fmt"
	"strings"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	velerov2alpha1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v2alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// AnnRetried is the annotation of a backup that was put back into the queue; its value is when. It is done once.
const AnnRetried = "velero.io/retried-after-restart"

// mark gives a Backup that is in progress its end. One that isn't any more keeps the end it has; where that was written over the head of
// its server, what was done is added.
func (r *Recovery) mark(ctx context.Context, c *aCase, o *outcome) error {
	moved, err := r.cancelTransfers(ctx, c)
	if err != nil {
		return err
	}
	again := r.deps.Retry && o.isComplete() && !moved
	var event, message string
	err = retry.OnError(retry.DefaultBackoff, func(err error) bool { return ctx.Err() == nil && client.IgnoreNotFound(err) != nil }, func() error {
		current := new(velerov1.Backup)
		if err := r.deps.Client.Get(ctx, client.ObjectKeyFromObject(c.backup), current); err != nil {
			return err
		}
		event = ""
		if current.UID != c.uid || !(&aCase{backup: current}).unended() {
			return nil
		}
		before := current.DeepCopy()
		delete(current.Annotations, AnnServer)
		delete(current.Annotations, AnnRecoverer)
		switch {
		case current.Status.Phase == velerov1.BackupPhaseFailed:
			event, message = eventRecovered, o.reason()
			current.Status.FailureReason = strings.TrimPrefix(current.Status.FailureReason+"; "+message, "; ")
		case again && current.Annotations[AnnRetried] == "":
			event, message = eventRetried, r.requeue(current)
		default:
			event, message = eventRecovered, r.fail(current, o)
		}
		return r.deps.Client.Patch(ctx, current, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("writing the end of Backup %s: %w", client.ObjectKeyFromObject(c.backup), err)
	}
	if err == nil && event != "" {
		c.log.Warn(message)
		r.event(c, corev1.EventTypeWarning, event, message)
	}
	return nil
}

// fail makes it a failed one, and returns the reason.
func (r *Recovery) fail(b *velerov1.Backup, o *outcome) string {
	now := metav1.NewTime(r.deps.Clock.Now())
	b.Status.Phase = velerov1.BackupPhaseFailed
	b.Status.FailureReason = o.reason()
	b.Status.CompletionTimestamp = &now
	return b.Status.FailureReason
}

// requeue makes it a new one, to be run again from its beginning.
func (r *Recovery) requeue(b *velerov1.Backup) string {
	if b.Annotations == nil {
		b.Annotations = map[string]string{}
	}
	b.Annotations[AnnRetried] = r.deps.Clock.Now().UTC().Format("2006-01-02T15:04:05Z")
	b.Status = velerov1.BackupStatus{Phase: velerov1.BackupPhaseNew}
	return "the server stopped while the backup was in progress; it is run again from the beginning"
}

// cancelMessage is what is told to those who move data for a backup that is dead.
const cancelMessage = "the server stopped while the backup was in progress"

// cancelTransfers cancels what moves data for the backup, as Velero's own start does for those that it marks (5). It says whether there
// was any.
func (r *Recovery) cancelTransfers(ctx context.Context, c *aCase) (found bool, err error) {
	of := []client.ListOption{client.InNamespace(r.deps.Namespace), client.MatchingLabels{velerov1.BackupUIDLabel: string(c.uid)}}
	var uploads velerov2alpha1.DataUploadList
	if err := r.deps.Client.List(ctx, &uploads, of...); err != nil && !meta.IsNoMatchError(err) {
		return false, fmt.Errorf("listing the DataUploads of Backup %s: %w", c.name, err)
	}
	for i := range uploads.Items {
		upload := &uploads.Items[i]
		switch upload.Status.Phase {
		case "", velerov2alpha1.DataUploadPhaseNew, velerov2alpha1.DataUploadPhaseAccepted, velerov2alpha1.DataUploadPhasePrepared,
			velerov2alpha1.DataUploadPhaseInProgress:
			before := upload.DeepCopy()
			upload.Spec.Cancel, upload.Status.Message = true, cancelMessage
			if err := r.deps.Client.Patch(ctx, upload, client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
				return true, fmt.Errorf("cancelling DataUpload %s: %w", upload.Name, err)
			}
		}
	}
	var volumes velerov1.PodVolumeBackupList
	if err := r.deps.Client.List(ctx, &volumes, of...); err != nil && !meta.IsNoMatchError(err) {
		return false, fmt.Errorf("listing the PodVolumeBackups of Backup %s: %w", c.name, err)
	}
	for i := range volumes.Items {
		volume := &volumes.Items[i]
		switch volume.Status.Phase {
		case velerov1.PodVolumeBackupPhaseCompleted, velerov1.PodVolumeBackupPhaseFailed, velerov1.PodVolumeBackupPhaseCanceled,
			velerov1.PodVolumeBackupPhaseCanceling:
		default:
			before := volume.DeepCopy()
			volume.Spec.Cancel, volume.Status.Message = true, cancelMessage
			if err := r.deps.Client.Patch(ctx, volume, client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
				return true, fmt.Errorf("cancelling PodVolumeBackup %s: %w", volume.Name, err)
			}
		}
	}
	return len(uploads.Items)+len(volumes.Items) > 0, nil
}
