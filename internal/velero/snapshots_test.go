// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package velero_test

import (
	"encoding/json"
	"testing"

	. "github.com/onsi/gomega"
	velerobackup "github.com/vmware-tanzu/velero/pkg/backup"
	"github.com/vmware-tanzu/velero/pkg/builder"
	"k8s.io/utils/ptr"

	"github.com/velero-clipper/clipper/internal/velero"
)

func TestNativeSnapshotRecords(t *testing.T) { // 62, 269
	g := NewWithT(t)
	request := &velerobackup.Request{Backup: builder.ForBackup("velero", "nightly").ObjectMeta(builder.WithUID("uid")).Result()}
	velero.AddNativeSnapshot(request, velero.NativeSnapshot{
		Location: "here", Volume: "pv-1", VolumeID: "vol-1", Type: "gp3", Zone: "z1", IOPS: ptr.To[int64](100), SnapshotID: "snap-1",
	})
	velero.AddNativeSnapshot(request, velero.NativeSnapshot{Location: "here", Volume: "pv-2", VolumeID: "vol-2", Type: "gp3", Failed: true})

	attempted, completed := velero.CountNativeSnapshots(request)
	g.Expect([]int{attempted, completed}).To(Equal([]int{2, 1}))
	encoded, err := json.Marshal(request.VolumeSnapshots.Get())
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(encoded).To(MatchJSON(`[
		{"spec": {"backupName": "nightly", "backupUID": "uid", "location": "here", "persistentVolumeName": "pv-1", "providerVolumeID": "vol-1",
			"volumeType": "gp3", "volumeAZ": "z1", "volumeIOPS": 100}, "status": {"providerSnapshotID": "snap-1", "phase": "Completed"}},
		{"spec": {"backupName": "nightly", "backupUID": "uid", "location": "here", "persistentVolumeName": "pv-2", "providerVolumeID": "vol-2",
			"volumeType": "gp3"}, "status": {"phase": "Failed"}}
	]`))
}
