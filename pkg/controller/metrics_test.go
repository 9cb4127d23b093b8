// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"io"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/features"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"github.com/velero-clipper/clipper/pkg/backup"
)

func TestMetricsOfABackup(t *testing.T) { // 79 to 88
	const (
		attempts    = "velero_backup_attempt_total"
		failures    = "velero_backup_failure_total"
		refusals    = "velero_backup_validation_failure_total"
		last        = "velero_backup_last_status"
		duration    = "velero_backup_duration_seconds"
		size        = "velero_backup_tarball_size_bytes"
		items       = "velero_backup_items_total"
		errorCount  = "velero_backup_items_errors"
		warnings    = "velero_backup_warning_total"
		nativeTried = "velero_volume_snapshot_attempt_total"
	)
	all := []string{attempts, failures, refusals, last, duration, size, items, errorCount, warnings, nativeTried}

	for _, c := range []struct {
		name   string
		before func(*harness)
		change func(*velerov1.Backup)
		want   map[string]float64 // what isn't there is absent
	}{
		{
			name: "that goes on",
			before: func(h *harness) {
				h.engine.run = func(request backup.Request, out io.Writer) (*backup.Result, error) {
					request.Log.Error("wrong")
					request.Log.Error("wrong again")
					request.Log.Warn("odd")
					request.Log.Warn("odd again")
					_, err := io.WriteString(out, "tarball")
					return &backup.Result{Progress: velerov1.BackupProgress{TotalItems: 12}}, err
				}
			},
			want: map[string]float64{attempts: 1, size: 7, items: 12, errorCount: 2, warnings: 1, nativeTried: 0},
		},
		{
			name: "that fails",
			before: func(h *harness) {
				h.engine.run = func(backup.Request, io.Writer) (*backup.Result, error) {
					h.clock.SetTime(now.Add(90*time.Second + 700*time.Millisecond))
					return &backup.Result{}, errBoom
				}
			},
			want: map[string]float64{attempts: 1, failures: 1, last: 0, duration: 90, size: 0, errorCount: 1, nativeTried: 0},
		},
		{
			name:   "whose upload fails",
			before: func(h *harness) { h.bucket.failing["velero-backup.json"] = errBoom },
			want:   map[string]float64{attempts: 1, failures: 1, last: 0, duration: 0, size: 0, items: 0, errorCount: 0, nativeTried: 0},
		},
		{
			name:   "that exists already",
			before: func(h *harness) { h.bucket.objects["backups/b/velero-backup.json"] = nil },
			want:   map[string]float64{attempts: 1, failures: 1, last: 0, duration: 0},
		},
		{
			name:   "that is refused",
			change: func(b *velerov1.Backup) { b.Annotations = map[string]string{backup.ParallelismAnnotation: "none"} },
			want:   map[string]float64{refusals: 1, last: 0},
		},
	} {
		for _, schedule := range []string{"", "nightly"} {
			t.Run(c.name+" "+schedule, func(t *testing.T) {
				g := NewWithT(t)
				b := ready("b")
				if schedule != "" {
					scheduled(schedule)(b)
				}
				if c.change != nil {
					c.change(b)
				}
				h := newHarness(t, with(b))
				if c.before != nil {
					c.before(h)
				}
				h.reconcile(t, "b")
				for _, name := range all {
					want, there := c.want[name]
					if !there {
						want = absent
					}
					g.Expect(h.metric(t, name, "schedule", schedule)).To(Equal(want), name)
				}
			})
		}
	}

	for _, enabled := range []bool{false, true} {
		t.Run("CSI snapshots", func(t *testing.T) { // 87
			before := features.All()
			t.Cleanup(func() { features.NewFeatureFlagSet(before...) })
			features.NewFeatureFlagSet()
			want := absent
			if enabled {
				features.Enable(velerov1.CSIFeatureFlag)
				want = 3
			}
			h := newHarness(t, with(ready("b")))
			h.engine.returns(&backup.Result{SnapshotsAttempted: 3}, nil)
			h.reconcile(t, "b")
			NewWithT(t).Expect(h.metric(t, "velero_csi_snapshot_attempt_total", "schedule", "", "backupName", "b")).To(Equal(want))
		})
	}
}

