// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/sirupsen/logrus"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/constant"
	"github.com/vmware-tanzu/velero/pkg/discovery"
	"github.com/vmware-tanzu/velero/pkg/metrics"
	"github.com/vmware-tanzu/velero/pkg/persistence"
	"github.com/vmware-tanzu/velero/pkg/plugin/clientmgmt"
	"github.com/vmware-tanzu/velero/pkg/util/encode"
	"github.com/vmware-tanzu/velero/pkg/util/logging"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlcontroller "sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/velero-clipper/clipper/pkg/backup"
	"github.com/velero-clipper/clipper/pkg/hook/freezerecord"
	"github.com/velero-clipper/clipper/pkg/snapshot"
)

// Engine takes a backup; backup.Engine is one.
type Engine interface {
	Run(ctx context.Context, request backup.Request, out io.Writer) (*backup.Result, error)
}

// Tracker is told where each backup is; Velero's backup tracker is one. The queue, finalizer and deletion controllers must
// have the same (25).
type Tracker interface {
	Add(ns, name string)
	AddPostProcessing(ns, name string)
	Delete(ns, name string)
}

// CredentialFiles writes the credentials of a snapshot location to a file for its plugin.
type CredentialFiles interface {
	Path(selector *SecretKey) (string, error)
}

// Options are the server's settings that backups depend on.
type Options struct {
	// Defaults for what a Backup's spec leaves open.
	Defaults Defaults
	// ResourceTimeout bounds the repeated attempts to write a backup's final status.
	ResourceTimeout time.Duration
	// GlobalVolumePolicies is the name of the server's ConfigMap of volume policies, if there is one. It is in the Backups'
	// namespace.
	GlobalVolumePolicies string
	// ConcurrentBackups is how many backups may run at once. Default: 1.
	ConcurrentBackups int
	// Server is this process, as other servers know it. It is an annotation of the Backup while it is in progress. Default: none.
	Server string
	// LogLevel and LogFormat of the backups' own logs.
	LogLevel  logrus.Level
	LogFormat logging.Format
}

// Defaults fill in what a Backup's spec leaves open (30, 33, 34).
type Defaults struct {
	TTL                     time.Duration
	CSISnapshotTimeout      time.Duration
	ItemOperationTimeout    time.Duration
	VolumeGroupSnapshotKey  string
	StorageLocation         string
	VolumesToFsBackup       bool
	SnapshotMoveData        bool
	VolumeSnapshotLocations map[string]string
}

// Deps is what a BackupReconciler works with. All fields are required unless they say otherwise.
type Deps struct {
	// Client reads through the manager's cache.
	Client client.Client
	// APIReader and writer without a cache, for objects outside Velero's namespace.
	Uncached client.Client
	// Engine takes the backups.
	Engine Engine
	// Discovery knows the cluster's version.
	Discovery discovery.Helper
	// Tracker is shared with Velero's controllers.
	Tracker Tracker
	// NewPluginManager makes a plugin manager for one backup.
	NewPluginManager func(logrus.FieldLogger) clientmgmt.Manager
	// Stores opens backup storage locations.
	Stores persistence.ObjectBackupStoreGetter
	// Credentials of snapshot locations.
	Credentials CredentialFiles
	// Metrics of the server.
	Metrics *metrics.ServerMetrics
	// Log of the server.
	Log logrus.FieldLogger
	// Clock tells the time.
	Clock clock.PassiveClock
	// Lost ends, with the cause, when other servers may have taken this one for dead: its backups end, and how they end is no longer its
	// to say. Default: never.
	Lost context.Context //nolint:containedctx // it is the life of the process, not that of a call
	// Snapshots removes those of a backup that the end of the server has ended. Default: the next start does.
	Snapshots Snapshots
	// Limit ends when the process has to come to its end. Default: never.
	Limit context.Context //nolint:containedctx // see Lost
}

// Snapshots removes those of a backup; snapshot.Sweeper is one.
type Snapshots interface {
	// RemoveOwned removes every snapshot of a backup to its end, and returns when that is done or ctx has ended: how many there were, and
	// which are left.
	RemoveOwned(ctx context.Context, backup types.UID) (found int, left []snapshot.Leftover, err error)
}

// BackupReconciler runs Backups that are ready to start.
type BackupReconciler struct {
	deps Deps
	opts Options
	// encode makes gzipped JSON of what is uploaded; encode.ToJSONGzip but for tests of its failure.
	encode func(data any, what string) (*bytes.Buffer, []error)
}

// NewBackupReconciler returns a reconciler.
func NewBackupReconciler(deps Deps, opts Options) *BackupReconciler {
	opts.ConcurrentBackups = max(opts.ConcurrentBackups, 1)
	if deps.Lost == nil {
		deps.Lost = context.Background()
	}
	if deps.Limit == nil {
		deps.Limit = context.Background()
	}
	return &BackupReconciler{deps: deps, opts: opts, encode: encode.ToJSONGzip}
}

// SetupWithManager registers the reconciler. It also hears of Backups that are ready to start when the server starts:
// waiting for somebody to touch them would leave them for ever (6 is fixed).
func (r *BackupReconciler) SetupWithManager(mgr ctrl.Manager) error {
	ready := predicate.NewPredicateFuncs(func(object client.Object) bool {
		b, ok := object.(*velerov1.Backup)
		return ok && b.Status.Phase == velerov1.BackupPhaseReadyToStart
	})
	return ctrl.NewControllerManagedBy(mgr).
		For(&velerov1.Backup{}, builder.WithPredicates(ready)).
		WithOptions(ctrlcontroller.Options{MaxConcurrentReconciles: r.opts.ConcurrentBackups}).
		Named(constant.ControllerBackup).
		Complete(r)
}

