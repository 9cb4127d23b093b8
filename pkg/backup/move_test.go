// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package backup_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"testing/synctest"

	. "github.com/onsi/gomega"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	velerov2alpha1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v2alpha1"
	velero "github.com/vmware-tanzu/velero/pkg/plugin/velero"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/velero-clipper/clipper/pkg/backup"
	"github.com/velero-clipper/clipper/pkg/snapshot"
)

// moves makes the backup one whose data is moved, in a cluster with as many ready node agents.
func (c *cluster) moves(ready int32) {
	c.replace(func(b *velerov1.Backup) { b.Spec.SnapshotMoveData, b.Spec.StorageLocation = ptr.To(true), "default" })
	c.add(&appsv1.DaemonSet{
		TypeMeta:   metav1.TypeMeta{APIVersion: "apps/v1", Kind: "DaemonSet"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: "node-agent"},
		Status:     appsv1.DaemonSetStatus{NumberReady: ready},
	})
}

// uploads returns the cluster's DataUploads by their claims.
func (c *cluster) uploads() map[string]velerov2alpha1.DataUpload {
	c.t.Helper()
	var list velerov2alpha1.DataUploadList
	c.Expect(c.client.List(context.WithoutCancel(c.ctx), &list)).To(Succeed())
	found := map[string]velerov2alpha1.DataUpload{}
	for _, upload := range list.Items {
		c.Expect(found).NotTo(HaveKey(upload.Spec.SourcePVC), "two for one claim")
		found[upload.Spec.SourcePVC] = upload
	}
	return found
}

func TestDataIsMovedAfterTheThaw(t *testing.T) { // 285, 287, field case F12
	inCluster(t, func(c *cluster) {
		c.moves(1)
		c.replace(func(b *velerov1.Backup) {
			b.Spec.UploaderConfig = &velerov1.UploaderConfigForBackup{ParallelFilesUpload: 3}
		})
		c.claims("data", "plain")
		c.add(hooked("db", "data"), pod("web", "plain"))
		c.taker.hold = holdAll
		c.onCreate = func(object client.Object) error {
			if upload, ok := object.(*velerov2alpha1.DataUpload); ok {
				c.events.add("move " + upload.Spec.SourcePVC)
			}
			return nil
		}
		r := c.start()
		c.taker.cut("data")
		synctest.Wait()
		c.Expect(c.events.all()).To(Equal([]string{"freeze app/db", "create data", "cut data", "thaw app/db", "move data", "create plain"}))
		c.taker.cut("plain")
		c.Expect(r.wait().err).NotTo(HaveOccurred())
		c.Expect(c.errors()).To(BeEmpty())

		uploads := c.uploads()
		c.Expect(uploads).To(HaveLen(2))
		upload := uploads["data"]
		c.Expect(upload.Namespace).To(Equal("velero"))
		c.Expect(upload.Name).To(HavePrefix("nightly-"))
		c.Expect(upload.OwnerReferences).To(Equal([]metav1.OwnerReference{{
			APIVersion: "velero.io/v1", Kind: "Backup", Name: "nightly", UID: "backup-uid", Controller: ptr.To(true),
		}}))
		c.Expect(upload.Labels).To(Equal(map[string]string{
			velerov1.BackupNameLabel: "nightly", velerov1.BackupUIDLabel: "backup-uid", velerov1.PVCUIDLabel: "uid-of-data",
			velerov1.AsyncOperationIDLabel: "du-backup-uid.uid-of-data",
		}))
		c.Expect(upload.Spec).To(Equal(velerov2alpha1.DataUploadSpec{
			SnapshotType: velerov2alpha1.SnapshotTypeCSI,
			CSISnapshot: &velerov2alpha1.CSISnapshotSpec{
				VolumeSnapshot: snapshotOf("data"), StorageClass: "standard", SnapshotClass: "fast", Driver: driver,
			},
			SourceNamespace: "app", SourcePVC: "data", BackupStorageLocation: "default", DataMoverConfig: map[string]string{"ParallelFilesUpload": "3"},
			OperationTimeout: metav1.Duration{Duration: testTimeout},
		}))

		c.Expect(r.result.Operations).To(HaveLen(2))
		operation := r.result.Operations[0].Spec
		c.Expect(operation.BackupItemAction).To(Equal("velero.io/csi-pvc-backupper"))
		c.Expect(operation.OperationID).To(Equal("du-backup-uid.uid-of-data"))
		c.Expect(operation.ResourceIdentifier).To(Equal(named("persistentvolumeclaims", "app", "data")))
		c.Expect(operation.PostOperationItems).To(Equal([]velero.ResourceIdentifier{named("datauploads.velero.io", "velero", upload.Name)}))

		pvc := r.object("persistentvolumeclaims/namespaces/app/data")
		c.Expect(pvc.GetAnnotations()).To(Equal(map[string]string{
			velerov1.DataUploadNameAnnotation: "velero/" + upload.Name, velerov1.VolumeSnapshotLabel: snapshotOf("data"),
			velerov1.MustIncludeAdditionalItemAnnotation: "true",
		}))
		c.Expect(pvc.GetLabels()).To(HaveKeyWithValue(velerov1.VolumeSnapshotLabel, snapshotOf("data")))
		c.Expect(pvc.GetLabels()).To(HaveKeyWithValue(velerov1.BackupNameLabel, "nightly"))
		_, sized, _ := unstructured.NestedString(pvc.Object, "spec", "resources", "requests", "storage")
		c.Expect(sized).To(BeFalse(), "no size change")
		c.Expect(r.files()).NotTo(ContainElement(HavePrefix("volumesnapshot")), "the snapshot is no part of the backup")
		c.Expect(c.taker.requests()[0].Annotations).To(Equal(map[string]string{snapshot.AnnDataMover: ""}))

		c.Expect(r.result.SnapshotsAttempted).To(BeZero(), "63")
		c.Expect(r.result.Snapshots.VolumeSnapshots).To(BeEmpty(), "63")
	})
}

