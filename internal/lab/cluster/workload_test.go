// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"strings"
	"testing"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// onFake is a cluster whose API server is a fake client.
func onFake(opts Options) *Cluster {
	admin := fake.NewClientBuilder().WithScheme(Scheme()).
		WithStatusSubresource(&corev1.Pod{}, &corev1.PersistentVolume{}, &corev1.PersistentVolumeClaim{}, &corev1.Node{}).Build()
	setDefault(&opts.NodeName, DefaultNode)
	return &Cluster{opts: opts, admin: admin}
}

func TestCreateVolumes(t *testing.T) {
	g := NewWithT(t)
	c := onFake(Options{})
	volume := Volume{
		Namespace: "app", Name: "data", Driver: "lab.csi", Size: "5Gi",
		Labels: map[string]string{"tier": "db"}, Annotations: map[string]string{"note": "x"},
	}
	g.Expect(c.CreateVolumes(t.Context(), volume)).To(Succeed())

	pvc := &corev1.PersistentVolumeClaim{}
	g.Expect(c.admin.Get(t.Context(), client.ObjectKey{Namespace: "app", Name: "data"}, pvc)).To(Succeed())
	g.Expect(pvc.Status.Phase).To(Equal(corev1.ClaimBound))
	g.Expect(pvc.Labels).To(HaveKeyWithValue("tier", "db"))
	g.Expect(pvc.Annotations).To(And(HaveKeyWithValue("note", "x"), HaveKeyWithValue("pv.kubernetes.io/bind-completed", "yes")))
	g.Expect(*pvc.Spec.StorageClassName).To(Equal("lab.csi"))
	g.Expect(pvc.Status.Capacity.Storage().String()).To(Equal("5Gi"))

	pv := &corev1.PersistentVolume{}
	g.Expect(c.admin.Get(t.Context(), client.ObjectKey{Name: pvc.Spec.VolumeName}, pv)).To(Succeed())
	g.Expect(pv.Status.Phase).To(Equal(corev1.VolumeBound))
	g.Expect(pv.Spec.ClaimRef.Name).To(Equal("data"))
	g.Expect(pv.Spec.ClaimRef.UID).To(Equal(pvc.UID))
	g.Expect(pv.Spec.CSI.VolumeHandle).To(Equal("app/data"))
	g.Expect(pv.Spec.CSI.Driver).To(Equal("lab.csi"))

	g.Expect(c.CreateVolumes(t.Context(), volume)).To(MatchError(ContainSubstring("app/data")), "it is there already")
	g.Expect(c.CreateVolumes(t.Context(), Volume{Namespace: "app", Name: "odd", Size: "much"})).
		To(MatchError(ContainSubstring("size of volume app/odd")))
}

func TestCreatePods(t *testing.T) {
	g := NewWithT(t)
	c := onFake(Options{})
	pods := []Pod{
		{Namespace: "app", Name: "web", Claims: []string{"a", "b"}, Annotations: map[string]string{"hook": "yes"}},
		{
			Namespace: "app", Name: "done", Phase: corev1.PodSucceeded, Containers: []string{"x", "y"},
			Mutate: func(p *corev1.Pod) { p.Spec.HostNetwork = true },
		},
	}
	g.Expect(c.CreatePods(t.Context(), pods...)).To(Succeed())

	web := &corev1.Pod{}
	g.Expect(c.admin.Get(t.Context(), client.ObjectKey{Namespace: "app", Name: "web"}, web)).To(Succeed())
	g.Expect(web.Spec.NodeName).To(Equal(DefaultNode))
	g.Expect(web.Spec.Containers).To(HaveLen(1))
	g.Expect(web.Spec.Containers[0].Name).To(Equal(ContainerName))
	g.Expect(web.Spec.Containers[0].VolumeMounts).To(HaveLen(2))
	g.Expect(web.Spec.Volumes[1].PersistentVolumeClaim.ClaimName).To(Equal("b"))
	g.Expect(web.Annotations).To(HaveKeyWithValue("hook", "yes"))
	g.Expect(web.Status.Phase).To(Equal(corev1.PodRunning))
	g.Expect(web.Status.ContainerStatuses[0].Ready).To(BeTrue())
	g.Expect(web.Status.Conditions).To(HaveLen(4))

	done := &corev1.Pod{}
	g.Expect(c.admin.Get(t.Context(), client.ObjectKey{Namespace: "app", Name: "done"}, done)).To(Succeed())
	g.Expect(done.Status.Phase).To(Equal(corev1.PodSucceeded))
	g.Expect(done.Status.ContainerStatuses).To(BeEmpty())
	g.Expect(done.Spec.Containers).To(HaveLen(2))
	g.Expect(done.Spec.HostNetwork).To(BeTrue())
}