// Reconcile runs one backup from ReadyToStart to the phase in which Velero's other controllers take over, or to its end
// when it can't be run.
func (r *BackupReconciler) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	log := r.deps.Log.WithFields(logrus.Fields{"controller": constant.ControllerBackup, "backup": request.String()})
	original := new(velerov1.Backup)
	if err := r.deps.Client.Get(ctx, request.NamespacedName, original); err != nil {
		return ctrl.Result{}, r.ignoreDeleted(request, err)
	}
	if original.Status.Phase != velerov1.BackupPhaseReadyToStart {
		return ctrl.Result{}, nil
	}
	if isPutBack(original) && original.Annotations[freezerecord.AnnServer] != r.opts.Server {
		return ctrl.Result{}, r.ignoreDeleted(request, r.leaveToRunner(ctx, original, log))
	}

	job := r.prepare(ctx, original, log)
	if err := r.begin(ctx, original, job); err != nil {
		return ctrl.Result{}, r.ignoreDeleted(request, err)
	}
	r.deps.Tracker.Add(request.Namespace, request.Name)
	if job.backup.Status.Phase == velerov1.BackupPhaseFailedValidation {
		log.WithField("errors", job.backup.Status.ValidationErrors).Warn("The backup can't be run as asked")
		r.recordRefusal(job.backup)
		r.track(job.backup)
		return ctrl.Result{}, nil
	}

	started := job.backup.DeepCopy()
	delete(job.backup.Annotations, freezerecord.AnnServer) // from here on nobody runs it but us, and at its end nobody does
	r.recordAttempt(job.backup)
	if err := recovered("running the backup", log, func() error { return r.execute(ctx, job) }); err != nil {
		log.WithError(err).Error("The backup failed")
		r.fail(job.backup, err)
	}
	// Before the patch: the queue looks at the tracker when it sees the change, and the finalizer may be done with the backup
	// before this goroutine goes on.
	r.track(job.backup)
	if r.finish(ctx, started, job.backup, log) {
		r.recordEnd(job.backup)
		r.removeSnapshots(ctx, job.backup, log)
	}
	return ctrl.Result{}, nil
}

// leaveToRunner writes of a Backup that was put back what is true: it is in progress. Its server goes on with it, and if that is dead,
// it is recovered.
func (r *BackupReconciler) leaveToRunner(ctx context.Context, b *velerov1.Backup, log logrus.FieldLogger) error {
	before := b.DeepCopy()
	b.Status.Phase = velerov1.BackupPhaseInProgress
	if err := r.deps.Client.Patch(ctx, b, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("writing that Backup %s/%s is in progress: %w", b.Namespace, b.Name, err)
	}
	log.Infof("The backup was made ready to start once more; server %s runs it, and goes on", b.Annotations[freezerecord.AnnServer])
	r.deps.Tracker.Delete(b.Namespace, b.Name)
	return nil
}

// ignoreDeleted returns nil for the error of a Backup that is gone. It tells the tracker: one that went while it was ready to
// start would be counted as running for ever, and keep the others waiting in the queue (14, 22).
func (r *BackupReconciler) ignoreDeleted(request ctrl.Request, err error) error {
	if apierrors.IsNotFound(err) {
		r.deps.Tracker.Delete(request.Namespace, request.Name)
		return nil
	}
	return err
}

// begin shows that the backup is running, or why it won't. It fails when the Backup was read from a cache that was behind: a
// backup that has ended already must not be begun again.
func (r *BackupReconciler) begin(ctx context.Context, original *velerov1.Backup, job *job) error {
	if len(job.backup.Status.ValidationErrors) > 0 {
		job.backup.Status.Phase = velerov1.BackupPhaseFailedValidation
	} else {
		now := metav1.NewTime(r.deps.Clock.Now())
		job.backup.Status.Phase = velerov1.BackupPhaseInProgress
		job.backup.Status.StartTimestamp = &now
		if r.opts.Server != "" {
			metav1.SetMetaDataAnnotation(&job.backup.ObjectMeta, freezerecord.AnnServer, r.opts.Server)
		}
	}
	phase := job.backup.Status.Phase
	if err := r.deps.Client.Patch(ctx, job.backup, client.MergeFromWithOptions(original, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("writing phase %s to Backup %s/%s: %w", phase, original.Namespace, original.Name, err)
	}
	return nil
}

// fail makes a backup a failed one (77).
func (r *BackupReconciler) fail(b *velerov1.Backup, cause error) {
	now := metav1.NewTime(r.deps.Clock.Now())
	b.Status.Phase = velerov1.BackupPhaseFailed
	b.Status.FailureReason = fmt.Sprintf("the backup could not be completed: %v", cause)
	b.Status.CompletionTimestamp = &now
}

// track tells the tracker how the reconciler leaves a backup (24).
func (r *BackupReconciler) track(b *velerov1.Backup) {
	if b.Status.Phase == velerov1.BackupPhaseFailed || b.Status.Phase == velerov1.BackupPhaseFailedValidation {
		r.deps.Tracker.Delete(b.Namespace, b.Name)
		return
	}
	r.deps.Tracker.AddPostProcessing(b.Namespace, b.Name)
}