func TestMovedDataInTheVolumeInformation(t *testing.T) { // 350
	inCluster(t, func(c *cluster) {
		c.moves(1)
		c.claims("data")
		r := c.take()
		encoded, err := json.Marshal(r.result.Volumes.Information(r.result.Snapshots, r.result.Operations, c.client, c.logger))
		c.Expect(err).NotTo(HaveOccurred())
		var info []map[string]any
		c.Expect(json.Unmarshal(encoded, &info)).To(Succeed())
		c.Expect(info).To(HaveLen(1))
		c.Expect(info[0]).To(HaveKeyWithValue("snapshotDataMoved", true))
		c.Expect(info[0]).To(HaveKeyWithValue("pvName", "pv-data"))
		c.Expect(info[0]["csiSnapshotInfo"]).To(HaveKeyWithValue("snapshotHandle", "unknown"))
		c.Expect(info[0]["snapshotDataMovementInfo"]).To(And(HaveKeyWithValue("dataMover", "velero"), HaveKeyWithValue("uploaderType", "kopia"),
			HaveKeyWithValue("operationID", "du-backup-uid.uid-of-data")))
	})
}

func TestASnapshotThatFailsLeavesNoDataUpload(t *testing.T) { // field case F3
	inCluster(t, func(c *cluster) {
		c.moves(1)
		c.claims("data", "fine")
		c.taker.hold = holdOnly("data")
		r := c.start()
		c.taker.fail("data", snapshot.ReasonTerminalError, "reaches the configured maximum (3)")
		c.Expect(r.wait().err).NotTo(HaveOccurred())
		c.Expect(c.uploads()).To(And(HaveLen(1), HaveKey("fine")))
		c.Expect(r.result.Operations).To(HaveLen(1))
		c.Expect(c.errors()).To(ConsistOf(ContainSubstring("configured maximum (3)")))
	})
}

