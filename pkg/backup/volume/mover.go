// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"context"
	"fmt"
	"strconv"
	"sync"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	velerov2alpha1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v2alpha1"
	"github.com/vmware-tanzu/velero/pkg/datamover"
	"github.com/vmware-tanzu/velero/pkg/label"
	"github.com/vmware-tanzu/velero/pkg/nodeagent"
	veleroplugin "github.com/vmware-tanzu/velero/pkg/plugin/velero"
	uploader "github.com/vmware-tanzu/velero/pkg/uploader/util"
	"github.com/vmware-tanzu/velero/pkg/util/boolptr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/velero-clipper/clipper/pkg/snapshot"
)

// dataUploads is the resource type of DataUploads.
var dataUploads = schema.GroupResource{Group: velerov2alpha1.SchemeGroupVersion.Group, Resource: "datauploads"}

// Mover is about moving the data of a backup's snapshots to its storage location: a data mover does that after the walk, one
// DataUpload for each snapshot. It is safe for concurrent use; nil moves nothing.
type Mover struct {
	backup *velerov1.Backup
	client client.Client

	once  sync.Once
	ready error
}

// NewMover returns the Mover of a backup; nil when its data isn't moved.
func NewMover(backup *velerov1.Backup, c client.Client) *Mover {
	if !boolptr.IsSetToTrue(backup.Spec.SnapshotMoveData) {
		return nil
	}
	return &Mover{backup: backup, client: c}
}

// check says why the snapshot of a claim couldn't be moved. That is asked before it is taken, since nobody would ever look at a
// DataUpload without a node agent (BEHAVIOURS 275).
func (m *Mover) check(ctx context.Context, pvc *corev1.PersistentVolumeClaim) error {
	if m == nil {
		return nil
	}
	name := pvc.Namespace + "/" + pvc.Name
	if err := m.agent(ctx); err != nil {
		return fmt.Errorf("the snapshot of claim %s can't be moved to the backup storage location: %w; have the node agent running in namespace %s "+
			"(velero install --use-node-agent), or leave spec.snapshotMoveData out", name, err, m.backup.Namespace)
	}
	if storageClassOf(pvc) == "" {
		return fmt.Errorf("the snapshot of claim %s can't be moved to the backup storage location: the claim has no storageClassName, "+
			"which the data mover needs for a volume to read the snapshot from", name)
	}
	return nil
}

// agent looks once per backup whether the node agent is there. Other data movers than Velero's own see to themselves.
func (m *Mover) agent(ctx context.Context) error {
	if !datamover.IsBuiltInUploader(m.backup.Spec.DataMover) {
		return nil
	}
	m.once.Do(func() { m.ready = nodeagent.IsReady(ctx, m.backup.Namespace, m.client) })
	return m.ready
}

// annotations are for the VolumeSnapshots.
func (m *Mover) annotations() map[string]string {
	if m == nil {
		return nil
	}
	return map[string]string{snapshot.AnnDataMover: m.backup.Spec.DataMover}
}

// OperationID is the name of the operation that moves a claim's data (BEHAVIOURS 285).
func (m *Mover) OperationID(claim metav1.Object) string {
	return label.GetValidName(string(velerov1.AsyncOperationIDPrefixDataUpload) + string(m.backup.UID) + "." + string(claim.GetUID()))
}

// Upload returns the DataUpload for a cut snapshot of a claim, as it is to be created (BEHAVIOURS 287).
func (m *Mover) Upload(claim runtime.Unstructured, vs *snapshotv1.VolumeSnapshot, content *snapshotv1.VolumeSnapshotContent) (*velerov2alpha1.DataUpload, error) {
	pvc, err := toClaim(claim)
	if err != nil {
		return nil, err
	}
	upload := &velerov2alpha1.DataUpload{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:    m.backup.Namespace,
			GenerateName: m.backup.Name + "-",
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: velerov1.SchemeGroupVersion.String(), Kind: "Backup", Name: m.backup.Name, UID: m.backup.UID, Controller: ptr.To(true),
			}},
			Labels: map[string]string{
				velerov1.BackupNameLabel:       label.GetValidName(m.backup.Name),
				velerov1.BackupUIDLabel:        string(m.backup.UID),
				velerov1.PVCUIDLabel:           string(pvc.UID),
				velerov1.AsyncOperationIDLabel: m.OperationID(pvc),
			},
		},
		Spec: velerov2alpha1.DataUploadSpec{
			SnapshotType: velerov2alpha1.SnapshotTypeCSI,
			CSISnapshot: &velerov2alpha1.CSISnapshotSpec{
				VolumeSnapshot: vs.Name,
				StorageClass:   storageClassOf(pvc),
				SnapshotClass:  ptr.Deref(vs.Spec.VolumeSnapshotClassName, ""),
				Driver:         content.Spec.Driver,
			},
			SourceNamespace:       pvc.Namespace,
			SourcePVC:             pvc.Name,
			DataMover:             m.backup.Spec.DataMover,
			BackupStorageLocation: m.backup.Spec.StorageLocation,
			OperationTimeout:      m.backup.Spec.CSISnapshotTimeout,
		},
	}
	if config := m.backup.Spec.UploaderConfig; config != nil && config.ParallelFilesUpload > 0 {
		upload.Spec.DataMoverConfig = map[string]string{uploader.ParallelFilesUpload: strconv.Itoa(config.ParallelFilesUpload)}
	}
	return upload, nil
}

// Identifier names a DataUpload for the items that are read again when an operation has ended.
func (m *Mover) Identifier(upload *velerov2alpha1.DataUpload) veleroplugin.ResourceIdentifier {
	return identifier(dataUploads, upload.Namespace, upload.Name)
}

// DescribeMovedClaim returns a copy of a claim with what a restore needs to find its moved data (BEHAVIOURS 283, 285). The size
// stays as it is: the data is restored into a new volume, not from the snapshot.
func DescribeMovedClaim(claim runtime.Unstructured, backup string, upload *velerov2alpha1.DataUpload) (*unstructured.Unstructured, error) {
	pvc, err := toClaim(claim)
	if err != nil {
		return nil, err
	}
	nameSnapshot(pvc, backup, upload.Spec.CSISnapshot.VolumeSnapshot)
	metav1.SetMetaDataAnnotation(&pvc.ObjectMeta, velerov1.DataUploadNameAnnotation, upload.Namespace+"/"+upload.Name)
	return fromClaim(pvc)
}
