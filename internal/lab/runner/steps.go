// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	velerobackup "github.com/vmware-tanzu/velero/pkg/backup"
	"github.com/vmware-tanzu/velero/pkg/label"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/velero-clipper/clipper/internal/lab/cluster"
	"github.com/velero-clipper/clipper/internal/lab/result"
	"github.com/velero-clipper/clipper/internal/lab/scenario"
)

// doSteps does what comes after the backups.
func (r *run) doSteps(ctx context.Context, background *errgroup.Group) error {
	for _, step := range r.scenario.Then {
		if err := r.doStep(ctx, background, step); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) doStep(ctx context.Context, background *errgroup.Group, step scenario.Step) error {
	if step.In == scenario.InSecond && r.first == nil {
		second, err := r.secondCluster(ctx, background)
		if err != nil {
			return err
		}
		return second.doStep(ctx, background, step)
	}
	switch {
	case step.Await != nil:
		r.say("waiting for %s", step.Await)
		return r.awaitCondition(ctx, *step.Await, "a step")
	case step.Server != nil:
		r.say("starting the server anew with engine %s", step.Server.Engine)
		r.note(result.KindScenario, "server", "restart with engine %s", step.Server.Engine)
		r.server.respecify(*step.Server)
		return r.act(ctx, background, scenario.Action{Restart: scenario.TargetServer})
	case step.Backup != nil:
		r.say("taking backup %s", step.Backup.Name)
		return r.oneMoreBackup(ctx, *step.Backup)
	case step.Restore != nil:
		r.say("restoring backup %s", step.Restore.Backup)
		return r.restore(ctx, *step.Restore)
	case step.DeleteBackup != "":
		r.say("deleting backup %s", step.DeleteBackup)
		return r.deleteBackup(ctx, step.DeleteBackup)
	case step.Run != nil:
		return r.runVelero(ctx, *step.Run)
	case step.Do != nil:
		return r.act(ctx, background, *step.Do)
	}
	return errors.New("the step is empty")
}

func (r *run) oneMoreBackup(ctx context.Context, b scenario.Backup) error {
	if err := r.createBackup(ctx, b); err != nil {
		return err
	}
	err := r.awaitVelero(ctx, func(rec *recording) bool { return rec.terminal(b.Name) })
	r.readArtifacts(b.Name)
	return unfinished(err, "backup %s", b.Name)
}

// awaitVelero waits for something that only a running server can do.
func (r *run) awaitVelero(ctx context.Context, condition func(*recording) bool) error {
	gone := false
	err := r.board.wait(ctx, func(rec *recording) bool {
		done := condition(rec)
		gone = !done && !rec.running
		return done || gone
	})
	if err == nil && gone {
		return &unfinishedError{waitingFor: "the Velero server", err: errServerGone}
	}
	return err
}

func (r *run) restore(ctx context.Context, spec scenario.Restore) error {
	restore := &velerov1.Restore{
		ObjectMeta: metav1.ObjectMeta{Namespace: cluster.VeleroNamespace, Name: spec.Name},
		Spec:       *spec.Spec.RestoreSpec.DeepCopy(),
	}
	now := time.Now()
	r.board.update(func(rec *recording) { rec.restores[spec.Name] = &restoreRecord{created: now} })
	if err := r.lab.cluster.Client().Create(ctx, restore); err != nil {
		return fmt.Errorf("creating restore %s: %w", spec.Name, err)
	}
	err := r.awaitRestore(ctx, spec.Name)
	out := r.restoreResult(spec.Name)
	r.restores[spec.Name] = out
	if err != nil {
		return unfinished(err, "restore %s (in phase %s)", spec.Name, out.Phase)
	}
	out.ResultErrors = nonNil(r.restoreErrors(spec.Name))
	var claims corev1.PersistentVolumeClaimList
	if err := r.lab.cluster.Client().List(ctx, &claims, client.MatchingLabels{velerov1.RestoreNameLabel: label.GetValidName(spec.Name)}); err != nil {
		return fmt.Errorf("listing the claims of restore %s: %w", spec.Name, err)
	}
	for _, claim := range claims.Items {
		source := ""
		if claim.Spec.DataSource != nil && claim.Spec.DataSource.Kind == "VolumeSnapshot" {
			source = claim.Spec.DataSource.Name
		}
		out.PVCs[claim.Namespace+"/"+claim.Name] = source
	}
	return nil
}

// awaitRestore returns when the restore has ended, and binds its claims meanwhile.
func (r *run) awaitRestore(ctx context.Context, name string) error {
	group, groupCtx := errgroup.WithContext(ctx)
	binding, stop := context.WithCancel(groupCtx)
	group.Go(func() error {
		return r.bindRestored(binding, client.MatchingLabels{velerov1.RestoreNameLabel: label.GetValidName(name)})
	})
	group.Go(func() error {
		defer stop()
		return r.awaitVelero(groupCtx, func(rec *recording) bool { return restoreEnded(rec.restores[name].phases.last()) })
	})
	return group.Wait()
}

func restoreEnded(phase string) bool {
	switch velerov1.RestorePhase(phase) {
	case velerov1.RestorePhaseCompleted, velerov1.RestorePhasePartiallyFailed, velerov1.RestorePhaseFailed,
		velerov1.RestorePhaseFailedValidation:
		return true
	}
	return false
}

// deleteBackup deletes a backup the way Velero's command line does: by a request to the server.
func (r *run) deleteBackup(ctx context.Context, name string) error {
	var uid types.UID
	now := time.Now()
	r.board.update(func(rec *recording) {
		rec.deletes[name] = newDelete(rec.deletes[name], now)
		if b := rec.backups[name]; b != nil {
			uid = b.uid
		}
	})
	out := &result.Deletion{Errors: []string{}, Earlier: []result.Deletion{}, SnapshotsBefore: r.physicalSnapshots()}
	if before := r.deletions[name]; before != nil {
		out.Earlier = slices.Concat(before.Earlier, []result.Deletion{*before})
	}
	r.deletions[name] = out
	request := velerobackup.NewDeleteBackupRequest(name, string(uid))
	request.Namespace = cluster.VeleroNamespace
	if err := r.lab.cluster.Client().Create(ctx, request); err != nil {
		return fmt.Errorf("asking for the deletion of backup %s: %w", name, err)
	}
	err := r.awaitVelero(ctx, func(rec *recording) bool {
		b, d := rec.backups[name], rec.deletes[name]
		out.Gone, out.Errors = b != nil && !b.gone.IsZero(), nonNil(d.errors)
		return out.Gone || d.done && len(d.errors) > 0
	})
	if err != nil {
		return unfinished(err, "the deletion of backup %s", name)
	}
	out.Seconds = time.Since(now).Seconds()
	// The server only marks the physical snapshots for deletion; the drivers do it soon after.
	if err := r.rest(ctx); err != nil {
		return unfinished(err, "the snapshots of backup %s to be gone", name)
	}
	out.SnapshotsAfter = r.physicalSnapshots()
	return nil
}

func (r *run) physicalSnapshots() int {
	count := 0
	for _, d := range r.lab.drivers {
		count += len(d.Snapshots())
	}
	return count
}
