// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package velero

import (
	"cmp"
	"errors"
	"fmt"

	velerov2alpha1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v2alpha1"
	"github.com/vmware-tanzu/velero/pkg/itemoperation"
	"github.com/vmware-tanzu/velero/pkg/persistence"
	"github.com/vmware-tanzu/velero/pkg/util/encode"
	"k8s.io/apimachinery/pkg/types"
)

// EndOfVolumes tells the volume information of a backup, in object storage, what became of the volumes after the walk (332): of
// those whose data was moved by the DataUploads, of CSI snapshots by their operations.
func EndOfVolumes(store persistence.BackupStore, backup string, uploads []velerov2alpha1.DataUpload, operations []*itemoperation.BackupOperation) error {
	infos, err := store.GetBackupVolumeInfos(backup)
	if err != nil {
		return fmt.Errorf("reading the volume information of backup %s: %w", backup, err)
	}
	moves, ends := map[types.NamespacedName]*velerov2alpha1.DataUpload{}, map[string]*itemoperation.OperationStatus{}
	for i := range uploads {
		moves[types.NamespacedName{Namespace: uploads[i].Spec.SourceNamespace, Name: uploads[i].Spec.SourcePVC}] = &uploads[i]
	}
	for _, operation := range operations {
		ends[operation.Spec.OperationID] = &operation.Status
	}
	for _, info := range infos {
		upload := moves[types.NamespacedName{Namespace: info.PVCNamespace, Name: info.PVCName}]
		if moved := info.SnapshotDataMovementInfo; moved != nil && upload != nil {
			status := upload.Status
			moved.Phase, moved.SnapshotHandle = status.Phase, status.SnapshotID
			moved.Size, moved.IncrementalSize = status.Progress.TotalBytes, status.IncrementalBytes
			if taken := upload.Spec.CSISnapshot; taken != nil {
				moved.RetainedSnapshot = taken.VolumeSnapshot
			}
			info.CompletionTimestamp = cmp.Or(status.CompletionTimestamp, info.CompletionTimestamp)
			setResult(&info.Result, status.Phase == velerov2alpha1.DataUploadPhaseCompleted)
		}
		if taken := info.CSISnapshotInfo; taken != nil && info.BackupMethod == "CSISnapshot" {
			if end := ends[taken.OperationID]; end != nil {
				info.CompletionTimestamp = end.Updated
				setResult(&info.Result, end.Error == "")
			}
		}
	}
	encoded, failures := encode.ToJSONGzip(infos, "volume information")
	if err := errors.Join(failures...); err != nil {
		return fmt.Errorf("encoding the volume information of backup %s: %w", backup, err)
	}
	if err := store.PutBackupVolumeInfos(backup, encoded); err != nil {
		return fmt.Errorf("uploading the volume information of backup %s: %w", backup, err)
	}
	return nil
}

// setResult writes how a volume's protection ended, in a string type that can't be named.
func setResult[T ~string](to *T, ok bool) {
	*to = "failed"
	if ok {
		*to = "succeeded"
	}
}
