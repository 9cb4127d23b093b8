// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"fmt"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/kuberesource"
	veleroplugin "github.com/vmware-tanzu/velero/pkg/plugin/velero"
	veleroutil "github.com/vmware-tanzu/velero/pkg/util/csi"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
)

// DescribeClaim returns a copy of a claim with what a restore needs to find its snapshot: labels, annotation, and a
// request that is at least as large as what the snapshot restores to (BEHAVIOURS 283, 284).
func DescribeClaim(claim runtime.Unstructured, backup string, vs *snapshotv1.VolumeSnapshot, content *snapshotv1.VolumeSnapshotContent) (*unstructured.Unstructured, error) {
	pvc, err := toClaim(claim)
	if err != nil {
		return nil, err
	}
	nameSnapshot(pvc, backup, vs.Name)
	raiseRequest(pvc, content)
	return fromClaim(pvc)
}

// nameSnapshot puts on a claim which snapshot of which backup it has.
func nameSnapshot(pvc *corev1.PersistentVolumeClaim, backup, vs string) {
	metav1.SetMetaDataLabel(&pvc.ObjectMeta, velerov1.VolumeSnapshotLabel, vs)
	metav1.SetMetaDataLabel(&pvc.ObjectMeta, velerov1.BackupNameLabel, backup)
	metav1.SetMetaDataAnnotation(&pvc.ObjectMeta, velerov1.VolumeSnapshotLabel, vs)
}

func fromClaim(pvc *corev1.PersistentVolumeClaim) (*unstructured.Unstructured, error) {
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(pvc)
	if err != nil {
		return nil, fmt.Errorf("encoding claim %s/%s: %w", pvc.Namespace, pvc.Name, err)
	}
	return &unstructured.Unstructured{Object: object}, nil
}

func raiseRequest(pvc *corev1.PersistentVolumeClaim, content *snapshotv1.VolumeSnapshotContent) {
	if content == nil || content.Status == nil || content.Status.RestoreSize == nil {
		return
	}
	size := resource.NewQuantity(*content.Status.RestoreSize, resource.BinarySI)
	if current, ok := pvc.Spec.Resources.Requests[corev1.ResourceStorage]; ok && current.Cmp(*size) >= 0 {
		return
	}
	if pvc.Spec.Resources.Requests == nil {
		pvc.Spec.Resources.Requests = corev1.ResourceList{}
	}
	pvc.Spec.Resources.Requests[corev1.ResourceStorage] = *size
}

// SnapshotAnnotations returns what a restore reads from a VolumeSnapshot in order to bind the existing physical snapshot
// again (BEHAVIOURS 292).
func SnapshotAnnotations(content *snapshotv1.VolumeSnapshotContent) map[string]string {
	annotations := map[string]string{velerov1.VSCDeletionPolicyAnnotation: string(content.Spec.DeletionPolicy)}
	status := content.Status
	if status == nil {
		return annotations
	}
	if status.SnapshotHandle != nil {
		annotations[velerov1.VolumeSnapshotHandleAnnotation] = *status.SnapshotHandle
		annotations[velerov1.DriverNameAnnotation] = content.Spec.Driver
	}
	if status.RestoreSize != nil {
		annotations[velerov1.VolumeSnapshotRestoreSize] = resource.NewQuantity(*status.RestoreSize, resource.BinarySI).String()
	}
	if status.VolumeGroupSnapshotHandle != nil {
		annotations[velerov1.VolumeGroupSnapshotHandleAnnotation] = *status.VolumeGroupSnapshotHandle
	}
	return annotations
}

// DeletionSecret returns the secret that the driver needs to delete a snapshot, as far as the content names one
// (BEHAVIOURS 299).
func DeletionSecret(content *snapshotv1.VolumeSnapshotContent) []veleroplugin.ResourceIdentifier {
	if !veleroutil.IsVolumeSnapshotContentHasDeleteSecret(content) {
		return nil
	}
	return []veleroplugin.ResourceIdentifier{identifier(kuberesource.Secrets,
		content.Annotations[velerov1.PrefixedSecretNamespaceAnnotation], content.Annotations[velerov1.PrefixedSecretNameAnnotation])}
}

// ListSecret returns the secret that the driver needs to list snapshots, as far as the class names one (BEHAVIOURS 300).
func ListSecret(class *snapshotv1.VolumeSnapshotClass) []veleroplugin.ResourceIdentifier {
	if !veleroutil.IsVolumeSnapshotClassHasListerSecret(class) {
		return nil
	}
	return []veleroplugin.ResourceIdentifier{identifier(kuberesource.Secrets,
		class.Annotations[velerov1.PrefixedListSecretNamespaceAnnotation], class.Annotations[velerov1.PrefixedListSecretNameAnnotation])}
}
