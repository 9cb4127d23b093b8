// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"time"

	"github.com/sirupsen/logrus"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/constant"
	"github.com/vmware-tanzu/velero/pkg/plugin/clientmgmt"
	"github.com/vmware-tanzu/velero/pkg/plugin/framework"
	"github.com/vmware-tanzu/velero/pkg/util/kube"
	"github.com/vmware-tanzu/velero/pkg/util/logging"
	"github.com/vmware-tanzu/velero/pkg/util/results"

	"github.com/velero-clipper/clipper/pkg/backup"
	"github.com/velero-clipper/clipper/pkg/controller/recovery"
)

// execution is a running backup and what it is made with. It lives for one call of execute.
type execution struct {
	*job
	// plugins are those that items go through. They are stopped when one of them hangs, so the storage location has its own: Velero
	// can't open a location through a process that was stopped.
	plugins, storage clientmgmt.Manager
	// log writes to the server's log and to the backup's own; counter knows its warnings and errors (55, 56).
	log     logging.DualModeLogger
	counter *logging.LogHook
	tarball *os.File
}

// execute runs and uploads a validated backup, and leaves the phase that follows in its status. An error means that the
// backup failed as a whole.
func (r *BackupReconciler) execute(ctx context.Context, j *job) error {
	x := &execution{job: j, counter: logging.NewLogHook()}
	serverLog := r.deps.Log.WithField(constant.ControllerBackup, kube.NamespaceAndName(j.backup))
	var err error
	x.log, err = logging.NewTempFileLogger(r.opts.LogLevel, r.opts.LogFormat, x.counter,
		logrus.Fields{constant.ControllerBackup: kube.NamespaceAndName(j.backup)})
	if err != nil {
		return fmt.Errorf("creating the backup's log: %w", err)
	}
	defer x.log.Dispose(serverLog)
	x.tarball, err = os.CreateTemp("", "backup-*.tar.gz")
	if err != nil {
		return fmt.Errorf("creating a file for the tarball: %w", err)
	}
	defer func() {
		if err := errors.Join(x.tarball.Close(), os.Remove(x.tarball.Name())); err != nil {
			serverLog.WithError(err).Warn("The temporary tarball can't be removed")
		}
	}()
	x.plugins, x.storage = r.deps.NewPluginManager(x.log), r.deps.NewPluginManager(x.log)
	defer x.storage.CleanupClients()
	defer x.plugins.CleanupClients()

	if err := r.refuseExisting(x); err != nil {
		return err
	}
	result, runErr := r.runEngine(ctx, x)
	r.conclude(x, result, runErr)
	x.log.DoneForPersist(serverLog)
	if cause := context.Cause(r.deps.Lost); cause != nil { // nothing is uploaded for a backup that others may have given its end
		if errors.Is(runErr, cause) {
			return runErr
		}
		return errors.Join(runErr, cause)
	}
	return errors.Join(runErr, r.persist(x, result))
}

// refuseExisting makes sure that no backup of that name is overwritten (60). What the interrupted try of this same backup has uploaded, by
// the UID in its metadata, is removed: half of it is of snapshots that are gone.
func (r *BackupReconciler) refuseExisting(x *execution) error {
	store, err := r.deps.Stores.Get(x.location, x.storage, x.log)
	if err != nil {
		return fmt.Errorf("opening storage location %s: %w", x.location.Name, err)
	}
	bucket := strings.Trim(x.location.Spec.ObjectStorage.Bucket, "/") // as the store names it for all else
	exists, err := store.BackupExists(bucket, x.backup.Name)
	if err != nil {
		return fmt.Errorf("looking for a backup named %s in storage location %s: %w", x.backup.Name, x.location.Name, err)
	}
	if exists && x.backup.Annotations[recovery.AnnRetried] != "" {
		stored, err := store.GetBackupMetadata(x.backup.Name)
		if err != nil {
			return fmt.Errorf("finding out whose backup named %s is in storage location %s: %w", x.backup.Name, x.location.Name, err)
		}
		if stored.UID != "" && stored.UID == x.backup.UID {
			x.log.Info("What was uploaded of this backup before the server stopped is removed")
			if err := store.DeleteBackup(x.backup.Name); err != nil {
				return fmt.Errorf("removing what was uploaded of backup %s before the server stopped: %w", x.backup.Name, err)
			}
			return nil
		}
	}
	if exists {
		return fmt.Errorf("storage location %s has a backup named %s already; choose another name", x.location.Name, x.backup.Name)
	}
	return nil
}

// runEngine takes the backup. The result is never nil; a panic of the engine is an error like any other, so that the log tells
// of it and is uploaded.
func (r *BackupReconciler) runEngine(ctx context.Context, x *execution) (*backup.Result, error) {
	var result *backup.Result
	err := recovered("taking the backup", x.log, func() (err error) {
		result, err = r.takeBackup(ctx, x)
		return err
	})
	if result == nil {
		result = &backup.Result{}
	}
	return result, err
}

