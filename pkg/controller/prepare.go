// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"fmt"

	"github.com/sirupsen/logrus"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	velerobackup "github.com/vmware-tanzu/velero/pkg/backup"
	"github.com/vmware-tanzu/velero/pkg/label"
	"github.com/vmware-tanzu/velero/pkg/util/boolptr"
	veleroutil "github.com/vmware-tanzu/velero/pkg/util/velero"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/velero-clipper/clipper/internal/velero"
)

// job is one backup on its way through the reconciler.
type job struct {
	// backup is a copy that the reconciler changes; it becomes the Backup in the cluster.
	backup *velerov1.Backup
	// location is where it is stored; nil when validation found no usable one.
	location *velerov1.BackupStorageLocation
	// snapshotLocations for native snapshots, one per provider.
	snapshotLocations []*velerov1.VolumeSnapshotLocation
	// policies of the backup and of the server; nil when there are none.
	policies *velero.Policies
}

// refuse adds a reason for which the backup can't be run.
func (j *job) refuse(format string, args ...any) {
	j.backup.Status.ValidationErrors = append(j.backup.Status.ValidationErrors, fmt.Sprintf(format, args...))
}

// prepare fills in what the spec leaves open, and validates it. What is wrong is in the job's validation errors.
func (r *BackupReconciler) prepare(ctx context.Context, original *velerov1.Backup, log logrus.FieldLogger) *job {
	j := &job{backup: original.DeepCopy()}
	j.backup.Status.Version = velerobackup.BackupVersion
	j.backup.Status.FormatVersion = velerobackup.BackupFormatVersion
	r.fillDefaults(j.backup, log)
	r.chooseStorageLocation(ctx, j)
	r.chooseSnapshotLocations(ctx, j)
	r.describeCluster(j.backup)
	r.excludeLabelledNamespaces(ctx, j)
	r.loadPolicies(ctx, j, log)
	validate(j)
	return j
}

// fillDefaults takes the server's settings for what the spec leaves open (30 to 33).
func (r *BackupReconciler) fillDefaults(b *velerov1.Backup, log logrus.FieldLogger) {
	defaults, spec := r.opts.Defaults, &b.Spec
	if boolptr.IsSetToTrue(spec.DefaultVolumesToRestic) { //nolint:staticcheck // old Backup objects have the old field (32)
		log.Warn("spec.defaultVolumesToRestic is deprecated; it is taken as spec.defaultVolumesToFsBackup")
		spec.DefaultVolumesToFsBackup = spec.DefaultVolumesToRestic //nolint:staticcheck // see above
	}
	fill(&spec.SnapshotMoveData, &defaults.SnapshotMoveData)
	fill(&spec.DefaultVolumesToFsBackup, &defaults.VolumesToFsBackup)
	fill(&spec.ItemOperationTimeout.Duration, defaults.ItemOperationTimeout)
	fill(&spec.CSISnapshotTimeout.Duration, defaults.CSISnapshotTimeout)
	fill(&spec.VolumeGroupSnapshotLabelKey, defaults.VolumeGroupSnapshotKey)
	fill(&spec.TTL.Duration, defaults.TTL)
	expiration := metav1.NewTime(r.deps.Clock.Now().Add(spec.TTL.Duration))
	b.Status.Expiration = &expiration
}

// fill sets a field that isn't set.
func fill[T comparable](field *T, value T) {
	var unset T
	if *field == unset {
		*field = value
	}
}

// chooseStorageLocation finds the location of the spec, or the namespace's default, or the server's (34 to 36).
func (r *BackupReconciler) chooseStorageLocation(ctx context.Context, j *job) {
	b := j.backup
	chosen := b.Spec.StorageLocation != ""
	if !chosen {
		b.Spec.StorageLocation = r.defaultStorageLocation(ctx, b.Namespace)
	}
	if b.Labels == nil {
		b.Labels = map[string]string{}
	}
	b.Labels[velerov1.StorageLocationLabel] = label.GetValidName(b.Spec.StorageLocation)

	location := new(velerov1.BackupStorageLocation)
	err := r.deps.Client.Get(ctx, client.ObjectKey{Namespace: b.Namespace, Name: b.Spec.StorageLocation}, location)
	switch {
	case apierrors.IsNotFound(err) && !chosen:
		j.refuse("the backup names no storage location and the default location %q doesn't exist; create it with `velero backup-location create`, "+
			"or name another in spec.storageLocation", b.Spec.StorageLocation)
		return
	case apierrors.IsNotFound(err):
		j.refuse("spec.storageLocation: location %q doesn't exist; see `velero backup-location get` for those that do", b.Spec.StorageLocation)
		return
	case err != nil:
		j.refuse("storage location %q can't be read: %v", b.Spec.StorageLocation, err)
		return
	}
	j.location = location
	if location.Spec.AccessMode == velerov1.BackupStorageLocationAccessModeReadOnly {
		j.refuse("storage location %q is in read-only mode; no backup can be written to it", location.Name)
	}
	if !veleroutil.BSLIsAvailable(*location) {
		j.refuse("storage location %q is unavailable: %s", location.Name, location.Status.Message)
	}
}

func (r *BackupReconciler) defaultStorageLocation(ctx context.Context, namespace string) string {
	locations := new(velerov1.BackupStorageLocationList)
	if err := r.deps.Client.List(ctx, locations, client.InNamespace(namespace)); err == nil {
		for i := range locations.Items {
			if locations.Items[i].Spec.Default {
				return locations.Items[i].Name
			}
		}
	}
	return r.opts.Defaults.StorageLocation
}

// describeCluster notes where the backup comes from (40).
func (r *BackupReconciler) describeCluster(b *velerov1.Backup) {
	if b.Annotations == nil {
		b.Annotations = map[string]string{}
	}
	version := r.deps.Discovery.ServerVersion()
	b.Annotations[velerov1.SourceClusterK8sGitVersionAnnotation] = version.String()
	b.Annotations[velerov1.SourceClusterK8sMajorVersionAnnotation] = version.Major
	b.Annotations[velerov1.SourceClusterK8sMinorVersionAnnotation] = version.Minor
	b.Annotations[velerov1.ResourceTimeoutAnnotation] = r.opts.ResourceTimeout.String()
}

// excludeLabelledNamespaces adds the namespaces that are out by their own label (41).
func (r *BackupReconciler) excludeLabelledNamespaces(ctx context.Context, j *job) {
	namespaces := new(corev1.NamespaceList)
	if err := r.deps.Uncached.List(ctx, namespaces, client.MatchingLabels{velerov1.ExcludeFromBackupLabel: "true"}); err != nil {
		j.refuse("the namespaces with label %s=true can't be listed: %v", velerov1.ExcludeFromBackupLabel, err)
		return
	}
	for i := range namespaces.Items {
		j.backup.Spec.ExcludedNamespaces = append(j.backup.Spec.ExcludedNamespaces, namespaces.Items[i].Name)
	}
}
