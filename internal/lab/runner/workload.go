// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/velero-clipper/clipper/internal/lab/cluster"
	"github.com/velero-clipper/clipper/internal/lab/scenario"
)

// inParallel is how many objects the lab creates at once.
const inParallel = 32

// createWorkload fills the cluster: classes, namespaces, claims with their volumes, pods, plain objects.
func (r *run) createWorkload(ctx context.Context, _ *errgroup.Group) error {
	if err := r.createVeleroDeployment(ctx); err != nil {
		return err
	}
	if *r.scenario.Cluster.SnapshotCRDs {
		if err := r.createSnapshotClasses(ctx); err != nil {
			return err
		}
	}
	for _, namespace := range r.workload.Namespaces {
		object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace.Namespace, Labels: namespace.Labels}}
		if err := r.lab.cluster.Client().Create(ctx, object); err != nil {
			return fmt.Errorf("creating namespace %s: %w", namespace.Namespace, err)
		}
	}
	if err := r.createClaims(ctx); err != nil {
		return err
	}
	var pods []cluster.Pod
	for _, pod := range r.workload.Pods {
		annotations, err := hookAnnotations(pod)
		if err != nil {
			return err
		}
		pods = append(pods, cluster.Pod{
			Namespace: pod.Namespace, Name: pod.Pod.Name, Labels: pod.Labels, Annotations: annotations,
			Claims: pod.Claims, Containers: pod.Containers, Phase: corev1.PodPhase(pod.Phase),
		})
	}
	if err := r.lab.cluster.CreatePods(ctx, pods...); err != nil {
		return err
	}
	if err := r.createPlainObjects(ctx); err != nil {
		return err
	}
	for _, manifest := range r.scenario.Manifests {
		if err := r.createManifest(ctx, manifest); err != nil {
			return err
		}
	}
	return nil
}

// createVeleroDeployment makes the Deployment that an installed Velero would run from. Restore reads its image from there.
func (r *run) createVeleroDeployment(ctx context.Context) error {
	labels := map[string]string{"deploy": "velero"}
	deployment := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: cluster.VeleroNamespace, Name: "velero"},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "velero", Image: "registry.invalid/velero:lab"}}},
			},
		},
	}
	if err := r.lab.cluster.Client().Create(ctx, deployment); err != nil {
		return fmt.Errorf("creating the deployment of Velero: %w", err)
	}
	return nil
}

func (r *run) createSnapshotClasses(ctx context.Context) error {
	for _, d := range r.scenario.Storage.Drivers {
		if err := r.createGroupClass(ctx, d); err != nil {
			return err
		}
		if !*d.SnapshotClass {
			continue
		}
		class := &snapshotv1.VolumeSnapshotClass{
			ObjectMeta:     metav1.ObjectMeta{Name: d.Name},
			Driver:         d.Name,
			DeletionPolicy: snapshotv1.DeletionPolicy(d.DeletionPolicy),
		}
		if *d.SnapshotClassLabel {
			class.Labels = map[string]string{"velero.io/csi-volumesnapshot-class": "true"}
		}
		if err := r.lab.cluster.Client().Create(ctx, class); err != nil {
			return fmt.Errorf("creating VolumeSnapshotClass %s: %w", class.Name, err)
		}
	}
	return r.createMoreClasses(ctx)
}

// createGroupClass makes the class by which Velero finds a driver that takes groups.
func (r *run) createGroupClass(ctx context.Context, d scenario.Driver) error {
	if !d.Groups {
		return nil
	}
	class := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "groupsnapshot.storage.k8s.io/v1", "kind": "VolumeGroupSnapshotClass", "driver": d.Name, "deletionPolicy": d.DeletionPolicy,
	}}
	class.SetName(d.Name)
	class.SetLabels(map[string]string{"velero.io/csi-volumegroupsnapshot-class": "true"})
	if err := r.lab.cluster.Client().Create(ctx, class); err != nil {
		return fmt.Errorf("creating VolumeGroupSnapshotClass %s: %w", class.GetName(), err)
	}
	return nil
}

func (r *run) createMoreClasses(ctx context.Context) error {
	for _, d := range r.scenario.Storage.Drivers {
		for _, spec := range d.MoreClasses {
			class := &snapshotv1.VolumeSnapshotClass{
				ObjectMeta:     metav1.ObjectMeta{Name: spec.Name, Labels: spec.Labels, Annotations: spec.Annotations},
				Driver:         d.Name,
				DeletionPolicy: snapshotv1.DeletionPolicy(spec.DeletionPolicy),
			}
			if err := r.lab.cluster.Client().Create(ctx, class); err != nil {
				return fmt.Errorf("creating VolumeSnapshotClass %s: %w", class.Name, err)
			}
		}
	}
	return nil
}

