// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package parity

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Sources of the PV behind a claim.
const (
	volumeCSI      = "csi"
	volumeHostPath = "hostPath"
	volumeNFS      = "nfs"
	volumeNone     = "none"
)

// createClaim makes a claim and, unless there is to be none, the PV that it is bound to.
func (w *world) createClaim(ctx context.Context, item Item) error {
	claim := item.claim()
	if err := w.add(ctx, claim, item.Deleting); err != nil {
		return err
	}
	phase := item.Phase
	if phase == "" {
		phase = "Bound"
	}
	if item.Volume == volumeNone {
		return w.setStatus(ctx, claim, object{"phase": "Pending"})
	}
	volume := item.persistentVolume(claim)
	if err := w.add(ctx, volume, false); err != nil {
		return err
	}
	if err := w.setStatus(ctx, volume, object{"phase": "Bound"}); err != nil {
		return err
	}
	if item.Deleting {
		return nil
	}
	return w.setStatus(ctx, claim, object{
		"phase": phase, "accessModes": []any{"ReadWriteOnce"}, "capacity": object{"storage": "1Gi"},
	})
}

// pvName is the name of the PV behind a claim.
func (i Item) pvName() string { return "pv-" + i.namespace + "-" + i.name }

func (i Item) driver() string {
	if i.Driver != "" {
		return i.Driver
	}
	return DriverName
}

// claim is the PersistentVolumeClaim.
func (i Item) claim() *unstructured.Unstructured {
	spec := object{
		"accessModes": []any{"ReadWriteOnce"}, "volumeMode": "Filesystem",
		"resources": object{"requests": object{"storage": "1Gi"}},
	}
	spec["storageClassName"] = i.storageClass()
	if i.Volume != volumeNone {
		spec["volumeName"] = i.pvName()
	}
	made := &unstructured.Unstructured{Object: object{"spec": spec}}
	made.SetGroupVersionKind(kinds["PersistentVolumeClaim"].gvk)
	i.identify(made)
	if i.Volume != volumeNone {
		made.SetAnnotations(mergedText(map[string]string{"pv.kubernetes.io/bind-completed": "yes"}, i.Annotations))
	}
	merge(made.Object, i.Patch)
	return made
}

// storageClass is the driver's own for CSI volumes, else one that needs not exist.
func (i Item) storageClass() string {
	if i.isCSI() {
		return i.driver()
	}
	return "plain"
}

func mergedText(maps ...map[string]string) map[string]string {
	out := map[string]string{}
	for _, one := range maps {
		for key, value := range one {
			out[key] = value
		}
	}
	return out
}

// persistentVolume is the PV, bound to a claim that exists.
func (i Item) persistentVolume(claim *unstructured.Unstructured) *unstructured.Unstructured {
	spec := object{
		"accessModes": []any{"ReadWriteOnce"}, "volumeMode": "Filesystem", "capacity": object{"storage": "1Gi"},
		"storageClassName": i.storageClass(), "persistentVolumeReclaimPolicy": "Delete",
		"claimRef": object{
			"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": claim.GetNamespace(), "name": claim.GetName(),
			"uid": string(claim.GetUID()), "resourceVersion": claim.GetResourceVersion(),
		},
	}
	switch i.Volume {
	case volumeHostPath:
		spec["hostPath"] = object{"path": "/data/" + i.name}
	case volumeNFS:
		spec["nfs"] = object{"server": "nfs.invalid", "path": "/" + i.name}
	default:
		spec["csi"] = object{"driver": i.driver(), "volumeHandle": i.namespace + "/" + i.name}
	}
	made := &unstructured.Unstructured{Object: object{"spec": spec}}
	made.SetGroupVersionKind(kinds["PersistentVolume"].gvk)
	made.SetName(i.pvName())
	merge(made.Object, i.PVPatch)
	return made
}

// createPod makes a pod that looks running.
func (w *world) createPod(ctx context.Context, item Item) error {
	made := item.pod(w.node)
	if err := w.add(ctx, made, item.Deleting); err != nil {
		return err
	}
	phase := item.Phase
	if phase == "" {
		phase = "Running"
	}
	if item.Deleting {
		return nil
	}
	return w.setStatus(ctx, made, object{"phase": phase, "hostIP": "127.0.0.1", "podIP": "127.0.0.1"})
}

func (i Item) pod(node string) *unstructured.Unstructured {
	containers := i.Containers
	if len(containers) == 0 {
		containers = []string{"app"}
	}
	var volumes, mounts, list []any
	for _, claim := range i.Claims {
		volumes = append(volumes, object{"name": claim, "persistentVolumeClaim": object{"claimName": claim}})
		mounts = append(mounts, object{"name": claim, "mountPath": "/" + claim})
	}
	for _, name := range containers {
		list = append(list, object{"name": name, "image": "registry.invalid/" + name, "volumeMounts": mounts})
	}
	spec := object{"nodeName": node, "terminationGracePeriodSeconds": int64(0), "containers": list}
	if volumes != nil {
		spec["volumes"] = volumes
	}
	made := &unstructured.Unstructured{Object: object{"spec": spec}}
	made.SetGroupVersionKind(kinds["Pod"].gvk)
	i.identify(made)
	merge(made.Object, i.Patch)
	return made
}
