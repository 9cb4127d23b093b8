// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/sirupsen/logrus"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/constant"
	"github.com/vmware-tanzu/velero/pkg/itemoperation"
	"github.com/vmware-tanzu/velero/pkg/kuberesource"
	"github.com/vmware-tanzu/velero/pkg/metrics"
	"github.com/vmware-tanzu/velero/pkg/persistence"
	"github.com/vmware-tanzu/velero/pkg/plugin/clientmgmt"
	"github.com/vmware-tanzu/velero/pkg/plugin/framework"
	"github.com/vmware-tanzu/velero/pkg/util/encode"
	"github.com/vmware-tanzu/velero/pkg/util/kube"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlcontroller "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/velero-clipper/clipper/pkg/backup"
)

// A backup that can't be finalized is tried again at growing intervals between these: an object store that is away comes back.
const (
	finalizeAgainFirst = time.Second
	finalizeAgainMost  = time.Minute
)

// SecondLook looks again at the items whose operations have ended; backup.Finalizer is one.
type SecondLook interface {
	// Look writes the tarball again. An error means that it is to be repeated.
	Look(ctx context.Context, request backup.LookRequest, before io.Reader, after io.Writer) error
	// Release lets go of what the look found, when that is in object storage.
	Release(backup types.UID, log logrus.FieldLogger)
}

// FinalizerDeps is what a FinalizerReconciler works with. All fields are required.
type FinalizerDeps struct {
	// Client reads through the manager's cache.
	Client client.Client
	Looks  SecondLook
	// Tracker is shared with the other backup controllers.
	Tracker Tracker
	// NewPluginManager makes a plugin manager for one backup.
	NewPluginManager func(logrus.FieldLogger) clientmgmt.Manager
	// Stores opens backup storage locations.
	Stores persistence.ObjectBackupStoreGetter
	// Metrics and Log of the server.
	Metrics *metrics.ServerMetrics
	Log     logrus.FieldLogger
	// Clock tells the time.
	Clock clock.PassiveClock
	// ResourceTimeout bounds the repeated attempts to write a backup's end.
	ResourceTimeout time.Duration
}

// FinalizerReconciler gives those backups their end that have nothing more to wait for. A Backup reads Completed in the cluster
// only when it does in object storage, and its contents are there (334 is fixed): what can't be uploaded is tried again,
// and the Backup goes on being finalized until then.
type FinalizerReconciler struct{ deps FinalizerDeps }

// NewFinalizerReconciler returns a reconciler.
func NewFinalizerReconciler(deps FinalizerDeps) *FinalizerReconciler {
	return &FinalizerReconciler{deps: deps}
}

// SetupWithManager registers the reconciler.
func (r *FinalizerReconciler) SetupWithManager(mgr ctrl.Manager) error {
	return ctrl.NewControllerManagedBy(mgr).
		For(&velerov1.Backup{}).
		WithOptions(ctrlcontroller.Options{
			RateLimiter: workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](finalizeAgainFirst, finalizeAgainMost),
		}).
		Named(constant.ControllerBackupFinalizer).
		Complete(r)
}

// Reconcile finalizes one backup (327). An error means that it is to be tried again.
func (r *FinalizerReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	log := r.deps.Log.WithFields(logrus.Fields{"controller": constant.ControllerBackupFinalizer, "backup": request.String()})
	original := new(velerov1.Backup)
	if err := r.deps.Client.Get(ctx, request.NamespacedName, original); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	end := endOf(original.Status.Phase)
	if end == "" {
		return ctrl.Result{}, nil
	}
	f := &finalization{backup: original.DeepCopy(), end: end, log: log}
	defer f.remove()
	if err := recovered("finalizing the backup", log, func() error { return r.finalize(ctx, f) }); err != nil {
		return ctrl.Result{}, fmt.Errorf("finalizing backup %s, which stays %s meanwhile: %w", request, original.Status.Phase, err)
	}
	// Before the patch: the queue looks at the tracker when it sees the change.
	r.deps.Tracker.Delete(request.Namespace, request.Name)
	err := kube.PatchResourceWithRetries(r.deps.ResourceTimeout, original, f.backup, r.deps.Client, worthRepeating)
	switch {
	case apierrors.IsNotFound(err):
		return ctrl.Result{}, nil
	case err != nil:
		r.deps.Tracker.AddPostProcessing(request.Namespace, request.Name)
		return ctrl.Result{}, fmt.Errorf("writing phase %s to Backup %s: %w", end, request, err)
	}
	r.record(f)
	return ctrl.Result{}, nil
}

// endOf is the phase that follows on that of a backup that is being finalized; empty for others.
func endOf(phase velerov1.BackupPhase) velerov1.BackupPhase {
	switch phase {
	case velerov1.BackupPhaseFinalizing:
		return velerov1.BackupPhaseCompleted
	case velerov1.BackupPhaseFinalizingPartiallyFailed:
		return velerov1.BackupPhasePartiallyFailed
	default:
		return ""
	}
}

