// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package volume_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	. "github.com/onsi/gomega"
	logrustest "github.com/sirupsen/logrus/hooks/test"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/builder"
	"github.com/vmware-tanzu/velero/pkg/itemoperation"
	"github.com/vmware-tanzu/velero/pkg/kuberesource"
	velero "github.com/vmware-tanzu/velero/pkg/plugin/velero"

	"github.com/velero-clipper/clipper/pkg/backup/volume"
)

func TestSkippedVolumes(t *testing.T) {
	g := NewWithT(t)
	ledger := volume.NewLedger(builder.ForBackup("velero", "nightly").Result())
	ledger.Skip("a", volume.ApproachCSI, "no CSI driver")
	ledger.Skip("a", volume.ApproachSnapshot, "no plugin")
	ledger.Skip("", volume.ApproachAny, "an unbound claim has no volume")
	ledger.Taken("b")
	ledger.Taken("")
	ledger.Skip("b", volume.ApproachSnapshot, "a volume that was taken can't be skipped any more")
	ledger.Skip("c", volume.ApproachSnapshot, "taken later")
	ledger.Taken("c")

	summary, err := ledger.SkippedSummary()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(summary).To(MatchJSON(`[{"name":"a","reasons":[
		{"approach":"csiSnapshot","reason":"no CSI driver"},{"approach":"volumeSnapshot","reason":"no plugin"}]}]`))
}

func TestVolumeInformation(t *testing.T) {
	for name, backup := range map[string]string{
		"a short name":                     "nightly",
		"a name longer than a label value": "a-" + strings.Repeat("long-", 20) + "name",
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			ledger := volume.NewLedger(builder.ForBackup("velero", backup).Result())
			ledger.Volume(builder.ForPersistentVolume("pv-data").ClaimRef("app", "data").CSI(driver, "disk").Result())
			ledger.Volume(builder.ForPersistentVolume("pv-old").ClaimRef("app", "old").Result())
			ledger.Volume(builder.ForPersistentVolume("pv-free").Result())
			ledger.Taken("pv-data")
			ledger.Skip("pv-old", volume.ApproachCSI, "no CSI driver")

			vs := builder.ForVolumeSnapshot("app", "vs").SourcePVC("data").VolumeSnapshotClass("fast").Status().
				BoundVolumeSnapshotContentName("content").RestoreSize("2Gi").ReadyToUse(true).Result()
			vs.Labels = map[string]string{velerov1.BackupNameLabel: "whatever-fits"}
			before := vs.DeepCopy()
			operation := &itemoperation.BackupOperation{Spec: itemoperation.BackupOperationSpec{
				OperationID:        "app/vs/2026-03-01T12:00:00Z",
				ResourceIdentifier: velero.ResourceIdentifier{GroupResource: kuberesource.VolumeSnapshots, Namespace: "app", Name: "vs"},
			}}
			logger, _ := logrustest.NewNullLogger()
			information := ledger.Information(volume.Snapshots{
				VolumeSnapshots: []snapshotv1.VolumeSnapshot{*vs},
				Contents:        []snapshotv1.VolumeSnapshotContent{*content(restoresTo(2 * gib))},
				Classes:         []snapshotv1.VolumeSnapshotClass{*class("fast", driver)},
			}, []*itemoperation.BackupOperation{operation}, newClient(t), logger)

			encoded, err := json.Marshal(information)
			g.Expect(err).NotTo(HaveOccurred())
			var entries []map[string]any
			g.Expect(json.Unmarshal(encoded, &entries)).To(Succeed())
			g.Expect(entries).To(ConsistOf(
				And(HaveKeyWithValue("pvName", "pv-old"), HaveKeyWithValue("skipped", true), HaveKeyWithValue("skippedReason", ContainSubstring("no CSI driver"))),
				And(HaveKeyWithValue("pvName", "pv-data"), HaveKeyWithValue("pvcName", "data"), HaveKeyWithValue("pvcNamespace", "app"),
					HaveKeyWithValue("skipped", false), HaveKeyWithValue("backupMethod", "CSISnapshot"),
					HaveKeyWithValue("csiSnapshotInfo", And(
						HaveKeyWithValue("snapshotHandle", "handle"), HaveKeyWithValue("size", BeNumerically("==", 2*gib)), HaveKeyWithValue("driver", driver),
						HaveKeyWithValue("vscName", "content"), HaveKeyWithValue("operationID", operation.Spec.OperationID), HaveKeyWithValue("ReadyToUse", true),
					))),
			))
			g.Expect(vs).To(Equal(before))
		})
	}
}

func TestTheLedgerIsWrittenByManyAtOnce(t *testing.T) {
	g := NewWithT(t)
	ledger := volume.NewLedger(builder.ForBackup("velero", "nightly").Result())
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			name := fmt.Sprintf("pv-%d", i)
			ledger.Volume(builder.ForPersistentVolume(name).Result())
			ledger.Skip(name, volume.ApproachCSI, "no CSI driver")
			if i%2 == 0 {
				ledger.Taken(name)
			}
		})
	}
	all.Wait()
	summary, err := ledger.SkippedSummary()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(strings.Count(summary, "no CSI driver")).To(Equal(10))
}
