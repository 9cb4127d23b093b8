// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/velero-clipper/clipper/internal/lab/cluster"
)

// bindRestored stands in for provisioner and volume binder: it gives a volume to each claim of the selected restores, until
// the context ends. Velero does not finish a restore before its claims are bound.
func (r *run) bindRestored(ctx context.Context, restores client.ListOption) error {
	bound := map[types.UID]bool{} // events may show the claim as it was before
	err := cluster.Await(ctx, r.lab.cluster.Client(), &corev1.PersistentVolumeClaimList{}, func(event watch.Event) (bool, error) {
		claim, ok := event.Object.(*corev1.PersistentVolumeClaim)
		if !ok || event.Type == watch.Deleted || claim.Spec.VolumeName != "" || !fromSnapshot(claim) || bound[claim.UID] {
			return false, nil
		}
		bound[claim.UID] = true
		return false, r.bind(ctx, claim.DeepCopy())
	}, restores)
	if errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}

func fromSnapshot(claim *corev1.PersistentVolumeClaim) bool {
	return claim.Spec.DataSource != nil && claim.Spec.DataSource.Kind == "VolumeSnapshot"
}

// driverOf is the driver of a storage class. The lab's classes are named like their drivers; a claim without one gets the first.
func (r *run) driverOf(class string) string {
	if r.lab.drivers[class] != nil {
		return class
	}
	return r.scenario.Storage.Drivers[0].Name
}

// bind makes a volume for a claim and binds the two; the volume first, since the claim is to name it.
func (r *run) bind(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	class := ""
	if claim.Spec.StorageClassName != nil {
		class = *claim.Spec.StorageClassName
	}
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pvc-" + string(claim.UID)},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes: claim.Spec.AccessModes, Capacity: claim.Spec.Resources.Requests, VolumeMode: claim.Spec.VolumeMode,
			StorageClassName: class, PersistentVolumeReclaimPolicy: corev1.PersistentVolumeReclaimDelete,
			ClaimRef: &corev1.ObjectReference{
				APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID,
			},
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				CSI: &corev1.CSIPersistentVolumeSource{Driver: r.driverOf(class), VolumeHandle: claim.Namespace + "/" + claim.Name},
			},
		},
	}
	c := r.lab.cluster.Client()
	if err := c.Create(ctx, volume); err != nil {
		return fmt.Errorf("creating the volume of restored claim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	volume.Status.Phase = corev1.VolumeBound
	bound := claim.DeepCopy()
	bound.Spec.VolumeName = volume.Name
	if err := errors.Join(c.Status().Update(ctx, volume), c.Patch(ctx, bound, client.MergeFrom(claim))); err != nil {
		return fmt.Errorf("binding restored claim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	pending := bound.DeepCopy()
	bound.Status = corev1.PersistentVolumeClaimStatus{
		Phase: corev1.ClaimBound, AccessModes: claim.Spec.AccessModes, Capacity: claim.Spec.Resources.Requests,
	}
	if err := c.Status().Patch(ctx, bound, client.MergeFrom(pending)); err != nil {
		return fmt.Errorf("setting the phase of restored claim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	return nil
}
