// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"
	"time"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	velerocontroller "github.com/vmware-tanzu/velero/pkg/controller"
	"github.com/vmware-tanzu/velero/pkg/features"
	"github.com/vmware-tanzu/velero/pkg/label"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	crclient "sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/velero-clipper/clipper/pkg/controller"
	"github.com/velero-clipper/clipper/pkg/controller/instance"
	"github.com/velero-clipper/clipper/pkg/controller/recovery"
	"github.com/velero-clipper/clipper/pkg/snapshot"
)

// shortestSweep is the shortest interval between two sweeps: each looks through everything that the cache has.
const shortestSweep = 10 * time.Second

func checkSweepInterval(interval time.Duration) error {
	if interval != 0 && interval < shortestSweep {
		return fmt.Errorf("flag --%s: %s is too short; accepted are 0, which switches the sweep off, and %s or longer, such as 10m",
			SweepIntervalFlag, interval, shortestSweep)
	}
	return nil
}

// newSweeper makes what removes snapshots that are left over.
func (s *second) newSweeper(tracker velerocontroller.BackupTracker) {
	backups := &owners{cached: s.mgr.GetClient(), live: s.uncached, namespace: s.factory.Namespace(), running: tracker}
	if s.self != nil {
		backups.servers, backups.self = s.self.watch, s.self.id
	}
	s.snapshots.sweeper = snapshot.NewSweeper(snapshot.SweeperDeps{
		Tracker:   s.snapshots.tracker,
		Remover:   s.snapshots.remover,
		Owners:    backups,
		Suspects:  backups.Suspects,
		Namespace: s.factory.Namespace(),
		Interval:  s.settings.sweepInterval,
		Clock:     clock.RealClock{},
		Logger:    s.log.WithField("component", "snapshots"),
	})
}

// removal removes the snapshots of a backup that the end of the server ends; there are none when Velero's CSI feature is off, and nothing
// follows them then.
func (s *second) removal() controller.Snapshots {
	if !features.IsEnabled(velerov1.CSIFeatureFlag) {
		return nil
	}
	return s.snapshots.sweeper
}

// sweeping sets up the sweep of snapshots that are left over. It looks at once when a backup has failed.
func (s *second) sweeping() error {
	sweeper := s.snapshots.sweeper
	if err := s.metrics.registry.Register(sweeper.Metrics()); err != nil {
		return fmt.Errorf("registering the metric of the snapshot sweep: %w", err)
	}
	if err := s.recovering(); err != nil {
		return err
	}
	return s.mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		backups, err := s.mgr.GetCache().GetInformer(ctx, &velerov1.Backup{})
		if err != nil {
			return fmt.Errorf("watching backups for the snapshot sweep: %w", err)
		}
		if _, err := backups.AddEventHandler(onFailure(sweeper.Wake)); err != nil {
			return fmt.Errorf("watching backups for the snapshot sweep: %w", err)
		}
		return sweeper.Start(ctx)
	}))
}

// recovering sets up the look for pods that are still frozen, and for backups of another server that died.
func (s *second) recovering() error {
	if s.self == nil {
		return nil
	}
	deps := s.self.recovery(s.mgr.GetClient())
	if features.IsEnabled(velerov1.CSIFeatureFlag) {
		deps.Snapshots = s.snapshots.sweeper
	}
	return s.mgr.Add(manager.RunnableFunc(recovery.New(deps).Run))
}

// onFailure calls do when a Backup turns Failed, or when the server that still ran such a one has let it go.
func onFailure(do func()) toolscache.ResourceEventHandler {
	failed := func(obj any) bool {
		b, ok := obj.(*velerov1.Backup)
		return ok && b.Status.Phase == velerov1.BackupPhaseFailed && recovery.ServerOf(b) == ""
	}
	return toolscache.ResourceEventHandlerFuncs{
		UpdateFunc: func(before, after any) {
			if failed(after) && !failed(before) {
				do()
			}
		},
	}
}

// running is the part of Velero's tracker of running backups that is needed here.
type running interface {
	Contains(namespace, name string) bool
}

// owners tells the sweep how the backups of this installation stand. It implements snapshot.Owners.
type owners struct {
	cached, live crclient.Reader
	namespace    string
	running      running
	// servers tells which servers are alive, and self is this one. Default: there are no others.
	servers servers
	self    instance.ID
}

// servers knows which servers are alive; instance.Watch is one.
type servers interface {
	Look(ctx context.Context, id instance.ID) (instance.State, error)
}

// Cached implements snapshot.Owners with the manager's cache.
func (o *owners) Cached(ctx context.Context, id snapshot.OwnerID) (snapshot.OwnerState, error) {
	return o.search(ctx, o.cached, id)
}

