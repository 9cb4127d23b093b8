// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"hash/fnv"
	"strings"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// inParallel is how many objects are created at once.
const inParallel = 32

// Volume is a PVC and the PV that it is bound to.
type Volume struct {
	// Namespace and Name of the PVC. The CSI volume handle is "namespace/name".
	Namespace, Name string
	// Driver of the PV.
	Driver string
	// StorageClass of both. Default: named like the driver. NoStorageClass leaves both without one.
	StorageClass   string
	NoStorageClass bool
	// Labels and Annotations of the PVC.
	Labels, Annotations map[string]string
	// Size. Default: 1Gi.
	Size string
	// AccessMode. Default: ReadWriteOnce.
	AccessMode corev1.PersistentVolumeAccessMode
	// Mode. Default: Filesystem.
	Mode corev1.PersistentVolumeMode
}

// longestPVName is more than provisioners use. A PV may have a name of 253, but Velero can't unpack a file that is called so.
const longestPVName = 128

// PVName is the name of the PV.
func (v Volume) PVName() string {
	return shortened("pv-"+v.Namespace+"-"+v.Name, longestPVName)
}

// shortened gives a name that is too long a hash for its end, so that it stays unique.
func shortened(name string, longest int) string {
	if len(name) <= longest {
		return name
	}
	hash := fnv.New64a()
	_, _ = hash.Write([]byte(name)) // never fails
	suffix := fmt.Sprintf("-%016x", hash.Sum64())
	return strings.TrimRight(name[:longest-len(suffix)], "-.") + suffix
}

// Handle is the PV's CSI volume handle.
func (v Volume) Handle() string { return v.Namespace + "/" + v.Name }

// Pod is a running pod.
type Pod struct {
	Namespace, Name     string
	Labels, Annotations map[string]string
	// Claims are the names of the PVCs that are mounted.
	Claims []string
	// Containers. Default: one, ContainerName.
	Containers []string
	// Phase. Default: Running.
	Phase corev1.PodPhase
	// Mutate, if set, may change the object before it is created.
	Mutate func(*corev1.Pod)
}

// CreateNamespaces creates the namespaces that don't exist yet.
func (c *Cluster) CreateNamespaces(ctx context.Context, names ...string) error {
	return each(ctx, names, func(ctx context.Context, name string) error {
		err := c.create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	})
}

// CreateVolumes creates bound PVCs and PVs; their namespaces must exist.
func (c *Cluster) CreateVolumes(ctx context.Context, volumes ...Volume) error {
	return each(ctx, volumes, c.createVolume)
}

// CreatePods creates pods and makes them look running and ready on the lab's node.
func (c *Cluster) CreatePods(ctx context.Context, pods ...Pod) error {
	return each(ctx, pods, c.createPod)
}

// each runs the work for every item, a bounded number at once, up to the first error.
func each[T any](ctx context.Context, items []T, work func(context.Context, T) error) error {
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(inParallel)
	for _, item := range items {
		group.Go(func() error { return work(groupCtx, item) })
	}
	return group.Wait()
}

// createVolume stands for provisioner and binder: the claim first, since the PV refers to its UID.
func (c *Cluster) createVolume(ctx context.Context, v Volume) error {
	if !v.NoStorageClass {
		setDefault(&v.StorageClass, v.Driver)
	}
	setDefault(&v.Size, "1Gi")
	setDefault(&v.AccessMode, corev1.ReadWriteOnce)
	setDefault(&v.Mode, corev1.PersistentVolumeFilesystem)
	size, err := resource.ParseQuantity(v.Size)
	if err != nil {
		return fmt.Errorf("size of volume %s: %w", v.Handle(), err)
	}
	capacity := corev1.ResourceList{corev1.ResourceStorage: size}

	pvc := v.claim(capacity)
	if err := c.create(ctx, pvc); err != nil {
		return err
	}
	pv := v.persistentVolume(pvc, capacity)
	if err := c.create(ctx, pv); err != nil {
		return err
	}
	pv.Status.Phase = corev1.VolumeBound
	if err := c.updateStatus(ctx, pv); err != nil {
		return err
	}
	pvc.Status = corev1.PersistentVolumeClaimStatus{
		Phase: corev1.ClaimBound, Capacity: capacity, AccessModes: pvc.Spec.AccessModes,
	}
	return c.updateStatus(ctx, pvc)
}

