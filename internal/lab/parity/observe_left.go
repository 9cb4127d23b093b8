// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package parity

import (
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	velerov2alpha1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v2alpha1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// leftKinds are the kinds of objects that a backup makes, or could leave behind.
func leftKinds() []client.ObjectList {
	return []client.ObjectList{
		&snapshotv1.VolumeSnapshotList{}, &snapshotv1.VolumeSnapshotContentList{}, &corev1.ConfigMapList{},
		&velerov1.PodVolumeBackupList{}, &velerov2alpha1.DataUploadList{}, &velerov1.BackupRepositoryList{},
		&velerov1.DeleteBackupRequestList{},
	}
}
