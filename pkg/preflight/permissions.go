// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
)

// Permission is one thing that the server has to be allowed to do.
type Permission struct {
	Verb string
	// Group and Resource, with "/subresource" behind it where there is one. "*" stands for all.
	Group, Resource string
	// Namespace that it is needed in; empty for all of them and for what is in none.
	Namespace string
	// Severity of a finding that it is missing.
	Severity Severity
	// Without says what happens then.
	Without string
}

// need is a line of the table of permissions.
type need struct {
	verbs           []string
	group, resource string
	// home: it is needed only in Velero's own namespace.
	home     bool
	severity Severity
	without  string
}

// needs are what the server asks the API for when it takes, follows, removes and deletes backups with CSI snapshots.
var needs = []need{
	{[]string{"create"}, snapshotv1.GroupName, "volumesnapshots", false, Error, "no CSI snapshot can be taken"},
	{[]string{"get", "list"}, snapshotv1.GroupName, "volumesnapshots", false, Error, "no CSI snapshot can be followed"},
	{[]string{"patch"}, snapshotv1.GroupName, "volumesnapshots", false, Error, "VolumeSnapshots can't be written into a backup"},
	{[]string{"delete"}, snapshotv1.GroupName, "volumesnapshots", false, Error, "snapshots that aren't wanted stay in the cluster"},
	{[]string{"watch"}, snapshotv1.GroupName, "volumesnapshots", false, Warning, "all VolumeSnapshots of Velero are listed every 5 seconds instead"},
	{[]string{"get", "list"}, snapshotv1.GroupName, "volumesnapshotcontents", false, Error, "no CSI snapshot can be followed"},
	{[]string{"patch", "delete"}, snapshotv1.GroupName, "volumesnapshotcontents", false, Error, "snapshots that aren't wanted stay at the storage"},
	{[]string{"create"}, snapshotv1.GroupName, "volumesnapshotcontents", false, Error, "deleting a backup can't delete its snapshots"},
	{[]string{"watch"}, snapshotv1.GroupName, "volumesnapshotcontents", false, Warning, "all VolumeSnapshotContents are listed every 5 seconds instead"},
	{[]string{"get", "list"}, snapshotv1.GroupName, "volumesnapshotclasses", false, Error, "no VolumeSnapshotClass can be chosen"},
	{[]string{"create"}, "", "pods/exec", false, Error, "backup hooks can't be run, so pods that have some fail"},
	{[]string{"get"}, "", "pods/exec", false, Warning, "backup hooks can't be run through a proxy that lets no SPDY pass"},
	{[]string{"get", "list"}, "", "persistentvolumeclaims", false, Error, "no claim can be backed up"},
	{[]string{"get", "list"}, "", "persistentvolumes", false, Error, "no volume can be backed up"},
	{[]string{"get", "list"}, "", "pods", false, Error, "no pod can be backed up"},
	{[]string{"get", "list"}, "", "namespaces", false, Error, "no namespace can be backed up"},
	{[]string{"watch"}, "", "namespaces", false, Warning, "Velero's queue of backups lists all namespaces again and again"},
	{[]string{"get", "list"}, "*", "*", false, Warning, "what may not be read is missing from backups"},
	{[]string{"get", "list", "watch"}, "", "secrets", true, Error, "credentials of storage locations can't be read"},
	{[]string{"create"}, "", "secrets", true, Warning, "the key of file-system backups can't be made at the first start"},
	{[]string{"get", "list", "watch"}, "", "configmaps", true, Warning, "error rules and other settings can't be followed"},
	{[]string{"create", "update", "patch", "delete"}, "", "configmaps", true, Warning, "a pod with pre and post hooks is not frozen, because that can't be recorded"},
	{[]string{"get", "list", "create", "update", "delete"}, "coordination.k8s.io", "leases", true, Warning, "another server in the namespace takes this one for dead"},
	{[]string{"create", "patch"}, "", "events", true, Warning, "events are lost"},
	{[]string{"get", "list", "watch", "create", "update", "patch", "delete"}, velerov1.SchemeGroupVersion.Group, "*", true, Error, "the server can't work at all"},
	{[]string{"deletecollection"}, velerov1.SchemeGroupVersion.Group, "deletebackuprequests", true, Warning, "requests for the deletion of a backup stay"},
}

// Permissions are what a server in that namespace needs.
func Permissions(namespace string) []Permission {
	var out []Permission
	for _, n := range needs {
		for _, verb := range n.verbs {
			p := Permission{Verb: verb, Group: n.group, Resource: n.resource, Severity: n.severity, Without: n.without}
			if n.home {
				p.Namespace = namespace
			}
			out = append(out, p)
		}
	}
	return out
}
