// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"fmt"

	"github.com/sirupsen/logrus"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/backup/actions"
	"github.com/vmware-tanzu/velero/pkg/constant"
	velerocontroller "github.com/vmware-tanzu/velero/pkg/controller"
	blockactions "github.com/vmware-tanzu/velero/pkg/itemblock/actions"
	"github.com/vmware-tanzu/velero/pkg/itemoperationmap"
	biav1 "github.com/vmware-tanzu/velero/pkg/plugin/velero/backupitemaction/v1"
	ibav1 "github.com/vmware-tanzu/velero/pkg/plugin/velero/itemblockaction/v1"
	repomanager "github.com/vmware-tanzu/velero/pkg/repository/manager"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/velero-clipper/clipper/pkg/backup"
	"github.com/velero-clipper/clipper/pkg/backup/fsbackup"
	"github.com/velero-clipper/clipper/pkg/controller"
)

// controllers registers the backup controllers. They share one tracker, or the deletion controller would delete a backup
// that is running (BEHAVIOURS 25).
func (s *second) controllers() error {
	tracker := velerocontroller.NewBackupTracker()
	s.newSweeper(tracker)
	builders := map[string]func(velerocontroller.BackupTracker) (reconciler, error){
		constant.ControllerBackup:           s.backup,
		constant.ControllerBackupQueue:      s.queue,
		constant.ControllerBackupOperations: s.operations,
		constant.ControllerBackupFinalizer:  s.finalizer,
		constant.ControllerBackupDeletion:   s.deletion,
	}
	for _, name := range backupControllers {
		if !s.runs(name) {
			continue
		}
		made, err := builders[name](tracker)
		if err == nil {
			err = made.SetupWithManager(s.mgr)
		}
		if err != nil {
			return fmt.Errorf("setting up controller %s: %w", name, err)
		}
	}
	return s.sweeping()
}

// reconciler is what Velero's constructors and ours return.
type reconciler interface {
	SetupWithManager(mgr ctrl.Manager) error
}

func (s *second) backup(tracker velerocontroller.BackupTracker) (reconciler, error) {
	config := s.settings.config
	freezeSeconds := newFreezeSeconds()
	if err := s.metrics.registry.Register(freezeSeconds); err != nil {
		return nil, fmt.Errorf("registering the metric of freeze windows: %w", err)
	}
	podVolumes, err := s.podVolumes()
	if err != nil {
		return nil, err
	}
	engine := backup.NewEngine(backup.Deps{
		Client:      s.uncached,
		Dynamic:     s.dynamic,
		Discovery:   s.discovery,
		Executor:    s.self.executor,
		Pods:        s.self.executor,
		OpenRecord:  func(b *velerov1.Backup) backup.FreezeRecord { return s.self.records.Open(b) },
		Taker:       s.snapshots.taker,
		Settler:     s.snapshots.remover,
		PodVolumes:  podVolumes,
		Parallelism: s.settings.parallelism,
		Workers:     config.ItemBlockWorkerCount,
		PageSize:    config.ClientPageSize,
		BuiltIn:     s.builtIn(),
		Clock:       clock.RealClock{},

		FreezeSeconds: freezeSeconds,
		FreezeLimits:  s.settings.freeze,
	})
	census := &controller.Census{Client: s.mgr.GetClient(), Metrics: s.metrics.server, Log: s.log, Clock: clock.RealClock{}}
	if err := s.mgr.Add(census); err != nil {
		return nil, err
	}
	return controller.NewBackupReconciler(controller.Deps{
		Client:           s.mgr.GetClient(),
		Uncached:         s.uncached,
		Engine:           engine,
		Discovery:        s.discovery,
		Tracker:          tracker,
		NewPluginManager: backup.WithReadiness(s.plugins, s.readiness()),
		Stores:           s.stores,
		Credentials:      s.files,
		Metrics:          s.metrics.server,
		Log:              s.log,
		Clock:            clock.RealClock{},
		Lost:             s.self.lost,
		Snapshots:        s.removal(),
		Limit:            s.self.limit,
	}, controller.Options{
		Defaults: controller.Defaults{
			TTL:                     config.DefaultBackupTTL,
			CSISnapshotTimeout:      config.DefaultCSISnapshotTimeout,
			ItemOperationTimeout:    config.DefaultItemOperationTimeout,
			VolumeGroupSnapshotKey:  config.DefaultVGSLabelKey,
			StorageLocation:         config.DefaultBackupLocation,
			VolumesToFsBackup:       config.DefaultVolumesToFsBackup,
			SnapshotMoveData:        config.DefaultSnapshotMoveData,
			VolumeSnapshotLocations: config.DefaultVolumeSnapshotLocations.Data(),
		},
		ResourceTimeout:      config.ResourceTimeout,
		GlobalVolumePolicies: config.GlobalBackupVolumePoliciesConfigMap,
		ConcurrentBackups:    config.ConcurrentBackups,
		Server:               string(s.self.id),
		LogLevel:             s.log.Level,
		LogFormat:            config.LogFormat.Parse(),
	}), nil
}