// Live implements snapshot.Owners. A backup is read by its name; when only the shortened form of that is known and the cache
// doesn't know the backup, all are listed.
func (o *owners) Live(ctx context.Context, id snapshot.OwnerID) (snapshot.OwnerState, error) {
	if len(id.Label) >= validation.LabelValueMaxLength {
		return o.search(ctx, o.live, id)
	}
	found := new(velerov1.Backup)
	err := o.live.Get(ctx, crclient.ObjectKey{Namespace: o.namespace, Name: id.Label}, found)
	switch {
	case apierrors.IsNotFound(err):
		return o.gone(id), nil
	case err != nil:
		return snapshot.OwnerUnknown, fmt.Errorf("reading Backup %s/%s: %w", o.namespace, id.Label, err)
	case id.UID != "" && found.UID != id.UID:
		return o.gone(id), nil
	}
	return o.state(ctx, found)
}

func (o *owners) search(ctx context.Context, in crclient.Reader, id snapshot.OwnerID) (snapshot.OwnerState, error) {
	var backups velerov1.BackupList
	if err := in.List(ctx, &backups, crclient.InNamespace(o.namespace), crclient.UnsafeDisableDeepCopy); err != nil {
		return snapshot.OwnerUnknown, fmt.Errorf("listing the backups in %s: %w", o.namespace, err)
	}
	for i := range backups.Items {
		b := &backups.Items[i]
		if id.UID != "" && b.UID == id.UID || id.UID == "" && label.GetValidName(b.Name) == id.Label {
			return o.state(ctx, b)
		}
	}
	return o.gone(id), nil
}

// Suspects names the failed backups, from the cache, and the claims of a namespace, from the API server.
func (o *owners) Suspects(ctx context.Context, namespace string) (failed []snapshot.OwnerID, claims []types.UID, err error) {
	var backups velerov1.BackupList
	if err := o.cached.List(ctx, &backups, crclient.InNamespace(o.namespace), crclient.UnsafeDisableDeepCopy); err != nil {
		return nil, nil, fmt.Errorf("listing the backups in %s: %w", o.namespace, err)
	}
	for i := range backups.Items {
		if b := &backups.Items[i]; b.Status.Phase == velerov1.BackupPhaseFailed {
			failed = append(failed, snapshot.OwnerID{Label: label.GetValidName(b.Name), UID: b.UID})
		}
	}
	if len(failed) == 0 {
		return nil, nil, nil
	}
	var list corev1.PersistentVolumeClaimList
	if err := o.live.List(ctx, &list, crclient.InNamespace(namespace)); err != nil {
		return nil, nil, fmt.Errorf("listing the claims in %s: %w", namespace, err)
	}
	for i := range list.Items {
		claims = append(claims, list.Items[i].UID)
	}
	return failed, claims, nil
}

// gone says how a backup stands whose Backup isn't there. One that was deleted while it runs goes on to its end.
func (o *owners) gone(id snapshot.OwnerID) snapshot.OwnerState {
	switch {
	case o.running.Contains(o.namespace, id.Label):
		return snapshot.OwnerRunning
	case len(id.Label) >= validation.LabelValueMaxLength:
		return snapshot.OwnerUnknown // a shortened name: whether it runs can't be asked
	default:
		return snapshot.OwnerGone
	}
}

// state says what a phase means for the snapshots. A backup that has failed validation has none; if one says that it is its own,
// something is wrong, and it stays.
func (o *owners) state(ctx context.Context, b *velerov1.Backup) (snapshot.OwnerState, error) {
	isRunning := o.running.Contains(b.Namespace, b.Name)
	switch b.Status.Phase {
	case "", velerov1.BackupPhaseNew, velerov1.BackupPhaseQueued, velerov1.BackupPhaseReadyToStart, velerov1.BackupPhaseInProgress,
		velerov1.BackupPhaseWaitingForPluginOperations, velerov1.BackupPhaseWaitingForPluginOperationsPartiallyFailed,
		velerov1.BackupPhaseFinalizing, velerov1.BackupPhaseFinalizingPartiallyFailed, velerov1.BackupPhaseDeleting:
		return snapshot.OwnerRunning, nil
	case velerov1.BackupPhaseFailed:
		if isRunning {
			return snapshot.OwnerEnding, nil
		}
		return o.failed(ctx, b)
	case velerov1.BackupPhaseCompleted, velerov1.BackupPhasePartiallyFailed:
		if isRunning {
			return snapshot.OwnerRunning, nil
		}
		return snapshot.OwnerFinished, nil
	default:
		return snapshot.OwnerUnknown, nil
	}
}

// failed says whether a backup is over that is Failed. The start of a second Velero server marks those Failed that it finds in progress,
// also when the server that runs them lives; the annotation with that one's name stays until it has let the backup go, or until it is
// dead and its backup was recovered.
func (o *owners) failed(ctx context.Context, b *velerov1.Backup) (snapshot.OwnerState, error) {
	server := recovery.ServerOf(b)
	if server == "" || server == o.self || o.servers == nil {
		return snapshot.OwnerFailed, nil
	}
	state, err := o.servers.Look(ctx, server)
	switch {
	case apierrors.IsForbidden(err): // it can't be known, ever
		return snapshot.OwnerFailed, nil
	case err != nil:
		return snapshot.OwnerUnknown, err
	case state == instance.Dead:
		return snapshot.OwnerFailed, nil
	default:
		return snapshot.OwnerRunning, nil
	}
}
