// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package backup_test

import (
	"encoding/base64"
	"errors"
	"maps"
	"math/rand/v2"
	"testing"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	. "github.com/onsi/gomega"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/builder"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// snapshotFiles are the items of one claim's snapshot, in the order of the tarball.
func snapshotFiles(claim string, classToo bool) []string {
	files := []string{"persistentvolumes " + volumeOf(claim)}
	if classToo {
		files = append(files, "volumesnapshotclasses fast")
	}
	return append(files, "volumesnapshotcontents "+contentOf(claim), "volumesnapshots app/"+snapshotOf(claim), "persistentvolumeclaims app/"+claim)
}

func TestWhatAnItemNeedsStandsBeforeIt(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.claims("data", "wal")
		c.add(pod("db", "data", "wal"))
		r := c.take()

		want := append(snapshotFiles("data", true), snapshotFiles("wal", false)...)
		want = append(want, "pods app/db")
		// The namespace is written while the snapshots are waited for.
		c.Expect(r.files()).To(ContainElement("namespaces app"))
		c.Expect(without(r.files(), "namespaces app")).To(Equal(want))
		c.Expect(c.errors()).To(BeEmpty())
		c.Expect(c.warnings()).To(BeEmpty())
	})
}

// unpackable is text that no compression makes small, so that it can't stay in a buffer.
func unpackable() string {
	text := make([]byte, 1<<20)
	_, _ = rand.NewChaCha8([32]byte{}).Read(text) // it never fails
	return base64.StdEncoding.EncodeToString(text)
}

func TestABackupThatCannotBeWrittenIsGivenUp(t *testing.T) {
	full := errors.New("no space left on device")
	t.Run("no other pod is frozen", func(t *testing.T) {
		inCluster(t, func(c *cluster) {
			c.full = full
			c.claims("a", "b")
			first := hooked("db-1", "a")
			first.Annotations["big"] = unpackable()
			c.add(first, hooked("db-2", "b"))
			c.Expect(c.start().wait().err).To(MatchError(full))
			c.Expect(c.events.all("freeze", "thaw")).To(Equal([]string{"freeze app/db-1", "thaw app/db-1"}))
			c.Expect(c.errors()).To(HaveLen(1), "one, not one for each item to come")
		})
	})
	t.Run("no snapshot is waited for", func(t *testing.T) {
		inCluster(t, func(c *cluster) {
			c.full = full
			c.claims("a")
			c.add(builder.ForConfigMap("app", "settings").Data("big", unpackable()).Result())
			c.taker.hold = holdAll
			c.Expect(c.start().wait().err).To(MatchError(full))
			c.Expect(c.events.all("create", "fail")).To(Equal([]string{"create a", "fail a"}), "it is given up and removed")
		})
	})
}

func without(list []string, unwanted string) []string {
	var kept []string
	for _, s := range list {
		if s != unwanted {
			kept = append(kept, s)
		}
	}
	return kept
}

func TestWhatRestoreLooksForStandsOnTheClaim(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.claim("data", func(pvc *corev1.PersistentVolumeClaim, _ *corev1.PersistentVolume) {
			pvc.Labels = map[string]string{"app": "db"}
			pvc.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}
		})
		claim := c.take().object("persistentvolumeclaims/namespaces/app/data")

		c.Expect(claim.GetLabels()).To(Equal(map[string]string{
			"app": "db", velerov1.VolumeSnapshotLabel: snapshotOf("data"), velerov1.BackupNameLabel: "nightly",
		}))
		c.Expect(claim.GetAnnotations()).To(Equal(map[string]string{
			velerov1.VolumeSnapshotLabel: snapshotOf("data"), velerov1.MustIncludeAdditionalItemAnnotation: "true",
		}))
		size, _, _ := unstructured.NestedString(claim.Object, "spec", "resources", "requests", "storage")
		c.Expect(size).To(Equal("2Gi"), "the snapshot restores to 2Gi (284)")
	})
}

