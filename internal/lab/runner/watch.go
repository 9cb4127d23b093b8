// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"context"
	"fmt"
	"slices"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	velerov2alpha1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v2alpha1"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/velero-clipper/clipper/internal/lab/cluster"
)

// observer keeps the board up to date by watches. They are informers, so they outlive a restart of the API server; a
// time on the board is when the watch event arrived.
type observer struct {
	board *board
	now   func() time.Time
}

// watch starts the watches and returns when all of them have seen the present state. They end with the context; the
// group owns the goroutine. Without the snapshot CRDs only Velero's objects are watched.
func (o *observer) watch(ctx context.Context, group *errgroup.Group, config *rest.Config, snapshots bool) error {
	objects := map[client.Object]func(client.Object, bool){
		&velerov1.Backup{}:              o.backup,
		&velerov1.Restore{}:             o.restore,
		&velerov1.DeleteBackupRequest{}: o.deleteRequest,
		&corev1.ConfigMap{}:             o.configMap,
		&velerov2alpha1.DataUpload{}:    o.upload,
		&velerov1.PodVolumeBackup{}:     o.podVolume,
	}
	if snapshots {
		objects[&snapshotv1.VolumeSnapshot{}] = o.snapshot
		objects[&snapshotv1.VolumeSnapshotContent{}] = o.content
	}
	informers, err := cache.New(config, cache.Options{
		Scheme: cluster.Scheme(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.ConfigMap{}: {Namespaces: map[string]cache.Config{cluster.VeleroNamespace: {}}},
		},
	})
	if err != nil {
		return fmt.Errorf("preparing the lab's watches: %w", err)
	}
	for object, handle := range objects {
		informer, err := informers.GetInformer(ctx, object, cache.BlockUntilSynced(false))
		if err != nil {
			return fmt.Errorf("watching %T: %w", object, err)
		}
		if _, err := informer.AddEventHandler(handler(handle)); err != nil {
			return fmt.Errorf("watching %T: %w", object, err)
		}
	}
	group.Go(func() error { return informers.Start(ctx) })
	if !informers.WaitForCacheSync(ctx) {
		return fmt.Errorf("starting the lab's watches: %w", context.Cause(ctx))
	}
	return nil
}

// handler calls one function for every event; the flag is true for a deletion.
func handler(handle func(client.Object, bool)) toolscache.ResourceEventHandler {
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { handle(object.(client.Object), false) },
		UpdateFunc: func(_, object any) { handle(object.(client.Object), false) },
		DeleteFunc: func(object any) {
			if missed, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
				object = missed.Obj
			}
			handle(object.(client.Object), true)
		},
	}
}

func (o *observer) backup(object client.Object, deleted bool) {
	backup, now := object.(*velerov1.Backup), o.now()
	o.board.update(func(r *recording) {
		record := r.backups[backup.Name]
		if record == nil {
			record = &backupRecord{name: backup.Name, created: now}
			r.backups[backup.Name] = record
		}
		record.uid, record.status = backup.UID, *backup.Status.DeepCopy()
		record.phases.note(string(backup.Status.Phase), now)
		if deleted {
			record.gone = now
		}
	})
}

func (o *observer) restore(object client.Object, _ bool) {
	restore, now := object.(*velerov1.Restore), o.now()
	o.board.update(func(r *recording) {
		record := r.restores[restore.Name]
		if record == nil {
			record = &restoreRecord{created: now}
			r.restores[restore.Name] = record
		}
		record.status = *restore.Status.DeepCopy()
		record.phases.note(string(restore.Status.Phase), now)
	})
}

func (o *observer) deleteRequest(object client.Object, _ bool) {
	request := object.(*velerov1.DeleteBackupRequest)
	o.board.update(func(r *recording) {
		record := r.deletes[request.Spec.BackupName]
		if record == nil || record.earlier[request.UID] {
			return
		}
		record.requests[request.UID] = true
		record.done = request.Status.Phase == velerov1.DeleteBackupRequestPhaseProcessed
		record.errors = request.Status.Errors
	})
}

// configMap keeps track of the records of frozen pods: Velero writes one ConfigMap for each backup that freezes pods.
func (o *observer) configMap(object client.Object, deleted bool) {
	if !isFreezeRecord(object.GetLabels()) {
		return
	}
	o.board.update(func(r *recording) {
		r.records[object.GetName()] = true
		if deleted {
			delete(r.records, object.GetName())
		}
	})
}