func completed(name, schedule string, at time.Time) *velerov1.Backup {
	return ready(name, scheduled(schedule), func(b *velerov1.Backup) {
		b.Status.Phase = velerov1.BackupPhaseCompleted
		if !at.IsZero() {
			b.Status.CompletionTimestamp = ptr.To(metav1.NewTime(at))
		}
	})
}

func TestCensus(t *testing.T) { // 83
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		failed := completed("d", "nightly", now.Add(time.Hour))
		failed.Status.Phase = velerov1.BackupPhaseFailed
		nightly := &velerov1.Schedule{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "nightly"}}
		h := newHarness(t, with(
			completed("a", "nightly", now), completed("b", "nightly", now.Add(time.Minute)), completed("c", "", now.Add(-time.Minute)), failed, completed("e", "weekly", time.Time{}), nightly,
		))
		clock := testclock.NewFakeClock(now)
		census := &Census{Client: h.client, Metrics: h.reconciler.deps.Metrics, Log: h.reconciler.deps.Log, Clock: clock}
		ctx, stop := context.WithCancel(t.Context())
		var group errgroup.Group
		group.Go(func() error { return census.Start(ctx) })
		synctest.Wait()

		const total, last, status = "velero_backup_total", "velero_backup_last_successful_timestamp", "velero_backup_last_status"
		g.Expect(h.metric(t, total)).To(Equal(5.0))
		g.Expect(h.metric(t, last, "schedule", "nightly")).To(Equal(float64(now.Add(time.Minute).Unix())))
		g.Expect(h.metric(t, last, "schedule", "")).To(Equal(float64(now.Add(-time.Minute).Unix())))
		g.Expect(h.metric(t, last, "schedule", "weekly")).To(Equal(absent), "it has no completion time")

		// A minute later a backup and a schedule are gone.
		g.Expect(h.client.Delete(t.Context(), completed("b", "", now))).To(Succeed())
		g.Expect(h.client.Delete(t.Context(), completed("a", "", now))).To(Succeed())
		g.Expect(h.client.Delete(t.Context(), nightly)).To(Succeed())
		h.reconciler.deps.Metrics.RegisterBackupLastStatus("nightly", 0)
		h.reconciler.deps.Metrics.RegisterBackupLastStatus("weekly", 0)
		clock.Step(censusInterval - 1)
		synctest.Wait()
		g.Expect(h.metric(t, total)).To(Equal(5.0), "not before its time")
		clock.Step(1)
		synctest.Wait()
		g.Expect(h.metric(t, total)).To(Equal(3.0))
		g.Expect(h.metric(t, status, "schedule", "nightly")).To(Equal(absent), "a deleted schedule has no series")
		g.Expect(h.metric(t, last, "schedule", "nightly")).To(Equal(absent))
		g.Expect(h.metric(t, status, "schedule", "weekly")).To(Equal(0.0), "nothing was deleted here")

		stop()
		g.Expect(group.Wait()).To(Succeed())
	})
}

func TestCensusGoesOnWhenBackupsCantBeListed(t *testing.T) {
	for name, calls := range map[string]func(*setup){
		"Backups can't be counted for the metrics":                    intercepting(failingList(new(velerov1.BackupList))),
		"Schedules can't be listed; the metrics of deleted ones stay": intercepting(failingList(new(velerov1.ScheduleList))),
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			h := newHarness(t, calls)
			census := &Census{Client: h.client, Metrics: h.reconciler.deps.Metrics, Log: h.reconciler.deps.Log, Clock: testclock.NewFakeClock(now)}
			ctx, stop := context.WithCancel(t.Context())
			stop()
			g.Expect(census.Start(ctx)).To(Succeed())
			g.Expect(h.log.LastEntry().Message).To(Equal(name))
		})
	}
}
