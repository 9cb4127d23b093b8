// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"cmp"
	"math"
	"slices"
	"strings"

	"github.com/sirupsen/logrus"
	"github.com/vmware-tanzu/velero/pkg/discovery"
	velero "github.com/vmware-tanzu/velero/pkg/plugin/velero"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// coreFirst are the core resource types that come before all others, in this order (109): a pod's volumes are dealt
// with as part of the pod, so that they fall between its hooks.
var coreFirst = []string{"pods", "persistentvolumeclaims", "persistentvolumes"}

// inOrder returns the resource types of one group in the order they are collected in: coreFirst, then by name. Discovery
// has no order inside a group (client-go builds it from a map), so stock's is another one at each refresh; here the same
// cluster gives the same backup. The given slice belongs to the discovery helper, which other backups use too, and is
// left as it is.
func inOrder(gv schema.GroupVersion, resources []metav1.APIResource) []metav1.APIResource {
	rank := func(r metav1.APIResource) int {
		if i := slices.Index(coreFirst, r.Name); gv.Group == "" && i >= 0 {
			return i
		}
		return len(coreFirst)
	}
	return slices.SortedStableFunc(slices.Values(resources), func(a, b metav1.APIResource) int {
		return cmp.Or(rank(a)-rank(b), strings.Compare(a.Name, b.Name))
	})
}

// InDiscoveryOrder sorts identifiers by their resource types, in the order in which these are collected (329). Those of one type
// keep their order; types that the cluster doesn't serve are last.
func InDiscoveryOrder(known discovery.Helper, ids []velero.ResourceIdentifier) []velero.ResourceIdentifier {
	rank := map[schema.GroupResource]int{}
	for _, list := range known.Resources() {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			continue // Fetch says what is wrong
		}
		for _, resource := range inOrder(gv, list.APIResources) {
			gr := gv.WithResource(resource.Name).GroupResource()
			if _, found := rank[gr]; !found {
				rank[gr] = len(rank) - math.MaxInt32 // before those that aren't here
			}
		}
	}
	return slices.SortedStableFunc(slices.Values(ids), func(a, b velero.ResourceIdentifier) int {
		return cmp.Compare(rank[a.GroupResource], rank[b.GroupResource])
	})
}

// ordered puts the items that names lists first, in that order, and flags them; the others follow in list order (111).
// names is a value of spec.orderedResources: names separated by commas, taken literally, blanks included (110). A name
// that no item has gives a warning. All namespaces are sorted together (112).
func ordered(log logrus.FieldLogger, items []Item, names string) []Item {
	if names == "" {
		return items
	}
	position := make(map[string]int, len(items))
	for i := range items {
		position[fullName(items[i].Namespace, items[i].Name)] = i
	}
	first := make([]Item, 0, len(items))
	for name := range strings.SplitSeq(names, ",") {
		i, found := position[name]
		if !found {
			log.WithField("name", name).Warn("The backup's ordered resources name an object that isn't among its items")
			continue
		}
		delete(position, name)
		items[i].Ordered = true
		first = append(first, items[i])
	}
	for _, item := range items {
		if !item.Ordered {
			first = append(first, item)
		}
	}
	return first
}