func (o *observer) upload(object client.Object, deleted bool) {
	upload, now := object.(*velerov2alpha1.DataUpload), o.now()
	o.board.update(func(r *recording) {
		record := r.uploads[upload.UID]
		if record == nil {
			record = &uploadRecord{created: now}
			r.uploads[upload.UID] = record
		}
		record.backup = upload.Labels[velerov1.BackupNameLabel]
		record.claim = upload.Spec.SourceNamespace + "/" + upload.Spec.SourcePVC
		record.phase = string(upload.Status.Phase)
		if deleted {
			first(&record.deleted, now)
		}
	})
}

func (o *observer) podVolume(object client.Object, _ bool) {
	pvb, now := object.(*velerov1.PodVolumeBackup), o.now()
	o.board.update(func(r *recording) {
		i := slices.IndexFunc(r.podVolumes, func(known *podVolumeRecord) bool { return known.uid == pvb.UID })
		if i < 0 {
			i = len(r.podVolumes)
			r.podVolumes = append(r.podVolumes, &podVolumeRecord{
				uid: pvb.UID, backup: pvb.Labels[velerov1.BackupNameLabel], pod: pvb.Spec.Pod.Namespace + "/" + pvb.Spec.Pod.Name,
				volume: pvb.Spec.Volume, created: now,
			})
		}
		record := r.podVolumes[i]
		record.phase = string(pvb.Status.Phase)
		if pvb.Status.CompletionTimestamp != nil {
			first(&record.ended, now)
		}
	})
}

func (o *observer) snapshot(object client.Object, deleted bool) {
	vs, now := object.(*snapshotv1.VolumeSnapshot), o.now()
	o.board.update(func(r *recording) {
		record := r.snapshots[vs.UID]
		if record == nil {
			record = &snapshotRecord{uid: vs.UID, namespace: vs.Namespace, name: vs.Name, created: now}
			r.snapshots[vs.UID] = record
		}
		record.backup, record.restore = vs.Labels[velerov1.BackupNameLabel], vs.Labels[velerov1.RestoreNameLabel]
		if vs.Spec.Source.PersistentVolumeClaimName != nil {
			record.pvc = *vs.Spec.Source.PersistentVolumeClaimName
		}
		if status := vs.Status; status != nil {
			if status.ReadyToUse != nil && *status.ReadyToUse {
				first(&record.ready, now)
			}
			if status.Error != nil && status.Error.Message != nil {
				record.err = *status.Error.Message
			}
		}
		if deleted || vs.DeletionTimestamp != nil {
			first(&record.deleting, now)
		}
		if deleted {
			first(&record.deleted, now)
		}
	})
}

func (o *observer) content(object client.Object, deleted bool) {
	vsc, now := object.(*snapshotv1.VolumeSnapshotContent), o.now()
	if vsc.Labels[cluster.OldContentLabel] != "" {
		return // it was there before, and is no snapshot of any backup
	}
	o.board.update(func(r *recording) {
		record := r.contents[vsc.UID]
		if record == nil {
			record = &contentRecord{uid: vsc.UID, name: vsc.Name, snapshot: vsc.Spec.VolumeSnapshotRef.UID, driver: vsc.Spec.Driver, created: now}
			r.contents[vsc.UID] = record
		}
		record.restore = vsc.Labels[velerov1.RestoreNameLabel]
		if vsc.Spec.Source.SnapshotHandle != nil {
			record.handle = *vsc.Spec.Source.SnapshotHandle
		}
		if status := vsc.Status; status != nil {
			if status.SnapshotHandle != nil {
				record.handle = *status.SnapshotHandle
				first(&record.cut, now)
			}
			if status.ReadyToUse != nil && *status.ReadyToUse {
				first(&record.ready, now)
			}
			if status.Error != nil && status.Error.Message != nil {
				record.err = *status.Error.Message
			}
		}
		if deleted {
			first(&record.deleted, now)
		}
	})
}

// first sets a time that has not been set yet.
func first(at *time.Time, now time.Time) {
	if at.IsZero() {
		*at = now
	}
}
