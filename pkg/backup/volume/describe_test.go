// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package volume_test

import (
	"testing"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	. "github.com/onsi/gomega"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/builder"
	"github.com/vmware-tanzu/velero/pkg/kuberesource"
	velero "github.com/vmware-tanzu/velero/pkg/plugin/velero"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	"github.com/velero-clipper/clipper/pkg/backup/volume"
)

const gib = int64(1 << 30)

// content is a cut snapshot's; change alters it.
func content(change ...func(*snapshotv1.VolumeSnapshotContent)) *snapshotv1.VolumeSnapshotContent {
	c := builder.ForVolumeSnapshotContent("content").Driver(driver).DeletionPolicy(snapshotv1.VolumeSnapshotContentDelete).
		Status(&snapshotv1.VolumeSnapshotContentStatus{SnapshotHandle: ptr.To("handle")}).Result()
	for _, f := range change {
		f(c)
	}
	return c
}

func restoresTo(size int64) func(*snapshotv1.VolumeSnapshotContent) {
	return func(c *snapshotv1.VolumeSnapshotContent) { c.Status.RestoreSize = &size }
}

func TestTheRequestedSizeIsAtLeastWhatTheSnapshotRestoresTo(t *testing.T) {
	cases := map[string]struct {
		requested string
		content   *snapshotv1.VolumeSnapshotContent
		want      string
	}{
		"smaller":                  {requested: "1Gi", content: content(restoresTo(2 * gib)), want: "2Gi"},
		"larger":                   {requested: "3Gi", content: content(restoresTo(2 * gib)), want: "3Gi"},
		"smaller, in another unit": {requested: "2G", content: content(restoresTo(2 * gib)), want: "2Gi"},
		"none":                     {content: content(restoresTo(2 * gib)), want: "2Gi"},
		"the driver doesn't say":   {requested: "1Gi", content: content(), want: "1Gi"},
		"no status":                {requested: "1Gi", content: content(func(c *snapshotv1.VolumeSnapshotContent) { c.Status = nil }), want: "1Gi"},
		"no content":               {requested: "1Gi", want: "1Gi"},
		"neither says anything":    {content: content()},
		"the driver says nothing":  {requested: "1Gi", content: content(restoresTo(0)), want: "1Gi"},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			claim := builder.ForPersistentVolumeClaim("app", "data").Result()
			if test.requested != "" {
				claim.Spec.Resources.Requests = corev1.ResourceList{corev1.ResourceStorage: resource.MustParse(test.requested)}
			}
			described, err := volume.DescribeClaim(toUnstructured(t, claim), "nightly", builder.ForVolumeSnapshot("app", "vs").Result(), test.content)
			g.Expect(err).NotTo(HaveOccurred())
			size, _, err := unstructured.NestedString(described.Object, "spec", "resources", "requests", "storage")
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(size).To(Equal(test.want))
		})
	}
}

func TestTheClaimNamesItsSnapshot(t *testing.T) {
	g := NewWithT(t)
	claim := toUnstructured(t, builder.ForPersistentVolumeClaim("app", "data").ObjectMeta(
		builder.WithLabels("app", "db", velerov1.BackupNameLabel, "old"), builder.WithAnnotations("note", "x"),
	).Result())
	before := claim.DeepCopy()
	described, err := volume.DescribeClaim(claim, "nightly", builder.ForVolumeSnapshot("app", "vs").Result(), nil)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(described.GetLabels()).To(Equal(map[string]string{"app": "db", velerov1.BackupNameLabel: "nightly", velerov1.VolumeSnapshotLabel: "vs"}))
	g.Expect(described.GetAnnotations()).To(Equal(map[string]string{"note": "x", velerov1.VolumeSnapshotLabel: "vs"}))
	g.Expect(claim).To(Equal(before), "the collected object is left alone")

	broken := &unstructured.Unstructured{Object: map[string]any{"spec": "not an object"}}
	_, err = volume.DescribeClaim(broken, "nightly", builder.ForVolumeSnapshot("app", "vs").Result(), nil)
	g.Expect(err).To(HaveOccurred())
}

func TestSnapshotAnnotations(t *testing.T) {
	g := NewWithT(t)
	g.Expect(volume.SnapshotAnnotations(content(restoresTo(2*gib), func(c *snapshotv1.VolumeSnapshotContent) {
		c.Status.VolumeGroupSnapshotHandle = ptr.To("group")
	}))).To(Equal(map[string]string{
		velerov1.VolumeSnapshotHandleAnnotation: "handle", velerov1.DriverNameAnnotation: driver, velerov1.VolumeSnapshotRestoreSize: "2Gi",
		velerov1.VSCDeletionPolicyAnnotation: "Delete", velerov1.VolumeGroupSnapshotHandleAnnotation: "group",
	}))
	g.Expect(volume.SnapshotAnnotations(content())).To(Equal(map[string]string{
		velerov1.VolumeSnapshotHandleAnnotation: "handle", velerov1.DriverNameAnnotation: driver, velerov1.VSCDeletionPolicyAnnotation: "Delete",
	}))
	g.Expect(volume.SnapshotAnnotations(content(func(c *snapshotv1.VolumeSnapshotContent) { c.Status = nil }))).To(Equal(map[string]string{
		velerov1.VSCDeletionPolicyAnnotation: "Delete",
	}))
}

func TestSecretsOfTheDriver(t *testing.T) {
	g := NewWithT(t)
	secret := func(name string) []velero.ResourceIdentifier {
		return []velero.ResourceIdentifier{{GroupResource: kuberesource.Secrets, Namespace: "storage", Name: name}}
	}
	complete := content(func(c *snapshotv1.VolumeSnapshotContent) {
		c.Annotations = map[string]string{
			velerov1.PrefixedSecretNameAnnotation: "deleter", velerov1.PrefixedSecretNamespaceAnnotation: "storage",
		}
	})
	g.Expect(volume.DeletionSecret(complete)).To(Equal(secret("deleter")))
	half := content(func(c *snapshotv1.VolumeSnapshotContent) {
		c.Annotations = map[string]string{velerov1.PrefixedSecretNameAnnotation: "deleter"}
	})
	g.Expect(volume.DeletionSecret(half)).To(BeEmpty())
	g.Expect(volume.DeletionSecret(content())).To(BeEmpty())

	g.Expect(volume.ListSecret(class("fast", driver, builder.WithAnnotations(
		velerov1.PrefixedListSecretNameAnnotation, "lister", velerov1.PrefixedListSecretNamespaceAnnotation, "storage",
	)))).To(Equal(secret("lister")))
	g.Expect(volume.ListSecret(class("fast", driver))).To(BeEmpty())
}
