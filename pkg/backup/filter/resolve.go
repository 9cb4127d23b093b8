// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package filter

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/sirupsen/logrus"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/discovery"
	"github.com/vmware-tanzu/velero/pkg/util/collections"
	corev1 "k8s.io/api/core/v1"
	crclient "sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/velero-clipper/clipper/internal/velero"
)

// argoCDManagedByLabel is set by Argo CD on a namespace that one of its instances looks after.
const argoCDManagedByLabel = "argocd.argoproj.io/managed-by"

// Deps is what Resolve needs of the cluster.
type Deps struct {
	// Client lists the namespaces, once. Required.
	Client crclient.Reader
	// Discovery resolves resource names and tells cluster-scoped from namespaced ones. Required.
	Discovery discovery.Helper
	// Policies are the backup's resource policies, or nil.
	Policies *velero.Policies
}

// Resolve reads the live namespaces and makes the Set of one backup from its spec.
//
// It writes the resulting lists to log, one warning (97) when Argo CD manages namespaces of the backup, and one for each
// kind that a filter policy names in vain (101). It fails when namespaces can't be listed or a namespace pattern is
// malformed; nothing of the backup can be decided then.
func Resolve(ctx context.Context, log logrus.FieldLogger, deps Deps, spec velerov1.BackupSpec) (*Set, error) {
	var live corev1.NamespaceList
	if err := deps.Client.List(ctx, &live); err != nil {
		return nil, fmt.Errorf("listing the cluster's namespaces: %w", err)
	}
	namespaces, err := namespaceLists(live.Items, spec)
	if err != nil {
		return nil, err
	}
	log.WithFields(logrus.Fields{
		"included": namespaces.IncludesString(),
		"excluded": namespaces.ExcludesString(),
		"expanded": namespaces.IsWildcardExpanded(),
	}).Info("Namespaces of this backup")
	warnOfArgoCD(log, live.Items, namespaces)

	resources := resourceLists(log, deps, namespaces, spec)
	policies, err := policyResolver{log: log, discovery: deps.Discovery, resources: resources}.resolve(deps.Policies)
	if err != nil {
		return nil, fmt.Errorf("resolving the filter policies: %w", err)
	}
	return &Set{Namespaces: namespaces, Resources: resources, policies: policies}, nil
}

// namespaceLists makes the namespace filter and expands its wildcards (92 to 95). All existing namespaces count as
// active, whatever their phase (91). They are sorted because a cached client returns them in any order, and the filter
// recognizes a complete list only in sorted order (96).
func namespaceLists(live []corev1.Namespace, spec velerov1.BackupSpec) (*collections.NamespaceIncludesExcludes, error) {
	active := make([]string, 0, len(live))
	for i := range live {
		active = append(active, live[i].Name)
	}
	slices.Sort(active)

	lists := collections.NewNamespaceIncludesExcludes().
		ActiveNamespaces(active).
		Includes(spec.IncludedNamespaces...).
		Excludes(spec.ExcludedNamespaces...)
	if err := lists.ExpandIncludesExcludes(true); err != nil {
		return nil, fmt.Errorf("expanding the namespace patterns (included %q, excluded %q): %w",
			spec.IncludedNamespaces, spec.ExcludedNamespaces, err)
	}
	return lists, nil
}

// warnOfArgoCD writes a single warning (97): restoring objects that Argo CD manages makes the two fight over them.
func warnOfArgoCD(log logrus.FieldLogger, live []corev1.Namespace, lists *collections.NamespaceIncludesExcludes) {
	var managed []string
	for i := range live {
		ns := &live[i]
		if ns.Labels[argoCDManagedByLabel] != "" && lists.ShouldInclude(ns.Name) {
			managed = append(managed, ns.Name)
		}
	}
	if len(managed) == 0 {
		return
	}
	slices.Sort(managed)
	log.Warnf("Argo CD manages these namespaces of the backup (label %s): %s. "+
		"When they are restored, Argo CD may change the restored objects back; pause its synchronization first",
		argoCDManagedByLabel, strings.Join(managed, ", "))
}

// resourceLists makes the resource filter in the style that the spec uses; with no resource list at all it is the
// scoped style (98). To that the includeExcludePolicy is added (99); validation doesn't let it come with the old one.
func resourceLists(log logrus.FieldLogger, deps Deps, namespaces *collections.NamespaceIncludesExcludes,
	spec velerov1.BackupSpec) collections.IncludesExcludesInterface {
	if collections.UseOldResourceFilters(spec) {
		return collections.GetGlobalResourceIncludesExcludes(deps.Discovery, log,
			spec.IncludedResources, spec.ExcludedResources, spec.IncludeClusterResources, *namespaces)
	}
	lists := collections.GetScopeResourceIncludesExcludes(deps.Discovery, log,
		spec.IncludedNamespaceScopedResources, spec.ExcludedNamespaceScopedResources,
		spec.IncludedClusterScopedResources, spec.ExcludedClusterScopedResources, *namespaces)
	deps.Policies.AddTypeLists(lists)
	return lists
}
