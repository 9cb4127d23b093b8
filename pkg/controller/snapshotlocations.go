// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"maps"
	"slices"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// SecretKey selects one key of a Secret in Velero's namespace.
type SecretKey = corev1.SecretKeySelector

// credentialsFileKey is where Velero's snapshot plugins look for the path of their credentials.
const credentialsFileKey = "credentialsFile"

// chooseSnapshotLocations finds one location per provider for native snapshots: those the spec names, and for each other
// provider the only one there is, or the server's default for it (37 to 39).
func (r *BackupReconciler) chooseSnapshotLocations(ctx context.Context, j *job) {
	all := new(velerov1.VolumeSnapshotLocationList)
	if err := r.deps.Client.List(ctx, all, client.InNamespace(j.backup.Namespace)); err != nil {
		j.refuse("the volume snapshot locations can't be listed: %v", err)
		return
	}
	byName := map[string]*velerov1.VolumeSnapshotLocation{}
	byProvider := map[string][]*velerov1.VolumeSnapshotLocation{}
	for i := range all.Items {
		location := &all.Items[i]
		byName[location.Name] = location
		byProvider[location.Spec.Provider] = append(byProvider[location.Spec.Provider], location)
	}

	chosen := namedLocations(j, byName)
	for _, provider := range slices.Sorted(maps.Keys(byProvider)) {
		if chosen[provider] != nil {
			continue
		}
		if location := r.locationFor(j, provider, byProvider[provider], byName); location != nil {
			chosen[provider] = location
		}
	}
	if len(j.backup.Status.ValidationErrors) > 0 {
		return
	}
	j.backup.Spec.VolumeSnapshotLocations = nil
	for _, provider := range slices.Sorted(maps.Keys(chosen)) {
		location := r.withCredentials(j, chosen[provider])
		j.backup.Spec.VolumeSnapshotLocations = append(j.backup.Spec.VolumeSnapshotLocations, location.Name)
		j.snapshotLocations = append(j.snapshotLocations, location)
	}
}

// namedLocations returns the locations that the spec names, by provider.
func namedLocations(j *job, byName map[string]*velerov1.VolumeSnapshotLocation) map[string]*velerov1.VolumeSnapshotLocation {
	chosen := map[string]*velerov1.VolumeSnapshotLocation{}
	for _, name := range j.backup.Spec.VolumeSnapshotLocations {
		location := byName[name]
		if location == nil {
			j.refuse("spec.volumeSnapshotLocations: location %q doesn't exist; see `velero snapshot-location get` for those that do", name)
			continue
		}
		if other := chosen[location.Spec.Provider]; other != nil && other.Name != name {
			j.refuse("spec.volumeSnapshotLocations: %q and %q are both for provider %s; name one of them", other.Name, name, location.Spec.Provider)
			continue
		}
		chosen[location.Spec.Provider] = location
	}
	return chosen
}

// locationFor chooses for a provider that the spec doesn't name a location of.
func (r *BackupReconciler) locationFor(j *job, provider string, candidates []*velerov1.VolumeSnapshotLocation, byName map[string]*velerov1.VolumeSnapshotLocation) *velerov1.VolumeSnapshotLocation {
	if len(candidates) == 1 {
		return candidates[0]
	}
	name := r.opts.Defaults.VolumeSnapshotLocations[provider]
	if name == "" {
		j.refuse("there are several volume snapshot locations for provider %s; name one in spec.volumeSnapshotLocations, "+
			"or give the server a default with --default-volume-snapshot-locations", provider)
		return nil
	}
	location := byName[name]
	switch {
	case location == nil:
		j.refuse("the server's default volume snapshot location for provider %s, %q, doesn't exist", provider, name)
		return nil
	case location.Spec.Provider != provider:
		j.refuse("the server's default volume snapshot location for provider %s, %q, is for provider %s", provider, name, location.Spec.Provider)
		return nil
	}
	return location
}

// withCredentials returns a copy of the location that tells its plugin where the credentials are.
func (r *BackupReconciler) withCredentials(j *job, location *velerov1.VolumeSnapshotLocation) *velerov1.VolumeSnapshotLocation {
	if location.Spec.Credential == nil {
		return location
	}
	location = location.DeepCopy()
	path, err := r.deps.Credentials.Path(location.Spec.Credential)
	if err != nil {
		j.refuse("the credentials of volume snapshot location %q can't be read: %v", location.Name, err)
		return location
	}
	if location.Spec.Config == nil {
		location.Spec.Config = map[string]string{}
	}
	location.Spec.Config[credentialsFileKey] = path
	return location
}
