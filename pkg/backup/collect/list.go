// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"context"
	"fmt"
	"slices"

	"github.com/vmware-tanzu/velero/pkg/plugin/velero"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/pager"
)

// target is one resource type in one version, as it is listed.
type target struct {
	gvr, preferred schema.GroupVersionResource
	kind           string
	namespaced     bool
}

// item wraps an object of this type.
func (t target) item(object *unstructured.Unstructured) Item {
	return Item{
		GroupResource: t.gvr.GroupResource(),
		PreferredGVR:  t.preferred,
		Namespace:     object.GetNamespace(),
		Name:          object.GetName(),
		Kind:          t.kind,
		Object:        object,
	}
}

// list collects the items of one type in one namespace ("" for all, and for cluster-scoped types), and notes the
// namespaces it found something in (128). Objects that several selectors match are taken once (118).
func (c *collector) list(ctx context.Context, t target, namespace string) []Item {
	var items []Item
	seen := sets.New[velero.ResourceIdentifier]()
	sifts := c.sifts(t, namespace)
	for _, selector := range c.selectorsFor(t, namespace) {
		for _, object := range c.request(ctx, t, namespace, selector) {
			item := t.item(object)
			if seen.Has(item.ID()) || sifts && !c.selects(item) || !c.admits(item) {
				continue
			}
			seen.Insert(item.ID())
			items = append(items, item)
		}
	}
	return items
}

// admits sorts out what a list over all namespaces returned beyond the included ones (116), and notes the namespaces of the rest.
func (c *collector) admits(item Item) bool {
	if item.Namespace == "" {
		return true
	}
	if !c.Filter.IncludesNamespace(item.Namespace) {
		return false
	}
	c.namespaces.Insert(item.Namespace)
	return true
}

// sifts says whether one list returns objects for which different selectors count: those of a policy for their
// namespace, or those of the spec. Each object is then looked at by itself (116), and namespaces that a policy is for get
// the same as if they were listed one by one.
func (c *collector) sifts(t target, namespace string) bool {
	return t.namespaced && namespace == "" && c.Filter.FiltersNamespaces()
}

// selects says whether an object is selected by the policy for its namespace, or else by the spec.
func (c *collector) selects(item Item) bool {
	set := labels.Set(item.Object.GetLabels())
	selection, in := c.Filter.Selection(item.GroupResource, item.Namespace)
	switch {
	case !in:
		return false
	case selection != nil:
		return selection.Matches(set)
	}
	return slices.ContainsFunc(c.ofSpec(), func(selector labels.Selector) bool { return selector.Matches(set) })
}

// selectorsFor returns the selectors to list with, one request for each (118, 120); none when a policy keeps the type out.
// A policy's entry for the type replaces the spec's selectors (121, 122).
func (c *collector) selectorsFor(t target, namespace string) []labels.Selector {
	everything := []labels.Selector{labels.Everything()}
	switch {
	case c.sifts(t, namespace):
		return everything
	case t.namespaced && namespace == "":
		return c.ofSpec()
	}
	selection, in := c.Filter.Selection(t.gvr.GroupResource(), namespace)
	switch {
	case !in:
		return nil
	case selection == nil:
		return c.ofSpec()
	case len(selection.Selectors) > 0:
		return selection.Selectors
	}
	return everything
}

// ofSpec returns the spec's label selectors, joined by or; without any, one that selects everything.
func (c *collector) ofSpec() []labels.Selector {
	switch {
	case len(c.alternatives) > 0:
		return c.alternatives
	case c.single != nil:
		return []labels.Selector{c.single}
	default:
		return []labels.Selector{labels.Everything()}
	}
}

// request makes one list request, in pages if a page size is set. A failure is an error line and an empty result, so
// that what another selector or namespace found is kept; it is never hidden by a later success (114, 124; 119 is fixed).
func (c *collector) request(ctx context.Context, t target, namespace string, selector labels.Selector) []*unstructured.Unstructured {
	log := c.Log.WithField("resource", t.gvr.GroupResource().String())
	if namespace != "" {
		log = log.WithField("namespace", namespace)
	}
	objects, err := c.pages(ctx, t.gvr, namespace, metav1.ListOptions{LabelSelector: selector.String()})
	if err != nil && ctx.Err() == nil {
		log.WithError(err).Errorf("Listing %s failed; what this list would have returned is not backed up", t.gvr.String())
	}
	return objects
}

func (c *collector) pages(ctx context.Context, gvr schema.GroupVersionResource, namespace string, opts metav1.ListOptions) ([]*unstructured.Unstructured, error) {
	client := c.Dynamic.Resource(gvr).Namespace(namespace)
	pages := pager.New(func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
		return client.List(ctx, opts)
	})
	pages.PageSize = int64(c.PageSize)
	list, _, err := pages.List(ctx, opts)
	if err != nil {
		return nil, err
	}
	var objects []*unstructured.Unstructured
	err = meta.EachListItem(list, func(object runtime.Object) error {
		u, ok := object.(*unstructured.Unstructured)
		if !ok {
			return fmt.Errorf("the list contains a %T, which is not an unstructured object", object)
		}
		objects = append(objects, u)
		return nil
	})
	return objects, err
}
