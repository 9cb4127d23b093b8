// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"github.com/vmware-tanzu/velero/pkg/plugin/velero"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Item is one version of one object that a backup may contain.
type Item struct {
	// GroupResource is the object's resource type.
	GroupResource schema.GroupResource
	// PreferredGVR is the same type in the version that the API server prefers. Object may have another version, when
	// Velero's feature EnableAPIGroupVersions is on (107).
	PreferredGVR schema.GroupVersionResource
	// Namespace is empty for cluster-scoped objects.
	Namespace string
	// Name of the object.
	Name string
	// Kind as discovery gives it.
	Kind string
	// Object as the API server returned it. It is shared: whoever changes it makes a copy first.
	Object *unstructured.Unstructured
	// Ordered is true for an object named in spec.orderedResources.
	Ordered bool
}

// ID names the object without its version: all versions of an object have the same ID. It is comparable.
func (i Item) ID() velero.ResourceIdentifier {
	return velero.ResourceIdentifier{GroupResource: i.GroupResource, Namespace: i.Namespace, Name: i.Name}
}

// Preferred says whether Object has the preferred version.
func (i Item) Preferred() bool {
	return i.Object != nil && i.Object.GetAPIVersion() == i.PreferredGVR.GroupVersion().String()
}

// String gives type, namespace and name, for logs.
func (i Item) String() string { return i.GroupResource.String() + " " + i.fullName() }

// fullName is the name that spec.orderedResources uses: with its namespace, if it has one (110).
func (i Item) fullName() string {
	if i.Namespace == "" {
		return i.Name
	}
	return i.Namespace + "/" + i.Name
}
