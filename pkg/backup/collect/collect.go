// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/sirupsen/logrus"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/discovery"
	"github.com/vmware-tanzu/velero/pkg/kuberesource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/dynamic"

	"github.com/velero-clipper/clipper/pkg/backup/filter"
)

// Deps is what Collect works with.
type Deps struct {
	// Log is the backup's log: an error line in it makes the backup PartiallyFailed (57). Required.
	Log logrus.FieldLogger
	// Discovery knows the resource types that can be backed up and their order (107, 108). Required.
	Discovery discovery.Helper
	// Dynamic makes the list requests. Required.
	Dynamic dynamic.Interface
	// PageSize is how many objects one list request asks for; 0 means all at once (117).
	PageSize int
	// Filter is the backup's filter. Required.
	Filter *filter.Set
	// Spec of the backup. Its label selectors and ordered resources are used here; everything else of it is in Filter.
	Spec velerov1.BackupSpec
}

// Collect lists everything that the backup's filters include, in backup order (107 to 131).
//
// What can't be listed is an error line, and the rest goes on (114). Collect itself fails only on a label selector that
// isn't one, before any request is made, and when ctx ends.
func Collect(ctx context.Context, deps Deps) ([]Item, error) {
	c, err := newCollector(deps)
	if err != nil {
		return nil, err
	}
	var items []Item
	for _, group := range deps.Discovery.Resources() {
		gv, err := schema.ParseGroupVersion(group.GroupVersion)
		if err != nil {
			deps.Log.WithError(err).WithField("group", group.GroupVersion).Error("Discovery names an API group version that can't be read; its items are not backed up")
			continue
		}
		for _, resource := range inOrder(gv, group.APIResources) {
			items = append(items, c.resource(ctx, gv, resource)...)
			if ctx.Err() != nil {
				return nil, fmt.Errorf("collecting items: %w", context.Cause(ctx))
			}
		}
	}
	// Only now is it known in which namespaces something was found (130).
	return slices.DeleteFunc(items, func(item Item) bool {
		return item.GroupResource == kuberesource.Namespaces && !c.namespaces.Has(item.Name)
	}), nil
}

// collector is the state of one Collect.
type collector struct {
	Deps
	// single and alternatives are the spec's label selectors, or nil. One of the two is used (48).
	single       labels.Selector
	alternatives []labels.Selector
	// cohabiting has the names of the cohabiting resources that were listed.
	cohabiting sets.Set[string]
	// namespaces whose own objects belong into the backup (128).
	namespaces sets.Set[string]
}

func newCollector(deps Deps) (*collector, error) {
	c := &collector{Deps: deps, cohabiting: sets.New[string](), namespaces: sets.New[string]()}
	var errs []error
	compile := func(field string, selector *metav1.LabelSelector) labels.Selector {
		compiled, err := metav1.LabelSelectorAsSelector(selector)
		if err != nil {
			errs = append(errs, fmt.Errorf("reading %s of the backup: %w", field, err))
		}
		return compiled
	}
	if deps.Spec.LabelSelector != nil {
		c.single = compile("spec.labelSelector", deps.Spec.LabelSelector)
	}
	for i, selector := range deps.Spec.OrLabelSelectors {
		c.alternatives = append(c.alternatives, compile(fmt.Sprintf("spec.orLabelSelectors[%d]", i), selector))
	}
	return c, errors.Join(errs...)
}

// resource collects the items of one resource type in one version.
func (c *collector) resource(ctx context.Context, gv schema.GroupVersion, resource metav1.APIResource) []Item {
	gvr := gv.WithResource(resource.Name)
	gr := gvr.GroupResource()
	log := c.Log.WithField("resource", gr.String())

	preferred, _, err := c.Discovery.ResourceFor(gr.WithVersion(""))
	if err != nil {
		log.WithError(err).Error("Finding the preferred version of the resource type failed; its items are not backed up")
		return nil
	}
	target := target{
		Type: &Type{GroupResource: gr, PreferredGVR: preferred, APIVersion: gv.String(), Kind: resource.Kind},
		gvr:  gvr, namespaced: resource.Namespaced,
	}

	if !c.Filter.IncludesResource(gr) {
		log.Debug("The backup doesn't include this resource type")
		return nil
	}
	if c.listedElsewhere(gr) {
		log.Debug("The same objects were collected through another API group already")
		return nil
	}
	if gr == kuberesource.Namespaces {
		return c.namespaceObjects(ctx, target)
	}

	var items []Item
	for _, namespace := range c.namespacesToList(target) {
		items = append(items, c.list(ctx, target, namespace)...)
	}
	if len(items) > 0 {
		log.WithField("items", len(items)).Info("Collected the items of this resource type")
	}
	return ordered(log, items, c.Spec.OrderedResources[resource.Name])
}

// namespacesToList says which list requests a type needs: "" is one over all namespaces (115). A filter whose patterns
// matched no namespace needs none (94).
func (c *collector) namespacesToList(t target) []string {
	included := c.Filter.Namespaces.GetIncludes()
	switch {
	case !t.namespaced:
		return []string{""}
	case len(included) == 0 && c.Filter.Namespaces.IsWildcardExpanded():
		return nil
	case len(included) == 0 || slices.Contains(included, "*"):
		return []string{""}
	}
	return slices.DeleteFunc(included, func(ns string) bool { return ns == "" || !c.Filter.IncludesNamespace(ns) })
}

// cohabitants are the resource types whose objects the API server shows in two groups (113).
var cohabitants = map[string][2]string{
	"deployments":     {"extensions", "apps"},
	"daemonsets":      {"extensions", "apps"},
	"replicasets":     {"extensions", "apps"},
	"networkpolicies": {"extensions", "networking.k8s.io"},
	"events":          {"", "events.k8s.io"},
}

// listedElsewhere says whether the type's objects were listed through the other group, and notes that they are listed
// now. It must be asked after the include check: a group that is left out doesn't count as listed (113).
func (c *collector) listedElsewhere(gr schema.GroupResource) bool {
	groups, found := cohabitants[gr.Resource]
	if !found || !slices.Contains(groups[:], gr.Group) {
		return false
	}
	if c.cohabiting.Has(gr.Resource) {
		return true
	}
	c.cohabiting.Insert(gr.Resource)
	return false
}