// finalization is one try to finalize a backup.
type finalization struct {
	backup *velerov1.Backup
	end    velerov1.BackupPhase
	log    logrus.FieldLogger
	// operations of the backup; when there are any, contents is the tarball that takes the place of the one before.
	operations []*itemoperation.BackupOperation
	contents   *os.File
	files      []*os.File
}

// temporary makes a file that goes with the finalization.
func (f *finalization) temporary() (*os.File, error) {
	file, err := os.CreateTemp("", "finalize-*.tar.gz")
	if err != nil {
		return nil, fmt.Errorf("creating a file for the tarball: %w", err)
	}
	f.files = append(f.files, file)
	return file, nil
}

func (f *finalization) remove() {
	for _, file := range f.files {
		if err := errors.Join(file.Close(), os.Remove(file.Name())); err != nil {
			f.log.WithError(err).Warn("A temporary tarball can't be removed")
		}
	}
}

// finalize uploads what there is to upload, and leaves the end in the backup's status.
func (r *FinalizerReconciler) finalize(ctx context.Context, f *finalization) error {
	location := new(velerov1.BackupStorageLocation)
	key := client.ObjectKey{Namespace: f.backup.Namespace, Name: f.backup.Spec.StorageLocation}
	if err := r.deps.Client.Get(ctx, key, location); err != nil {
		return fmt.Errorf("reading storage location %s: %w", key.Name, err)
	}
	plugins := r.deps.NewPluginManager(f.log)
	defer plugins.CleanupClients()
	store, err := r.deps.Stores.Get(location, plugins, f.log)
	if err != nil {
		return fmt.Errorf("opening storage location %s: %w", location.Name, err)
	}
	if f.operations, err = store.GetBackupItemOperations(f.backup.Name); err != nil {
		return fmt.Errorf("reading the operations of the backup: %w", err)
	}
	if len(f.operations) > 0 {
		if err := r.lookAgain(ctx, f, plugins, store); err != nil {
			return err
		}
	}
	now := metav1.NewTime(r.deps.Clock.Now())
	f.backup.Status.Phase, f.backup.Status.CompletionTimestamp = f.end, &now
	f.backup.Status.CSIVolumeSnapshotsCompleted = completedSnapshots(f.operations)
	if err := f.upload(store); err != nil {
		return err
	}
	r.deps.Looks.Release(f.backup.UID, f.log)
	return nil
}

// lookAgain makes the tarball with the items as they are now (329).
func (r *FinalizerReconciler) lookAgain(
	ctx context.Context, f *finalization, plugins clientmgmt.Manager, store persistence.BackupStore,
) error {
	before, err := f.download(store)
	if err != nil {
		return err
	}
	if f.contents, err = f.temporary(); err != nil {
		return err
	}
	actions, err := plugins.GetBackupItemActionsV2()
	if err != nil {
		return fmt.Errorf("starting the backup item action plugins: %w", err)
	}
	request := backup.LookRequest{
		Backup: f.backup, Actions: framework.NewBackupItemActionResolverV2(actions), Operations: f.operations, Store: store,
		StopPlugins: plugins.CleanupClients, // they start again when they are called
		Log:         f.log,
	}
	if err := r.deps.Looks.Look(ctx, request, before, f.contents); err != nil {
		return fmt.Errorf("looking again at the items with operations: %w", err)
	}
	return nil
}

// download reads the tarball into a file: the look takes its time before it reads from it.
func (f *finalization) download(store persistence.BackupStore) (*os.File, error) {
	contents, err := store.GetBackupContents(f.backup.Name)
	if err != nil {
		return nil, fmt.Errorf("downloading the tarball: %w", err)
	}
	defer contents.Close()
	file, err := f.temporary()
	if err != nil {
		return nil, err
	}
	if _, err = io.Copy(file, contents); err == nil {
		_, err = file.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, fmt.Errorf("downloading the tarball: %w", err)
	}
	return file, nil
}

// upload writes the contents and then the metadata: these say that the contents are there.
func (f *finalization) upload(store persistence.BackupStore) error {
	metadata := new(bytes.Buffer)
	if err := encode.To(f.backup, "json", metadata); err != nil {
		return fmt.Errorf("encoding the Backup: %w", err)
	}
	if f.contents != nil {
		if err := store.PutBackupContents(f.backup.Name, f.contents); err != nil {
			return fmt.Errorf("uploading the tarball: %w", err)
		}
	}
	if err := store.PutBackupMetadata(f.backup.Name, metadata); err != nil {
		return fmt.Errorf("uploading the metadata: %w", err)
	}
	return nil
}

// completedSnapshots counts the CSI snapshots that became ready (333).
func completedSnapshots(operations []*itemoperation.BackupOperation) int {
	count := 0
	for _, operation := range operations {
		if operation.Spec.ResourceIdentifier.GroupResource == kuberesource.VolumeSnapshots && operation.Status.Phase == itemoperation.OperationPhaseCompleted {
			count++
		}
	}
	return count
}
