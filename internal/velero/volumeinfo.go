// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package velero

import (
	"errors"
	"fmt"

	velerov2alpha1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v2alpha1"
	"github.com/vmware-tanzu/velero/pkg/itemoperation"
	"github.com/vmware-tanzu/velero/pkg/persistence"
	"github.com/vmware-tanzu/velero/pkg/util/encode"
)

// EndOfVolumes tells the volume information of a backup, in object storage, what became of the volumes after the walk (332): of
// those whose data was moved by the DataUploads, of CSI snapshots by their operations.
func EndOfVolumes(store persistence.BackupStore, backup string, uploads []velerov2alpha1.DataUpload, operations []*itemoperation.BackupOperation) error {
	infos, err := store.GetBackupVolumeInfos(backup)
	if err != nil {
		return fmt.Errorf("reading the volume information of backup %s: %w", backup, err)
	}
	result := func(ok bool) string {
		if ok {
			return "succeeded"
		}
		return "failed"
	}
	for _, info := range infos {
		for _, upload := range uploads {
			moved := info.SnapshotDataMovementInfo
			if moved == nil || info.PVCName != upload.Spec.SourcePVC || info.PVCNamespace != upload.Spec.SourceNamespace {
				continue
			}
			if upload.Status.CompletionTimestamp != nil {
				info.CompletionTimestamp = upload.Status.CompletionTimestamp
			}
			if upload.Spec.CSISnapshot != nil {
				moved.RetainedSnapshot = upload.Spec.CSISnapshot.VolumeSnapshot
			}
			moved.SnapshotHandle, moved.Phase = upload.Status.SnapshotID, upload.Status.Phase
			moved.Size, moved.IncrementalSize = upload.Status.Progress.TotalBytes, upload.Status.IncrementalBytes
			set(&info.Result, result(upload.Status.Phase == velerov2alpha1.DataUploadPhaseCompleted))
		}
		if info.BackupMethod != "CSISnapshot" || info.CSISnapshotInfo == nil {
			continue
		}
		for _, operation := range operations {
			if operation.Spec.OperationID == info.CSISnapshotInfo.OperationID {
				info.CompletionTimestamp = operation.Status.Updated
				set(&info.Result, result(operation.Status.Error == ""))
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

// set gives a string of a type that can't be named its value.
func set[T ~string](to *T, value string) { *to = T(value) }
