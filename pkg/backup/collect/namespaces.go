// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"context"

	"github.com/vmware-tanzu/velero/pkg/kuberesource"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/sets"
)

// namespaceObjects collects all namespace objects, without selectors (125), and notes those that belong into the backup
// on their own account (128, rules 1 and 2). Rule 3, something was collected in them, is known only at the end; Collect
// applies all three then.
func (c *collector) namespaceObjects(ctx context.Context, t target) []Item {
	log := c.Log.WithField("resource", kuberesource.Namespaces.String())
	items, err := c.pages(ctx, t, "", labels.Everything(), everything)
	if err != nil {
		// The error is looked at before the list (127 is fixed).
		if ctx.Err() == nil {
			log.WithError(err).Error("Listing namespaces failed; no namespace object is backed up")
		}
		return nil
	}

	existing := sets.New[string]()
	for _, item := range items {
		existing.Insert(item.Name)
		if c.namespaceSelected(item.Object()) {
			c.namespaces.Insert(item.Name)
		}
	}
	for _, name := range c.Filter.Namespaces.GetIncludes() {
		if name != "*" && !existing.Has(name) {
			log.WithField("name", name).Errorf("The backup includes namespace %q, which doesn't exist", name)
		}
	}
	return items
}

// namespaceSelected is rules 1 and 2 of point 128. Only active namespaces can meet them (129).
func (c *collector) namespaceSelected(namespace *unstructured.Unstructured) bool {
	phase, _, _ := unstructured.NestedString(namespace.Object, "status", "phase")
	if phase != string(corev1.NamespaceActive) {
		return false
	}
	set := labels.Set(namespace.GetLabels())
	if c.single != nil && c.single.Matches(set) {
		return true
	}
	for _, selector := range c.alternatives {
		if selector.Matches(set) {
			return true
		}
	}
	// With a selector and no restriction on namespaces, the selector alone decides: otherwise a backup of a few labelled
	// objects would contain every namespace of the cluster.
	selecting := c.single != nil || len(c.alternatives) > 0
	if selecting && c.Filter.Namespaces.IncludeEverything() {
		return false
	}
	return c.Filter.IncludesNamespace(namespace.GetName())
}