func TestCreateNamespaces(t *testing.T) {
	g := NewWithT(t)
	c := onFake(Options{})
	g.Expect(c.CreateNamespaces(t.Context(), "a", "b")).To(Succeed())
	g.Expect(c.CreateNamespaces(t.Context(), "b", "c")).To(Succeed())
	list := &corev1.NamespaceList{}
	g.Expect(c.admin.List(t.Context(), list)).To(Succeed())
	g.Expect(list.Items).To(HaveLen(3))
}

func TestEachStopsAtTheFirstError(t *testing.T) {
	g := NewWithT(t)
	items := make([]int, 10*inParallel)
	broken := errors.New("broken")
	begun := make(chan struct{}, len(items))
	err := each(t.Context(), items, func(ctx context.Context, _ int) error {
		begun <- struct{}{}
		if len(begun) == 1 {
			return broken
		}
		<-ctx.Done()
		return context.Cause(ctx)
	})
	g.Expect(err).To(MatchError(broken))
}

func TestCreateObjects(t *testing.T) {
	g := NewWithT(t)
	c := onFake(Options{
		Kubelet: Endpoint{Host: "127.0.0.1", Port: 10250},
		Drivers: []DriverEndpoint{
			{Name: "one", StorageClasses: []string{"fast", "slow"}, SnapshotClass: "snap"},
			{Name: "two", StorageClasses: []string{"two"}, SnapshotClass: "two", NoSnapshotClass: true},
		},
	})
	g.Expect(c.createObjects(t.Context())).To(Succeed())

	node := &corev1.Node{}
	g.Expect(c.admin.Get(t.Context(), client.ObjectKey{Name: DefaultNode}, node)).To(Succeed())
	g.Expect(node.Status.Addresses).To(ContainElement(corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: "127.0.0.1"}))
	g.Expect(node.Status.DaemonEndpoints.KubeletEndpoint.Port).To(Equal(int32(10250)))

	storage := &storagev1.StorageClassList{}
	g.Expect(c.admin.List(t.Context(), storage)).To(Succeed())
	provisioners := map[string]string{}
	for _, class := range storage.Items {
		provisioners[class.Name] = class.Provisioner
	}
	g.Expect(provisioners).To(Equal(map[string]string{"fast": "one", "slow": "one", "two": "two"}))

	classes := &snapshotv1.VolumeSnapshotClassList{}
	g.Expect(c.admin.List(t.Context(), classes)).To(Succeed())
	g.Expect(classes.Items).To(HaveLen(1), "the second driver has none")
	g.Expect(classes.Items[0].Name).To(Equal("snap"))
	g.Expect(classes.Items[0].Driver).To(Equal("one"))
	g.Expect(classes.Items[0].DeletionPolicy).To(Equal(snapshotv1.VolumeSnapshotContentDelete))
	g.Expect(classes.Items[0].Labels).To(HaveKeyWithValue(snapshotClassLabel, "true"))
}

func TestLongNames(t *testing.T) {
	g := NewWithT(t)
	namespace := strings.Repeat("n", 63)
	claims := []string{strings.Repeat("c", 199) + "1", strings.Repeat("c", 199) + "2", "with.dots"}
	names := map[string]bool{}
	for _, claim := range claims {
		name := Volume{Namespace: namespace, Name: claim}.PVName()
		g.Expect(validation.IsDNS1123Subdomain(name)).To(BeEmpty())
		names[name] = true
	}
	pod := Pod{Namespace: namespace, Name: "p", Claims: claims, Containers: []string{"app"}}.object("node")
	for i, volume := range pod.Spec.Volumes {
		g.Expect(validation.IsDNS1123Label(volume.Name)).To(BeEmpty())
		g.Expect(volume.PersistentVolumeClaim.ClaimName).To(Equal(claims[i]))
		g.Expect(pod.Spec.Containers[0].VolumeMounts[i].Name).To(Equal(volume.Name))
		names[volume.Name] = true
	}
	g.Expect(names).To(HaveLen(2*len(claims)), "each its own")
	g.Expect(Volume{Namespace: "app", Name: "a-0"}.PVName()).To(Equal("pv-app-a-0"), "short ones stay readable")
}