func TestADataUploadThatCantBeCreated(t *testing.T) { // 286
	inCluster(t, func(c *cluster) {
		c.moves(1)
		c.claims("data")
		c.add(pod("db", "data"))
		c.onCreate = func(object client.Object) error {
			if _, ok := object.(*velerov2alpha1.DataUpload); ok {
				return errors.New("refused")
			}
			return nil
		}
		r := c.take()
		c.Expect(c.errors()).To(ConsistOf(And(HavePrefix("data: "), HaveSuffix("refused"))))
		c.Expect(r.files()).To(ContainElements("pods app/db", "persistentvolumeclaims app/data"))
		c.Expect(r.object("persistentvolumeclaims/namespaces/app/data").GetLabels()).NotTo(HaveKey(velerov1.VolumeSnapshotLabel))
		c.Expect(r.result.Operations).To(BeEmpty())
		gone := []snapshot.Ref{{Namespace: "app", Name: snapshotOf("data"), UID: "vs-of-data", ContentName: contentOf("data")}}
		c.Expect(c.settler.removed).To(Equal(gone))
		c.Expect(c.settler.asked).To(Equal(gone), "it is followed to its end")
	})
}

func TestALostAnswerMakesNoSecondDataUpload(t *testing.T) { // 288: exactly one
	inCluster(t, func(c *cluster) {
		c.moves(1)
		c.claims("data")
		lost := 0
		c.onCreate = func(object client.Object) error {
			upload, ok := object.(*velerov2alpha1.DataUpload)
			if !ok || lost > 0 {
				return nil
			}
			lost++
			made := upload.DeepCopy()
			made.Name = "nightly-made"
			c.Expect(c.client.Create(c.ctx, made)).To(Succeed())
			return apierrors.NewInternalError(errors.New("the connection was lost"))
		}
		r := c.take()
		c.Expect(lost).To(Equal(1))
		c.Expect(c.uploads()["data"].Name).To(Equal("nightly-made"))
		c.Expect(r.result.Operations[0].Spec.PostOperationItems[0].Name).To(Equal("nightly-made"))
	})
}

// counter counts how often daemon sets are read.
type counter struct {
	client.Client
	daemonSets int
}

func (c *counter) Get(ctx context.Context, key client.ObjectKey, into client.Object, opts ...client.GetOption) error {
	if _, ok := into.(*appsv1.DaemonSet); ok {
		c.daemonSets++
	}
	return c.Client.Get(ctx, key, into, opts...)
}

func TestWhatCantBeMovedIsNotSnapshotted(t *testing.T) { // 275
	for name, test := range map[string]struct {
		ready  int32
		mover  string
		class  *string
		err    string
		agents int
	}{
		"no node agent is ready":          {class: ptr.To("standard"), err: "velero install --use-node-agent", agents: 1},
		"another data mover sees to that": {class: ptr.To("standard"), mover: "other"},
		"no storage class":                {ready: 1, err: "no storageClassName", agents: 1},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				c.moves(test.ready)
				c.replace(func(b *velerov1.Backup) { b.Spec.DataMover = test.mover })
				for _, claim := range []string{"a", "b"} {
					c.claim(claim, func(pvc *corev1.PersistentVolumeClaim, _ *corev1.PersistentVolume) {
						pvc.Spec.StorageClassName = test.class
					})
				}
				looks := &counter{}
				c.change = func(d *backup.Deps) { looks.Client, d.Client = d.Client, looks }
				r := c.take()
				c.Expect(looks.daemonSets).To(Equal(2*test.agents), "once per backup, for Linux and Windows")
				if test.err == "" {
					c.Expect(c.errors()).To(BeEmpty())
					c.Expect(c.uploads()).To(HaveLen(2))
					return
				}
				c.Expect(c.taker.requests()).To(BeEmpty())
				c.Expect(c.errors()).To(HaveLen(2))
				c.Expect(c.errors()).To(HaveEach(ContainSubstring(test.err)))
				c.Expect(r.files()).NotTo(ContainElement(HavePrefix("persistentvolumeclaims")))
			})
		})
	}
}

func TestAFailedBackupCancelsItsDataUploads(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.moves(1)
		c.claims("data", "slow")
		c.taker.hold = holdOnly("slow")
		r := c.start()
		c.Expect(c.uploads()).To(And(HaveLen(1), HaveKey("data")))
		c.cancel(errors.New("the server is stopping"))
		c.Expect(r.wait().err).To(HaveOccurred())
		c.Expect(c.uploads()["data"].Spec.Cancel).To(BeTrue())
	})
}
