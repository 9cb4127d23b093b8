// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"fmt"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	corev1 "k8s.io/api/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/velero-clipper/clipper/internal/lab/cluster"
)

// watch keeps the state up to date by informers, which outlive the end of an API server.
func (l *Lab) watch(ctx, work context.Context) error {
	config, err := l.cluster.RESTConfig(cluster.UserAdmin)
	if err != nil {
		return err
	}
	informers, err := cache.New(config, cache.Options{
		Scheme: cluster.Scheme(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.ConfigMap{}: {Namespaces: map[string]cache.Config{cluster.VeleroNamespace: {}}},
		},
	})
	if err != nil {
		return fmt.Errorf("preparing the watches: %w", err)
	}
	for object, note := range map[client.Object]func(*seen, client.Object, bool){
		&velerov1.Backup{}: noteBackup, &velerov1.BackupStorageLocation{}: noteLocation, &corev1.ConfigMap{}: noteRecord,
		&snapshotv1.VolumeSnapshot{}: noteSnapshot, &snapshotv1.VolumeSnapshotContent{}: noteContent,
	} {
		informer, err := informers.GetInformer(ctx, object, cache.BlockUntilSynced(false))
		if err != nil {
			return fmt.Errorf("watching %T: %w", object, err)
		}
		if _, err := informer.AddEventHandler(l.handler(note)); err != nil {
			return fmt.Errorf("watching %T: %w", object, err)
		}
	}
	l.group.Go(func() error { return informers.Start(work) })
	if !informers.WaitForCacheSync(ctx) {
		return fmt.Errorf("starting the watches: %w", context.Cause(ctx))
	}
	return nil
}

// handler passes each event to a function that notes it; the flag is true for a deletion.
func (l *Lab) handler(note func(*seen, client.Object, bool)) toolscache.ResourceEventHandler {
	pass := func(object any, gone bool) {
		if missed, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
			object = missed.Obj
		}
		if o, ok := object.(client.Object); ok {
			l.state.update(func(s *seen) { note(s, o, gone) })
		}
	}
	return toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { pass(object, false) },
		UpdateFunc: func(_, object any) { pass(object, false) },
		DeleteFunc: func(object any) { pass(object, true) },
	}
}

func noteBackup(s *seen, object client.Object, gone bool) {
	if gone {
		delete(s.backups, object.GetName())
		return
	}
	status := object.(*velerov1.Backup).Status.DeepCopy()
	s.backups[object.GetName()] = *status
	if s.phases[status.Phase] == nil {
		s.phases[status.Phase] = map[string]bool{}
	}
	s.phases[status.Phase][object.GetName()] = true
}

func noteLocation(s *seen, object client.Object, _ bool) {
	s.available = object.(*velerov1.BackupStorageLocation).Status.Phase == velerov1.BackupStorageLocationPhaseAvailable
}

// noteRecord keeps track of freeze records, which carry the name of their backup.
func noteRecord(s *seen, object client.Object, gone bool) {
	labels := object.GetLabels()
	if labels[velerov1.BackupNameLabel] == "" && labels[velerov1.BackupUIDLabel] == "" {
		return
	}
	s.records[object.GetName()], s.written = true, true
	if gone {
		delete(s.records, object.GetName())
	}
}

func noteSnapshot(s *seen, object client.Object, gone bool) {
	uid := object.GetUID()
	if gone {
		delete(s.snapshots, uid)
		return
	}
	s.snapshots[uid] = object.GetNamespace() + "/" + object.GetName()
	s.created[uid] = true
	if object.GetDeletionTimestamp() != nil {
		s.deleting[uid] = true
	}
}

func noteContent(s *seen, object client.Object, gone bool) {
	uid := object.GetUID()
	if gone {
		delete(s.contents, uid)
		return
	}
	s.contents[uid] = object.GetName()
	if status := object.(*snapshotv1.VolumeSnapshotContent).Status; status != nil && status.SnapshotHandle != nil {
		s.cut[uid] = true
	}
}
