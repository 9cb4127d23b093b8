// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"context"
	"slices"

	"github.com/vmware-tanzu/velero/pkg/plugin/velero"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
)

// target is one resource type in one version, as it is listed.
type target struct {
	*Type
	gvr        schema.GroupVersionResource
	namespaced bool
}

// list collects the items of one type in one namespace ("" for all, and for cluster-scoped types), and notes the
// namespaces it found something in (128). Objects that several selectors match are taken once (118).
func (c *collector) list(ctx context.Context, t target, namespace string) []Item {
	var items []Item
	seen := sets.New[velero.ResourceIdentifier]()
	sifts, selectors := c.sifts(t, namespace), c.selectorsFor(t, namespace)
	for _, selector := range selectors {
		wanted := everything
		if sifts {
			wanted = func(object *unstructured.Unstructured) bool { return c.selects(t, object) }
		}
		for _, item := range c.request(ctx, t, namespace, selector, wanted) {
			if seen.Has(item.ID()) || !c.admits(item) {
				continue
			}
			if len(selectors) > 1 {
				seen.Insert(item.ID())
			}
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
func (c *collector) selects(t target, object *unstructured.Unstructured) bool {
	set := labels.Set(object.GetLabels())
	selection, in := c.Filter.Selection(t.GroupResource, object.GetNamespace())
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
	all := []labels.Selector{labels.Everything()}
	switch {
	case c.sifts(t, namespace):
		return all
	case t.namespaced && namespace == "":
		return c.ofSpec()
	}
	selection, in := c.Filter.Selection(t.GroupResource, namespace)
	switch {
	case !in:
		return nil
	case selection == nil:
		return c.ofSpec()
	case len(selection.Selectors) > 0:
		return selection.Selectors
	}
	return all
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

// wanted says whether an object of a list is taken.
type wanted func(object *unstructured.Unstructured) bool

func everything(*unstructured.Unstructured) bool { return true }

// request makes one list request, in pages if a page size is set. A failure is an error line and an empty result, so
// that what another selector or namespace found is kept; it is never hidden by a later success (114, 124; 119 is fixed).
func (c *collector) request(ctx context.Context, t target, namespace string, selector labels.Selector, take wanted) []Item {
	log := c.Log.WithField("resource", t.GroupResource.String())
	if namespace != "" {
		log = log.WithField("namespace", namespace)
	}
	items, err := c.pages(ctx, t, namespace, selector, take)
	if err != nil && ctx.Err() == nil {
		log.WithError(err).Errorf("Listing %s failed; what this list would have returned is not backed up", t.gvr.String())
	}
	return items
}

// pages makes the list request. Only one page at a time is held as objects.
//
// The API server may have forgotten where a long list stopped. What was read is then given up, and everything is asked for at
// once, as client-go's pager does: two halves of different times would be no list.
func (c *collector) pages(ctx context.Context, t target, namespace string, selector labels.Selector, take wanted) ([]Item, error) {
	client := c.Dynamic.Resource(t.gvr).Namespace(namespace)
	opts := metav1.ListOptions{LabelSelector: selector.String(), Limit: int64(c.PageSize)}
	var items []Item
	for {
		page, err := client.List(ctx, opts)
		if apierrors.IsResourceExpired(err) && opts.Continue != "" {
			items, opts.Limit, opts.Continue = nil, 0, ""
			continue
		}
		if err != nil {
			return nil, err
		}
		if items, err = appendPage(items, t, page, take); err != nil {
			return nil, err
		}
		if opts.Continue = page.GetContinue(); opts.Continue == "" {
			return items, nil
		}
	}
}

// appendPage makes items of the objects of a page that are wanted.
func appendPage(items []Item, t target, page *unstructured.UnstructuredList, take wanted) ([]Item, error) {
	for i := range page.Items {
		object := &page.Items[i]
		if !take(object) {
			continue
		}
		item, err := NewItem(t.Type, object)
		if err != nil {
			return nil, err
		}
		items = append(items, item)
		object.Object = nil // a list that doesn't come in pages shrinks here as fast as the items grow
	}
	return items, nil
}