// createOldSnapshots makes the contents that a cluster has collected.
func (r *run) createOldSnapshots(ctx context.Context, _ *errgroup.Group) error {
	return r.lab.cluster.CreateOldContents(ctx, r.scenario.Cluster.OldSnapshots)
}

func (r *run) createClaims(ctx context.Context) error {
	var volumes []cluster.Volume
	for _, claim := range r.workload.Claims {
		if claim.Phase != string(corev1.ClaimBound) {
			if err := r.createUnbound(ctx, claim); err != nil {
				return err
			}
			continue
		}
		volume := cluster.Volume{
			Namespace: claim.Namespace, Name: claim.Claim.Name, Driver: claim.Driver,
			Labels: claim.Labels, Annotations: claim.Annotations,
		}
		if claim.StorageClass != nil {
			volume.StorageClass, volume.NoStorageClass = *claim.StorageClass, *claim.StorageClass == ""
		}
		if len(claim.Pods) > 1 {
			volume.AccessMode = corev1.ReadWriteMany
		}
		volumes = append(volumes, volume)
	}
	return r.lab.cluster.CreateVolumes(ctx, volumes...)
}

// createUnbound makes a claim that waits for a volume, or has lost its own.
func (r *run) createUnbound(ctx context.Context, claim scenario.WorkloadClaim) error {
	object := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: claim.Namespace, Name: claim.Claim.Name, Labels: claim.Labels, Annotations: claim.Annotations,
		},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, StorageClassName: &claim.Driver,
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}
	if claim.Phase == string(corev1.ClaimLost) {
		object.Spec.VolumeName = "lost-" + claim.Claim.Name
	}
	if err := r.lab.cluster.Client().Create(ctx, object); err != nil {
		return fmt.Errorf("creating claim %s: %w", claim.Key(), err)
	}
	object.Status.Phase = corev1.PersistentVolumeClaimPhase(claim.Phase)
	if err := r.lab.cluster.Client().Status().Update(ctx, object); err != nil {
		return fmt.Errorf("setting the phase of claim %s: %w", claim.Key(), err)
	}
	return nil
}

// hookAnnotations adds Velero's backup hook annotations to those of the pod.
func hookAnnotations(pod scenario.WorkloadPod) (map[string]string, error) {
	annotations := maps.Clone(pod.Annotations)
	if annotations == nil {
		annotations = map[string]string{}
	}
	for prefix, hook := range map[string]*scenario.Hook{"pre": pod.Hooks.Pre, "post": pod.Hooks.Post} {
		if hook == nil {
			continue
		}
		command, err := json.Marshal(hook.Command)
		if err != nil {
			return nil, fmt.Errorf("writing the %s hook of pod %s: %w", prefix, pod.Key(), err)
		}
		prefix += ".hook.backup.velero.io/"
		annotations[prefix+"command"] = string(command)
		for key, value := range map[string]string{"container": hook.Container, "on-error": hook.OnError} {
			if value != "" {
				annotations[prefix+key] = value
			}
		}
		if hook.Timeout > 0 {
			annotations[prefix+"timeout"] = hook.Timeout.String()
		}
	}
	return annotations, nil
}

func (r *run) createPlainObjects(ctx context.Context) error {
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(inParallel)
	for _, namespace := range r.workload.Namespaces {
		for i := range namespace.Objects.ConfigMaps {
			r.createLater(groupCtx, group, &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Namespace, Name: fmt.Sprintf("config-%d", i)},
				Data:       map[string]string{"key": "value"},
			})
		}
		for i := range namespace.Objects.Secrets {
			r.createLater(groupCtx, group, &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace.Namespace, Name: fmt.Sprintf("secret-%d", i)},
				StringData: map[string]string{"key": "value"},
			})
		}
	}
	return group.Wait()
}

func (r *run) createLater(ctx context.Context, group *errgroup.Group, object client.Object) {
	group.Go(func() error {
		if err := r.lab.cluster.Client().Create(ctx, object); err != nil {
			return fmt.Errorf("creating %T %s/%s: %w", object, object.GetNamespace(), object.GetName(), err)
		}
		return nil
	})
}

// backupObject is a scenario's backup as Velero takes it.
func backupObject(b scenario.Backup) *velerov1.Backup {
	backup := &velerov1.Backup{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: cluster.VeleroNamespace, Name: b.Name, Labels: b.Labels, Annotations: b.Annotations,
		},
		Spec:   *b.Spec.BackupSpec.DeepCopy(),
		Status: velerov1.BackupStatus{Phase: velerov1.BackupPhase(b.Phase)},
	}
	backup.Spec.StorageLocation = cmp.Or(backup.Spec.StorageLocation, "default")
	return backup
}
