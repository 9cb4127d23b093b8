// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// snapshotClassLabel marks the VolumeSnapshotClass that Velero uses for a driver.
const snapshotClassLabel = "velero.io/csi-volumesnapshot-class"

// createObjects makes what every cluster holds: Velero's namespace and service account, the
// node, and the classes of each driver.
func (c *Cluster) createObjects(ctx context.Context) error {
	objects := []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: VeleroNamespace}},
	}
	for _, driver := range c.opts.Drivers {
		objects = append(objects, driver.classes()...)
	}
	group, groupCtx := errgroup.WithContext(ctx)
	for _, object := range objects {
		group.Go(func() error { return c.create(groupCtx, object) })
	}
	group.Go(func() error { return c.createNode(groupCtx) })
	return group.Wait()
}

func (c *Cluster) create(ctx context.Context, object client.Object) error {
	if err := c.admin.Create(ctx, object); err != nil {
		return fmt.Errorf("creating %T %s: %w", object, client.ObjectKeyFromObject(object), err)
	}
	return nil
}

// classes are the StorageClasses and the VolumeSnapshotClass of a driver.
func (d DriverEndpoint) classes() []client.Object {
	var objects []client.Object
	for _, name := range d.StorageClasses {
		objects = append(objects, &storagev1.StorageClass{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: d.Name,
			ReclaimPolicy: ptr.To(corev1.PersistentVolumeReclaimDelete),
		})
	}
	if d.NoSnapshotClass {
		return objects
	}
	return append(objects, &snapshotv1.VolumeSnapshotClass{
		ObjectMeta: metav1.ObjectMeta{Name: d.SnapshotClass, Labels: map[string]string{snapshotClassLabel: "true"}},
		Driver:     d.Name, DeletionPolicy: snapshotv1.VolumeSnapshotContentDelete,
	})
}

// createNode makes a node that looks ready and tells the API server where its kubelet listens.
func (c *Cluster) createNode(ctx context.Context) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{
		Name:   c.opts.NodeName,
		Labels: map[string]string{corev1.LabelHostname: c.opts.NodeName, corev1.LabelOSStable: "linux"},
	}}
	if err := c.create(ctx, node); err != nil {
		return err
	}
	capacity := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("1k"), corev1.ResourceMemory: resource.MustParse("1Ti"),
		corev1.ResourcePods: resource.MustParse("100k"),
	}
	node.Status = corev1.NodeStatus{
		Capacity: capacity, Allocatable: capacity,
		Conditions: []corev1.NodeCondition{{
			Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady",
			LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now(),
		}},
		Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: c.opts.Kubelet.Host},
			{Type: corev1.NodeHostName, Address: c.opts.NodeName},
		},
		DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: int32(c.opts.Kubelet.Port)}},
		NodeInfo:        corev1.NodeSystemInfo{KubeletVersion: "v1.34.4", OperatingSystem: "linux"},
	}
	if err := c.admin.Status().Update(ctx, node); err != nil {
		return fmt.Errorf("updating the status of node %s: %w", node.Name, err)
	}
	return nil
}
