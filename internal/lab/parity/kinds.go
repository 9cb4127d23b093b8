// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package parity

import (
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// kind is what the suite knows of a kind: where it belongs and what the API server wants at least.
type kind struct {
	gvk     schema.GroupVersionKind
	minimal map[string]any
}

type object = map[string]any

func core(name string, minimal object) kind {
	return kind{gvk: schema.GroupVersionKind{Version: "v1", Kind: name}, minimal: minimal}
}

func grouped(group, name string, minimal object) kind {
	return kind{gvk: schema.GroupVersionKind{Group: group, Version: "v1", Kind: name}, minimal: minimal}
}

var selector = object{"matchLabels": object{"app": "x"}}

var template = object{
	"metadata": object{"labels": object{"app": "x"}},
	"spec":     object{"containers": []any{object{"name": "app", "image": "registry.invalid/app"}}},
}

// kinds are all that cases may use. Widget is a namespaced kind of the suite's own with two versions, Gadget a
// cluster-scoped one.
var kinds = map[string]kind{
	"Namespace":             core("Namespace", nil),
	"ConfigMap":             core("ConfigMap", nil),
	"Secret":                core("Secret", nil),
	"ServiceAccount":        core("ServiceAccount", nil),
	"Service":               core("Service", object{"spec": object{"clusterIP": "None", "ports": []any{object{"port": int64(80)}}}}),
	"Endpoints":             core("Endpoints", nil),
	"Event":                 core("Event", object{"reason": "Test", "message": "a message"}),
	"LimitRange":            core("LimitRange", object{"spec": object{"limits": []any{}}}),
	"ResourceQuota":         core("ResourceQuota", object{"spec": object{}}),
	"Pod":                   core("Pod", nil),
	"PersistentVolumeClaim": core("PersistentVolumeClaim", nil),
	"PersistentVolume":      core("PersistentVolume", nil),

	"Deployment":  grouped("apps", "Deployment", object{"spec": object{"selector": selector, "template": template}}),
	"ReplicaSet":  grouped("apps", "ReplicaSet", object{"spec": object{"selector": selector, "template": template}}),
	"DaemonSet":   grouped("apps", "DaemonSet", object{"spec": object{"selector": selector, "template": template}}),
	"StatefulSet": grouped("apps", "StatefulSet", object{"spec": object{"serviceName": "x", "selector": selector, "template": template}}),
	"NetworkPolicy": grouped("networking.k8s.io", "NetworkPolicy",
		object{"spec": object{"podSelector": object{}}}),
	"IngressClass":        grouped("networking.k8s.io", "IngressClass", object{"spec": object{"controller": "example.com/c"}}),
	"Role":                grouped("rbac.authorization.k8s.io", "Role", nil),
	"RoleBinding":         grouped("rbac.authorization.k8s.io", "RoleBinding", nil),
	"ClusterRole":         grouped("rbac.authorization.k8s.io", "ClusterRole", nil),
	"ClusterRoleBinding":  grouped("rbac.authorization.k8s.io", "ClusterRoleBinding", nil),
	"StorageClass":        grouped("storage.k8s.io", "StorageClass", object{"provisioner": DriverName}),
	"PriorityClass":       grouped("scheduling.k8s.io", "PriorityClass", object{"value": int64(7)}),
	"VolumeSnapshotClass": grouped("snapshot.storage.k8s.io", "VolumeSnapshotClass", object{"driver": DriverName, "deletionPolicy": "Delete"}),
	"Widget":              grouped("parity.clipper.dev", "Widget", nil),
	"Gadget":              grouped("parity.clipper.dev", "Gadget", nil),

	"BackupStorageLocation":  grouped("velero.io", "BackupStorageLocation", nil),
	"VolumeSnapshotLocation": grouped("velero.io", "VolumeSnapshotLocation", nil),
}
