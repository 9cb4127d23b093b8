// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"time"

	"github.com/sirupsen/logrus"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/features"
	"github.com/vmware-tanzu/velero/pkg/metrics"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func scheduleOf(b *velerov1.Backup) string { return b.Labels[velerov1.ScheduleNameLabel] }

func (r *BackupReconciler) recordRefusal(b *velerov1.Backup) {
	r.deps.Metrics.RegisterBackupValidationFailure(scheduleOf(b))
	r.deps.Metrics.RegisterBackupLastStatus(scheduleOf(b), metrics.BackupLastStatusFailure)
}

func (r *BackupReconciler) recordAttempt(b *velerov1.Backup) {
	r.deps.Metrics.RegisterBackupAttempt(scheduleOf(b))
}

// recordEnd counts a backup that ends here; the others are counted where they end (81, 85).
func (r *BackupReconciler) recordEnd(b *velerov1.Backup) {
	if b.Status.Phase != velerov1.BackupPhaseFailed {
		return
	}
	r.deps.Metrics.RegisterBackupFailed(scheduleOf(b))
	r.deps.Metrics.RegisterBackupLastStatus(scheduleOf(b), metrics.BackupLastStatusFailure)
	if b.Status.CompletionTimestamp != nil && b.Status.StartTimestamp != nil {
		took := b.Status.CompletionTimestamp.Sub(b.Status.StartTimestamp.Time)
		r.deps.Metrics.RegisterBackupDuration(scheduleOf(b), took.Truncate(time.Second).Seconds())
	}
}

// recordRun records what a run came to, whatever its end (84, 86 to 88).
func (r *BackupReconciler) recordRun(x *execution) {
	schedule, status := scheduleOf(x.backup), x.backup.Status
	if info, err := x.tarball.Stat(); err == nil {
		r.deps.Metrics.SetBackupTarballSizeBytesGauge(schedule, info.Size())
	}
	r.deps.Metrics.RegisterVolumeSnapshotAttempts(schedule, status.VolumeSnapshotsAttempted)
	r.deps.Metrics.RegisterVolumeSnapshotSuccesses(schedule, status.VolumeSnapshotsCompleted)
	r.deps.Metrics.RegisterVolumeSnapshotFailures(schedule, status.VolumeSnapshotsAttempted-status.VolumeSnapshotsCompleted)
	if features.IsEnabled(velerov1.CSIFeatureFlag) {
		r.deps.Metrics.RegisterCSISnapshotAttempts(schedule, x.backup.Name, status.CSIVolumeSnapshotsAttempted)
	}
	if status.Progress != nil {
		r.deps.Metrics.RegisterBackupItemsTotalGauge(schedule, status.Progress.TotalItems)
	}
	r.deps.Metrics.RegisterBackupItemsErrorsGauge(schedule, status.Errors)
	if status.Warnings > 0 {
		r.deps.Metrics.RegisterBackupWarning(schedule)
	}
}

// censusInterval is how often the gauges over all Backups are set (83).
const censusInterval = time.Minute

// Census sets the gauges that count all Backups, and drops the series of schedules that were deleted. It is a
// manager.Runnable; its fields are required and must not be changed after Start.
type Census struct {
	Client  client.Reader
	Metrics *metrics.ServerMetrics
	Log     logrus.FieldLogger
	Clock   clock.WithTicker

	// schedules that were there last time.
	schedules sets.Set[string]
}

// Start takes the census once a minute until ctx ends. The manager starts it when its caches are filled.
func (c *Census) Start(ctx context.Context) error {
	ticker := c.Clock.NewTicker(censusInterval)
	defer ticker.Stop()
	for {
		c.take(ctx)
		c.forgetDeletedSchedules(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
	}
}

func (c *Census) take(ctx context.Context) {
	backups := new(velerov1.BackupList)
	if err := c.Client.List(ctx, backups); err != nil {
		c.Log.WithError(err).Warn("Backups can't be counted for the metrics")
		return
	}
	c.Metrics.SetBackupTotal(int64(len(backups.Items)))
	last := map[string]time.Time{}
	for i := range backups.Items {
		b := &backups.Items[i]
		if b.Status.Phase != velerov1.BackupPhaseCompleted || b.Status.CompletionTimestamp == nil {
			continue
		}
		if at := b.Status.CompletionTimestamp.Time; at.After(last[scheduleOf(b)]) {
			last[scheduleOf(b)] = at
		}
	}
	for schedule, at := range last {
		c.Metrics.SetBackupLastSuccessfulTimestamp(schedule, at)
	}
}

// forgetDeletedSchedules drops the series of schedules that are gone, as Velero's schedule controller does with its own: an
// alert on the last status of a schedule would otherwise go on for ever.
func (c *Census) forgetDeletedSchedules(ctx context.Context) {
	schedules := new(velerov1.ScheduleList)
	if err := c.Client.List(ctx, schedules); err != nil {
		c.Log.WithError(err).Warn("Schedules can't be listed; the metrics of deleted ones stay")
		return
	}
	present := sets.New[string]()
	for i := range schedules.Items {
		present.Insert(schedules.Items[i].Name)
	}
	for name := range c.schedules.Difference(present) {
		c.Metrics.RemoveSchedule(name)
	}
	c.schedules = present
}

// record counts a backup that was finalized.
func (r *FinalizerReconciler) record(f *finalization) {
	schedule, status := scheduleOf(f.backup), f.backup.Status
	if status.Phase == velerov1.BackupPhaseCompleted {
		r.deps.Metrics.RegisterBackupSuccess(schedule)
		r.deps.Metrics.RegisterBackupLastStatus(schedule, metrics.BackupLastStatusSucc)
	} else {
		r.deps.Metrics.RegisterBackupPartialFailure(schedule)
		r.deps.Metrics.RegisterBackupLastStatus(schedule, metrics.BackupLastStatusFailure)
	}
	if f.contents != nil {
		if info, err := f.contents.Stat(); err == nil {
			r.deps.Metrics.SetBackupTarballSizeBytesGauge(schedule, info.Size())
		}
	}
	if status.StartTimestamp != nil {
		took := status.CompletionTimestamp.Sub(status.StartTimestamp.Time)
		r.deps.Metrics.RegisterBackupDuration(schedule, took.Truncate(time.Second).Seconds())
	}
	if features.IsEnabled(velerov1.CSIFeatureFlag) {
		r.deps.Metrics.RegisterCSISnapshotSuccesses(schedule, f.backup.Name, status.CSIVolumeSnapshotsCompleted)
		r.deps.Metrics.RegisterCSISnapshotFailures(schedule, f.backup.Name, status.CSIVolumeSnapshotsAttempted-status.CSIVolumeSnapshotsCompleted)
	}
}
