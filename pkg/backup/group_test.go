// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package backup_test

import (
	"testing"
	"testing/synctest"

	. "github.com/onsi/gomega"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/discovery"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/velero-clipper/clipper/pkg/snapshot"
)

const groupKey = "velero.io/volume-group"

// groupable makes the cluster one that serves the group API, with a class for the driver, and has the backup look for groups.
func (c *cluster) groupable() {
	c.replace(func(b *velerov1.Backup) { b.Spec.VolumeGroupSnapshotLabelKey = groupKey })
	class := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": snapshot.GroupAPI + "/v1", "kind": "VolumeGroupSnapshotClass", "driver": driver,
		"metadata": map[string]any{"name": "together", "labels": map[string]any{velerov1.VolumeGroupSnapshotClassDefaultLabel: "true"}},
	}}
	c.helper = groupDiscovery{c.helper}
	c.objects = append(c.objects, class)
}

// groupDiscovery knows the group API, too.
type groupDiscovery struct{ discovery.Helper }

func (d groupDiscovery) ResourceFor(input schema.GroupVersionResource) (schema.GroupVersionResource, metav1.APIResource, error) {
	if input.Group == snapshot.GroupAPI {
		return input.GroupResource().WithVersion("v1"), metav1.APIResource{}, nil
	}
	return d.Helper.ResourceFor(input)
}

// member adds a claim with the label of a group.
func (c *cluster) member(name, group string) {
	c.claim(name, func(pvc *corev1.PersistentVolumeClaim, _ *corev1.PersistentVolume) {
		pvc.Labels = map[string]string{groupKey: group}
	})
}

func TestAGroupIsSnapshottedInTheFreezeWindow(t *testing.T) { // 302, 313
	inCluster(t, func(c *cluster) {
		c.groupable()
		c.member("data", "db")
		c.member("wal", "db")
		c.add(hooked("db", "data", "wal"))
		c.taker.hold = holdAll
		r := c.start()
		c.Expect(c.events.all()).To(Equal([]string{"freeze app/db", "create data", "create wal"}))
		c.Expect(c.taker.calls).To(HaveLen(1), "the whole group in one pass")
		for _, request := range c.taker.requests() {
			c.Expect(request.Group).To(Equal(&snapshot.Group{
				LabelKey: groupKey, Name: "db", Version: "v1", Class: "together", VolumeHandle: "disk-of-" + request.PVC,
			}))
			c.Expect(request.Class).To(Equal("fast"))
		}
		c.taker.cut("data")
		c.taker.cut("wal")
		c.Expect(r.wait().err).NotTo(HaveOccurred())
		c.Expect(c.errors()).To(BeEmpty())
		c.Expect(r.files()).To(ContainElements("volumesnapshots app/member-of-data", "volumesnapshotcontents content-of-data", "pods app/db"))
		c.Expect(r.result.Snapshots.VolumeSnapshots).To(HaveLen(2))
		c.Expect(r.result.Operations).To(HaveLen(2))
		c.Expect(r.object("persistentvolumeclaims/namespaces/app/data").GetLabels()).To(HaveKeyWithValue(velerov1.VolumeSnapshotLabel, "member-of-data"))
	})
}

func TestAMemberWhoseDataIsMovedLeavesItsGroupFirst(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.groupable()
		c.moves(1)
		c.member("data", "db")
		c.taker.neverReady = true
		r := c.start()
		c.Expect(c.uploads()).To(BeEmpty(), "it isn't ready, so it can't leave")
		c.taker.becomeReady("data")
		synctest.Wait()
		c.Expect(r.wait().err).NotTo(HaveOccurred())
		c.Expect(c.settler.leftGroup).To(Equal([]string{"app/member-of-data"}))
		c.Expect(c.uploads()["data"].Spec.CSISnapshot.VolumeSnapshot).To(Equal("member-of-data"))
	})
}