// errStopping is why a backup ends when the server does. "context canceled" would tell its owner nothing.
var errStopping = errors.New("the server is shutting down")

func (r *BackupReconciler) takeBackup(server context.Context, x *execution) (*backup.Result, error) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(server))
	defer cancel(nil)
	defer context.AfterFunc(server, func() { cancel(errStopping) })()
	defer context.AfterFunc(r.deps.Lost, func() { cancel(context.Cause(r.deps.Lost)) })()
	itemActions, err := x.plugins.GetBackupItemActionsV2()
	if err != nil {
		return nil, fmt.Errorf("starting the backup item action plugins: %w", err)
	}
	blockActions, err := x.plugins.GetItemBlockActions()
	if err != nil {
		return nil, fmt.Errorf("starting the item block action plugins: %w", err)
	}
	result, err := r.deps.Engine.Run(ctx, backup.Request{
		// The engine's plugins read the Backup from other goroutines; the reconciler goes on changing its own copy.
		Backup:            x.backup.DeepCopy(),
		Policies:          x.policies,
		SnapshotLocations: x.snapshotLocations,
		ItemActions:       framework.NewBackupItemActionResolverV2(itemActions),
		BlockActions:      framework.NewItemBlockActionResolver(blockActions),
		Snapshotters:      x.plugins,
		StopPlugins:       x.plugins.CleanupClients, // they start again when they are called
		Log:               x.log,
	}, x.tarball)
	return result, sayWhy(ctx, err)
}

// sayWhy puts why the server ended the backup before an error that only follows from it, such as that of a request that was given up.
func sayWhy(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	if err == nil || cause == nil || errors.Is(err, cause) {
		return err
	}
	return fmt.Errorf("%w: %w", cause, err)
}

// recovered makes an error of a panic. Without that a Backup would stay InProgress until the server is restarted: nobody looks
// at it again (27).
func recovered(doing string, log logrus.FieldLogger, do func() error) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			log.WithField("stack", string(debug.Stack())).Errorf("Panic while %s: %v", doing, cause)
			err = fmt.Errorf("panic while %s: %v", doing, cause)
		}
	}()
	return do()
}

// conclude puts what the run came to into the backup's status: counts, then the phase (62 to 69).
func (r *BackupReconciler) conclude(x *execution, result *backup.Result, runErr error) {
	status := &x.backup.Status
	if runErr == nil || result.Progress.TotalItems > 0 { // as in stock, a backup that could not begin has none (61)
		progress, hooks := result.Progress, result.Hooks
		status.Progress, status.HookStatus = &progress, &hooks
	}
	if result.Volumes != nil {
		_, status.VolumeSnapshotsAttempted, status.VolumeSnapshotsCompleted = result.Volumes.NativeSnapshots()
	}
	status.CSIVolumeSnapshotsAttempted = result.SnapshotsAttempted

	state := r.updateOperations(x, result.Operations)
	status.BackupItemOperationsAttempted = len(result.Operations)
	status.BackupItemOperationsCompleted = state.completed
	status.BackupItemOperationsFailed = state.failed

	if runErr != nil {
		x.log.WithError(runErr).Error("The backup could not be completed")
	}
	status.Warnings = x.counter.GetCount(logrus.WarnLevel)
	status.Errors = x.counter.GetCount(logrus.ErrorLevel)
	status.Phase = nextPhase(runErr != nil, status.Errors > 0, state.running)
	if status.Phase == velerov1.BackupPhaseFailed {
		r.fail(x.backup, runErr)
	}
	r.recordRun(x)
}

// nextPhase says where a backup goes from InProgress (68).
func nextPhase(failed, errors, operationsRunning bool) velerov1.BackupPhase {
	switch {
	case failed:
		return velerov1.BackupPhaseFailed
	case errors && operationsRunning:
		return velerov1.BackupPhaseWaitingForPluginOperationsPartiallyFailed
	case errors:
		return velerov1.BackupPhaseFinalizingPartiallyFailed
	case operationsRunning:
		return velerov1.BackupPhaseWaitingForPluginOperations
	default:
		return velerov1.BackupPhaseFinalizing
	}
}

// results are the backup's warnings and errors for its results file (346), and its freeze windows if it has any. Velero reads the
// first two only.
func (x *execution) results(result *backup.Result) map[string]results.Result {
	all := map[string]results.Result{
		"warnings": x.counter.GetEntries(logrus.WarnLevel),
		"errors":   x.counter.GetEntries(logrus.ErrorLevel),
	}
	if len(result.FreezeWindows) == 0 {
		return all
	}
	windows := map[string][]string{}
	for _, w := range result.FreezeWindows {
		windows[w.Namespace] = append(windows[w.Namespace], fmt.Sprintf("pod %s was frozen for %.3f s, from %s to %s",
			w.Pod, w.End.Sub(w.Start).Seconds(), w.Start.UTC().Format(time.RFC3339Nano), w.End.UTC().Format(time.RFC3339Nano)))
	}
	all["freezeWindows"] = results.Result{Namespaces: windows}
	return all
}
