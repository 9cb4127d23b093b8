// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"

	"github.com/sirupsen/logrus"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	veleroclient "github.com/vmware-tanzu/velero/pkg/client"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/velero-clipper/clipper/pkg/controller/recovery"
	"github.com/velero-clipper/clipper/pkg/hook/freezerecord"
)

// errNotOurs: the Backup was given another end, or another run, while this process ran it.
var errNotOurs = errors.New("another server took this one for dead")

// finish writes how a run ended, from what the Backup was when it was begun. A Backup that another server has given its end keeps
// that: its snapshots are removed, and a backup that has none must not look like a complete one. It returns false when the end isn't
// that of this run.
func (r *BackupReconciler) finish(ctx context.Context, started, ended *velerov1.Backup, log logrus.FieldLogger) bool {
	if cause := context.Cause(r.deps.Lost); cause != nil {
		log.WithError(cause).Error("The end of the backup isn't written: that is left to who recovers it")
		r.deps.Tracker.Delete(started.Namespace, started.Name)
		return false
	}
	ctx = context.WithoutCancel(ctx) // a server that is told to stop says how its backups ended
	tried := false
	err := veleroclient.RetryOnRetriableMaxBackOff(r.opts.ResourceTimeout, func() error {
		live := new(velerov1.Backup)
		if err := r.deps.Uncached.Get(ctx, client.ObjectKeyFromObject(started), live); err != nil {
			return err
		}
		if tried && isWritten(started, ended, live) {
			return nil // by a try whose answer was lost
		}
		if !r.isOurs(started, live) {
			return r.letGo(ctx, live)
		}
		tried = true
		from := started.DeepCopy()
		from.ResourceVersion = live.ResourceVersion
		return r.deps.Client.Patch(ctx, ended.DeepCopy(), client.MergeFromWithOptions(from, client.MergeFromWithOptimisticLock{}))
	}, worthRepeating)
	if err == nil {
		return true
	}
	log.WithError(err).Errorf("The Backup's status can't be changed from %s to %s", started.Status.Phase, ended.Status.Phase)
	if !worthRepeating(err) { // nobody takes it to its end, and a later one of its name must not wait for that
		r.deps.Tracker.Delete(started.Namespace, started.Name)
	}
	return !errors.Is(err, errNotOurs)
}

// removeSnapshots removes those of a backup that the end of the server has ended. While the server runs the sweep does that; this one has
// ended by now. It may take as long as the process has; what is left then the next start removes.
func (r *BackupReconciler) removeSnapshots(server context.Context, b *velerov1.Backup, log logrus.FieldLogger) {
	if r.deps.Snapshots == nil || server.Err() == nil || b.Status.Phase != velerov1.BackupPhaseFailed {
		return
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(server))
	defer cancel()
	defer context.AfterFunc(r.deps.Limit, cancel)()
	found, left, err := r.deps.Snapshots.RemoveOwned(ctx, b.UID)
	switch {
	case err != nil:
		log.WithError(err).Warn("The snapshots of the backup can't all be removed; the next start does that")
	case len(left) > 0:
		log.Warnf("Of %d snapshots of the backup %d aren't removed yet; the next start does that", found, len(left))
	case found > 0:
		log.Infof("%d snapshots of the backup are removed", found)
	}
}

// worthRepeating is false when the Backup was deleted meanwhile, or isn't ours any more: repeating would only keep the next one
// waiting (76).
func worthRepeating(err error) bool { return !apierrors.IsNotFound(err) && !errors.Is(err, errNotOurs) }

// isOurs says whether a Backup is still the run that this process began. Without the annotation, which somebody may have removed, it
// is: a Backup in progress must get its end.
func (r *BackupReconciler) isOurs(started, live *velerov1.Backup) bool {
	server := live.Annotations[freezerecord.AnnServer]
	return live.UID == started.UID && (live.Status.Phase == started.Status.Phase || isPutBack(live)) && (server == "" || server == r.opts.Server) &&
		live.Annotations[recovery.AnnRecoverer] == ""
}

// isPutBack says whether a Backup that a server runs reads as one that waits to be run. The queue of another server does that, when it
// hasn't heard yet of how far the Backup is: its patch asks for no resource version.
// One that was never begun has no start, whatever annotations it was created with.
func isPutBack(b *velerov1.Backup) bool {
	return b.Status.Phase == velerov1.BackupPhaseReadyToStart && b.Annotations[freezerecord.AnnServer] != "" && b.Status.StartTimestamp != nil
}

// isWritten says whether a Backup has the end of this run already, and may have gone on from there. A second run has another start.
func isWritten(started, ended, live *velerov1.Backup) bool {
	phase := live.Status.Phase
	return live.UID == started.UID && live.Status.StartTimestamp.Equal(started.Status.StartTimestamp) && !isPutBack(live) &&
		phase != started.Status.Phase && (phase == ended.Status.Phase || phase != velerov1.BackupPhaseFailed)
}

// letGo takes our name off a Backup that isn't ours any more, where the other left it: we do nothing more for it. On one that is being
// recovered the name stays until that is done.
func (r *BackupReconciler) letGo(ctx context.Context, live *velerov1.Backup) error {
	notOurs := fmt.Errorf("it is %s by now: %w", live.Status.Phase, errNotOurs)
	if r.opts.Server == "" || live.Annotations[freezerecord.AnnServer] != r.opts.Server || live.Annotations[recovery.AnnRecoverer] != "" {
		return notOurs
	}
	before := live.DeepCopy()
	delete(live.Annotations, freezerecord.AnnServer)
	if err := r.deps.Client.Patch(ctx, live, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("removing annotation %s: %w", freezerecord.AnnServer, err)
	}
	return notOurs
}