func (s *second) queue(tracker velerocontroller.BackupTracker) (reconciler, error) {
	return velerocontroller.NewBackupQueueReconciler(s.mgr.GetClient(), s.mgr.GetScheme(), s.log, s.settings.config.ConcurrentBackups, tracker), nil
}

func (s *second) operations(velerocontroller.BackupTracker) (reconciler, error) {
	looks := velerocontroller.NewBackupOperationsReconciler(
		s.log,
		s.mgr.GetClient(),
		s.settings.config.ItemOperationSyncFrequency,
		backup.WithReadiness(s.plugins, s.readiness()),
		s.stores,
		s.metrics.server,
		itemoperationmap.NewBackupItemOperationsMap(),
	)
	operations := controller.NewOperationsController(looks, s.mgr.GetClient(), s.settings.config.ItemOperationSyncFrequency, s.log)
	s.snapshots.tracker.NotifySettled(operations.Settled)
	return operations, nil
}

// readiness is what both the end of a walk and the wait after it tell the progress of snapshots from.
func (s *second) readiness() backup.ReadinessDeps {
	return backup.ReadinessDeps{
		Source: s.snapshots.tracker, Judge: s.snapshots.judge, Nudger: s.snapshots.nudger,
		Clock: clock.RealClock{}, Life: s.life, Log: s.log,
	}
}

// finalizer gives backups their end, after a second look at the items whose operations have ended.
func (s *second) finalizer(tracker velerocontroller.BackupTracker) (reconciler, error) {
	config := s.settings.config
	finalizer := backup.NewFinalizer(backup.FinalizerDeps{
		Client: s.uncached, Groups: s.snapshots.remover, Dynamic: s.dynamic, Discovery: s.discovery,
	})
	return controller.NewFinalizerReconciler(controller.FinalizerDeps{
		Client:           s.mgr.GetClient(),
		Looks:            finalizer,
		Tracker:          tracker,
		NewPluginManager: s.plugins,
		Stores:           s.stores,
		Metrics:          s.metrics.server,
		Log:              s.log,
		Clock:            clock.RealClock{},
		ResourceTimeout:  config.ResourceTimeout,
	}), nil
}

func (s *second) deletion(tracker velerocontroller.BackupTracker) (reconciler, error) {
	mgrClient := s.mgr.GetClient()
	deleter := backup.NewDeleter(backup.DeleterDeps{
		Eraser: s.snapshots.remover, Namespace: s.factory.Namespace(), Actions: s.deleteActions, Life: s.life,
	})
	repositories := repomanager.NewManager(s.factory.Namespace(), mgrClient, s.repositories.locker, s.files, s.secrets, s.log)
	return velerocontroller.NewBackupDeletionReconciler(
		s.log,
		mgrClient,
		tracker,
		repositories,
		s.metrics.server,
		s.discovery,
		deleter.WithNotes(s.plugins),
		deleter.WithErasure(s.stores),
		s.files,
		s.repositories.ensurer,
	), nil
}

// podVolumes is what file-system backups are made with.
func (s *second) podVolumes() (*fsbackup.Service, error) {
	// The manager isn't running yet: this only asks for the informer, and waits for nothing.
	informer, err := s.mgr.GetCache().GetInformer(context.Background(), &velerov1.PodVolumeBackup{})
	if err != nil {
		return nil, fmt.Errorf("following the PodVolumeBackups: %w", err)
	}
	return &fsbackup.Service{
		Locker: s.repositories.locker, Ensurer: s.repositories.ensurer, Client: s.uncached, Informer: informer,
		UploaderType: s.settings.config.UploaderType, Timeout: s.settings.config.PodVolumeOperationTimeout,
	}, nil
}

// builtIn are those plugins of Velero's own that are called for pods and claims.
func (s *second) builtIn() backup.BuiltIn {
	return backup.BuiltIn{
		ItemActions: map[string]func(logrus.FieldLogger) (biav1.BackupItemAction, error){
			"velero.io/pod": func(log logrus.FieldLogger) (biav1.BackupItemAction, error) { return actions.NewPodAction(log), nil },
			"velero.io/pv":  func(log logrus.FieldLogger) (biav1.BackupItemAction, error) { return actions.NewPVCAction(log), nil },
		},
		BlockActions: map[string]func(logrus.FieldLogger) (ibav1.ItemBlockAction, error){
			"velero.io/pod": func(log logrus.FieldLogger) (ibav1.ItemBlockAction, error) {
				return blockactions.NewPodAction(log), nil
			},
			"velero.io/pvc": func(log logrus.FieldLogger) (ibav1.ItemBlockAction, error) {
				made, err := blockactions.NewPVCAction(s.factory)(log)
				if err != nil {
					return nil, err
				}
				action, ok := made.(ibav1.ItemBlockAction)
				if !ok {
					return nil, fmt.Errorf("it is a %T, not an item block action", made)
				}
				return action, nil
			},
		},
	}
}
