// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"strconv"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// OldContentLabel is on every VolumeSnapshotContent that CreateOldContents makes.
const OldContentLabel = "lab.clipper.dev/old"

// oldDriver is a driver that no sidecar of the lab serves, so that nothing happens to the old contents.
const oldDriver = "old.csi.clipper.dev"

// CreateOldContents fills the cluster with VolumeSnapshotContents as a cluster collects them over the years: of a driver that
// is of no concern, ready to use, kept by the policy Retain, with their VolumeSnapshots gone. They have the annotations and
// managed fields of real ones, since those are most of their size.
func (c *Cluster) CreateOldContents(ctx context.Context, count int) error {
	numbers := make([]int, count)
	for i := range numbers {
		numbers[i] = i
	}
	return each(ctx, numbers, c.createOldContent)
}

func (c *Cluster) createOldContent(ctx context.Context, i int) error {
	content := oldContent(i)
	if err := c.admin.Create(ctx, content, client.FieldOwner("snapshot-controller")); err != nil {
		return fmt.Errorf("creating old VolumeSnapshotContent %s: %w", content.Name, err)
	}
	content.Status = &snapshotv1.VolumeSnapshotContentStatus{
		SnapshotHandle: ptr.To("snap-0000000000-" + strconv.Itoa(i)),
		CreationTime:   ptr.To(time.Now().UnixNano()), RestoreSize: ptr.To(int64(10 << 30)), ReadyToUse: ptr.To(true),
	}
	err := c.admin.Status().Update(ctx, content, client.FieldOwner("csi-snapshotter"))
	if err != nil {
		return fmt.Errorf("updating the status of old VolumeSnapshotContent %s: %w", content.Name, err)
	}
	return nil
}

func oldContent(i int) *snapshotv1.VolumeSnapshotContent {
	name := fmt.Sprintf("00000000-0000-4000-8000-%012d", i)
	return &snapshotv1.VolumeSnapshotContent{
		ObjectMeta: metav1.ObjectMeta{
			Name: "snapcontent-" + name, Labels: map[string]string{OldContentLabel: "true"},
			Annotations: map[string]string{
				"snapshot.storage.kubernetes.io/deletion-secret-name":      "csi-storage-credentials",
				"snapshot.storage.kubernetes.io/deletion-secret-namespace": "storage-system",
				"snapshot.storage.kubernetes.io/allow-volume-mode-change":  "true",
				"backup.example.com/plan":                                  "nightly-" + strconv.Itoa(i%365),
				"backup.example.com/requested-by":                          "system:serviceaccount:backup-system:backup-controller",
				"kubectl.kubernetes.io/last-applied-configuration":         `{"apiVersion":"snapshot.storage.k8s.io/v1","kind":"VolumeSnapshotContent","metadata":{"name":"snapcontent-` + name + `"}}`,
			},
		},
		Spec: snapshotv1.VolumeSnapshotContentSpec{
			Driver: oldDriver, DeletionPolicy: snapshotv1.VolumeSnapshotContentRetain,
			VolumeSnapshotClassName: ptr.To("old-snapshots"),
			Source:                  snapshotv1.VolumeSnapshotContentSource{SnapshotHandle: ptr.To("snap-0000000000-" + strconv.Itoa(i))},
			// Without a UID the snapshot-controller takes it for one that waits for its VolumeSnapshot, and leaves it alone.
			VolumeSnapshotRef: corev1.ObjectReference{
				APIVersion: snapshotv1.SchemeGroupVersion.String(), Kind: "VolumeSnapshot",
				Namespace: "namespace-" + strconv.Itoa(i%200), Name: "nightly-" + name,
			},
		},
	}
}
