// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"slices"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/kuberesource"
	"github.com/vmware-tanzu/velero/pkg/util/collections"

	"github.com/velero-clipper/clipper/pkg/backup"
)

// validate refuses what can't be run, and takes out of the filters what comes into a backup in another way.
func validate(j *job) {
	spec := &j.backup.Spec
	if usesOldFilters(spec) && usesScopedFilters(spec) {
		j.refuse("spec.includedResources, excludedResources and includeClusterResources can't be mixed with the included and excluded " +
			"cluster-scoped and namespace-scoped resources; use the one kind or the other")
	}
	if collections.UseOldResourceFilters(*spec) {
		validateOldFilters(j)
	} else {
		validateScopedFilters(j)
	}
	if len(spec.IncludedNamespaces) == 0 {
		spec.IncludedNamespaces = []string{"*"}
	}
	for _, err := range collections.ValidateNamespaceIncludesExcludes(spec.IncludedNamespaces, spec.ExcludedNamespaces) {
		j.refuse("spec.includedNamespaces and excludedNamespaces: %v", err)
	}
	if spec.LabelSelector != nil && spec.OrLabelSelectors != nil {
		j.refuse("spec.labelSelector and spec.orLabelSelectors can't be used together; put the one into the list of the others")
	}
	if _, err := backup.ParallelismOf(j.backup); err != nil {
		j.refuse("%v", err)
	}
	if _, _, err := backup.MaxFreezeOf(j.backup); err != nil {
		j.refuse("%v", err)
	}
	validatePolicies(j)
}

func usesOldFilters(spec *velerov1.BackupSpec) bool {
	return len(spec.IncludedResources) > 0 || len(spec.ExcludedResources) > 0 || spec.IncludeClusterResources != nil
}

func usesScopedFilters(spec *velerov1.BackupSpec) bool {
	return len(spec.IncludedClusterScopedResources) > 0 || len(spec.ExcludedClusterScopedResources) > 0 ||
		len(spec.IncludedNamespaceScopedResources) > 0 || len(spec.ExcludedNamespaceScopedResources) > 0
}

func validateOldFilters(j *job) {
	spec := &j.backup.Spec
	errs := collections.ValidateIncludesExcludes(spec.IncludedResources, spec.ExcludedResources)
	for _, err := range errs {
		j.refuse("spec.includedResources and excludedResources: %v", err)
	}
	if len(errs) == 0 {
		spec.IncludedResources, spec.ExcludedResources = leaveToPlugins(spec.IncludedResources, spec.ExcludedResources,
			kuberesource.VolumeSnapshots.String(), kuberesource.VolumeSnapshotContents.String())
	}
}

func validateScopedFilters(j *job) {
	spec := &j.backup.Spec
	errs := collections.ValidateScopedIncludesExcludes(spec.IncludedClusterScopedResources, spec.ExcludedClusterScopedResources)
	for _, err := range errs {
		j.refuse("spec.includedClusterScopedResources and excludedClusterScopedResources: %v", err)
	}
	if len(errs) == 0 {
		spec.IncludedClusterScopedResources, spec.ExcludedClusterScopedResources = leaveToPlugins(
			spec.IncludedClusterScopedResources, spec.ExcludedClusterScopedResources, kuberesource.VolumeSnapshotContents.String())
	}
	errs = collections.ValidateScopedIncludesExcludes(spec.IncludedNamespaceScopedResources, spec.ExcludedNamespaceScopedResources)
	for _, err := range errs {
		j.refuse("spec.includedNamespaceScopedResources and excludedNamespaceScopedResources: %v", err)
	}
	if len(errs) == 0 {
		spec.IncludedNamespaceScopedResources, spec.ExcludedNamespaceScopedResources = leaveToPlugins(
			spec.IncludedNamespaceScopedResources, spec.ExcludedNamespaceScopedResources, kuberesource.VolumeSnapshots.String())
	}
}

// leaveToPlugins takes resource types out of a filter that come into a backup only with the volumes they belong to (44).
func leaveToPlugins(includes, excludes []string, types ...string) (included, excluded []string) {
	for _, t := range types {
		if !slices.Contains(excludes, t) {
			excludes = append(excludes, t)
		}
	}
	return slices.DeleteFunc(slices.Clone(includes), func(name string) bool { return slices.Contains(excludes, name) }), excludes
}