func TestWhatRestoreLooksForStandsOnTheSnapshotAndItsContent(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.replace(func(b *velerov1.Backup) {
			b.Name = "a-backup-with-a-name-that-is-longer-than-a-label-value-may-be-at-all"
		})
		c.claims("data")
		r := c.take()

		want := map[string]string{
			velerov1.VolumeSnapshotHandleAnnotation: "handle-of-data", velerov1.DriverNameAnnotation: driver,
			velerov1.VolumeSnapshotRestoreSize: "2Gi", velerov1.VSCDeletionPolicyAnnotation: "Delete",
		}
		stored := r.object("volumesnapshots.snapshot.storage.k8s.io/namespaces/app/" + snapshotOf("data"))
		inBackup := maps.Clone(want)
		inBackup[velerov1.MustIncludeAdditionalItemAnnotation] = "true" // (191)
		c.Expect(stored.GetAnnotations()).To(Equal(inBackup))
		c.Expect(stored.GetKind()).To(Equal("VolumeSnapshot"))
		c.Expect(stored.GetAPIVersion()).To(Equal("snapshot.storage.k8s.io/v1"))
		c.Expect(c.snapshot("data").Annotations).To(Equal(want), "in the cluster too (292)")

		short := c.snapshot("data").Labels[velerov1.BackupNameLabel]
		c.Expect(len(short)).To(BeNumerically("<=", 63))
		content := new(snapshotv1.VolumeSnapshotContent)
		c.get("", contentOf("data"), content)
		c.Expect(content.Labels).To(Equal(map[string]string{velerov1.BackupNameLabel: short}))
		inTarball := r.object("volumesnapshotcontents.snapshot.storage.k8s.io/cluster/" + contentOf("data"))
		c.Expect(inTarball.GetLabels()).To(Equal(content.Labels))
		c.Expect(r.object("volumesnapshotclasses.snapshot.storage.k8s.io/cluster/fast").GetKind()).To(Equal("VolumeSnapshotClass"))
	})
}

func TestSecretsOfTheDriverPassTheFilters(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.taker.content = func(content *snapshotv1.VolumeSnapshotContent) {
			content.Annotations = map[string]string{
				velerov1.PrefixedSecretNameAnnotation: "deleter", velerov1.PrefixedSecretNamespaceAnnotation: "storage",
			}
		}
		c.add(
			builder.ForVolumeSnapshotClass("chosen").Driver(driver).ObjectMeta(
				builder.WithLabels(velerov1.VolumeSnapshotClassSelectorLabel, "true"),
				builder.WithAnnotations(velerov1.PrefixedListSecretNameAnnotation, "lister", velerov1.PrefixedListSecretNamespaceAnnotation, "storage"),
			).Result(),
			builder.ForNamespace("storage").Phase("Active").Result(),
			builder.ForSecret("storage", "deleter").Result(),
			builder.ForSecret("storage", "lister").Result(),
			builder.ForSecret("storage", "unrelated").Result(),
		)
		c.claims("data")
		files := c.take().files()
		c.Expect(files).To(ContainElements("secrets storage/deleter", "secrets storage/lister"))
		c.Expect(files).NotTo(ContainElement("secrets storage/unrelated"))
		c.Expect(c.taker.requests()[0].Class).To(Equal("chosen"))
		c.Expect(c.errors()).To(BeEmpty())
	})
}

func TestResultNamesWhatIsInTheBackup(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.claims("data")
		c.add(pod("db", "data"), builder.ForConfigMap("app", "settings").Result())
		result := c.take().result

		c.Expect(result.Resources).To(Equal(map[string][]string{
			"v1/Namespace":             {"app"},
			"v1/Pod":                   {"app/db"},
			"v1/ConfigMap":             {"app/settings"},
			"v1/PersistentVolumeClaim": {"app/data"},
			"v1/PersistentVolume":      {"pv-data"},
			"snapshot.storage.k8s.io/v1/VolumeSnapshot":        {"app/" + snapshotOf("data")},
			"snapshot.storage.k8s.io/v1/VolumeSnapshotContent": {contentOf("data")},
			"snapshot.storage.k8s.io/v1/VolumeSnapshotClass":   {"fast"},
		}))
		c.Expect(result.Progress).To(Equal(velerov1.BackupProgress{TotalItems: 8, ItemsBackedUp: 8}))
		c.Expect(result.SnapshotsAttempted).To(Equal(1))
		c.Expect(result.Snapshots.VolumeSnapshots).To(HaveLen(1))
		status := result.Snapshots.VolumeSnapshots[0].Status // the snapshot-controller hasn't written it yet
		c.Expect(*status.BoundVolumeSnapshotContentName).To(Equal(contentOf("data")))
		c.Expect(status.RestoreSize.Value()).To(Equal(int64(restoreSize)))
		c.Expect(status.CreationTime.Unix()).To(Equal(int64(1767225600)))
		c.Expect(result.Snapshots.Contents).To(HaveLen(1))
		c.Expect(result.Snapshots.Classes).To(HaveLen(1))

		shown := new(velerov1.Backup)
		c.get("velero", "nightly", shown)
		c.Expect(*shown.Status.Progress).To(Equal(result.Progress))
	})
}