func (c *Cluster) updateStatus(ctx context.Context, object client.Object) error {
	if err := c.admin.Status().Update(ctx, object); err != nil {
		return fmt.Errorf("updating the status of %T %s: %w", object, client.ObjectKeyFromObject(object), err)
	}
	return nil
}

func (v Volume) claim(capacity corev1.ResourceList) *corev1.PersistentVolumeClaim {
	annotations := map[string]string{
		"pv.kubernetes.io/bind-completed":          "yes",
		"pv.kubernetes.io/bound-by-controller":     "yes",
		"volume.kubernetes.io/storage-provisioner": v.Driver,
	}
	for key, value := range v.Annotations {
		annotations[key] = value
	}
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: v.Namespace, Name: v.Name, Labels: v.Labels, Annotations: annotations},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes:      []corev1.PersistentVolumeAccessMode{v.AccessMode},
			Resources:        corev1.VolumeResourceRequirements{Requests: capacity},
			StorageClassName: &v.StorageClass, VolumeMode: &v.Mode, VolumeName: v.PVName(),
		},
	}
}

func (v Volume) persistentVolume(pvc *corev1.PersistentVolumeClaim, capacity corev1.ResourceList) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name: v.PVName(), Annotations: map[string]string{"pv.kubernetes.io/provisioned-by": v.Driver},
		},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes: pvc.Spec.AccessModes, Capacity: capacity,
			StorageClassName: v.StorageClass, VolumeMode: &v.Mode,
			PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				CSI: &corev1.CSIPersistentVolumeSource{Driver: v.Driver, VolumeHandle: v.Handle()},
			},
			ClaimRef: &corev1.ObjectReference{
				APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: pvc.Namespace, Name: pvc.Name,
				UID: pvc.UID, ResourceVersion: pvc.ResourceVersion,
			},
		},
	}
}

func (c *Cluster) createPod(ctx context.Context, p Pod) error {
	setDefault(&p.Phase, corev1.PodRunning)
	if len(p.Containers) == 0 {
		p.Containers = []string{ContainerName}
	}
	pod := p.object(c.opts.NodeName)
	if p.Mutate != nil {
		p.Mutate(pod)
	}
	if err := c.create(ctx, pod); err != nil {
		return err
	}
	pod.Status = podStatus(pod, p.Phase)
	return c.updateStatus(ctx, pod)
}

func (p Pod) object(node string) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: p.Namespace, Name: p.Name, Labels: p.Labels, Annotations: p.Annotations,
		},
		Spec: corev1.PodSpec{NodeName: node, TerminationGracePeriodSeconds: ptr.To(int64(0))},
	}
	var mounts []corev1.VolumeMount
	for _, claim := range p.Claims {
		source := &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}
		// A volume's name is a label, which has no dots and is shorter than a claim's name can be.
		name := shortened(strings.ReplaceAll(claim, ".", "-"), validation.DNS1123LabelMaxLength)
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{
			Name: name, VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: source},
		})
		mounts = append(mounts, corev1.VolumeMount{Name: name, MountPath: "/data/" + claim})
	}
	for _, name := range p.Containers {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{
			Name: name, Image: "registry.invalid/lab/" + name, VolumeMounts: mounts,
		})
	}
	return pod
}

// podStatus is what a kubelet would report of a pod in that phase.
func podStatus(pod *corev1.Pod, phase corev1.PodPhase) corev1.PodStatus {
	status := corev1.PodStatus{Phase: phase}
	if phase != corev1.PodRunning {
		return status
	}
	now := metav1.Now()
	status.StartTime = &now
	status.HostIP, status.PodIP = "127.0.0.1", "127.0.0.1"
	for _, kind := range []corev1.PodConditionType{corev1.PodScheduled, corev1.PodInitialized, corev1.ContainersReady, corev1.PodReady} {
		status.Conditions = append(status.Conditions, corev1.PodCondition{
			Type: kind, Status: corev1.ConditionTrue, LastTransitionTime: now,
		})
	}
	for _, container := range pod.Spec.Containers {
		status.ContainerStatuses = append(status.ContainerStatuses, corev1.ContainerStatus{
			Name: container.Name, Image: container.Image, Ready: true, Started: ptr.To(true),
			State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}},
		})
	}
	return status
}
