// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package collect

import (
	stdjson "encoding/json"
	"fmt"

	"github.com/vmware-tanzu/velero/pkg/plugin/velero"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/json"
)

// Type is what all items of one list have in common. They share it: nobody changes it.
type Type struct {
	// GroupResource is the objects' resource type.
	GroupResource schema.GroupResource
	// PreferredGVR is the same type in the version that the API server prefers. Objects may have another version, when
	// Velero's feature EnableAPIGroupVersions is on (107).
	PreferredGVR schema.GroupVersionResource
	// APIVersion of the objects, as it stands in them.
	APIVersion string
	// Kind as discovery gives it.
	Kind string
}

// Item is one version of one object that a backup may contain. Make it with NewItem. It is small, so it is passed by value.
type Item struct {
	*Type
	// Namespace is empty for cluster-scoped objects.
	Namespace string
	// Name of the object.
	Name string
	// Ordered is true for an object named in spec.orderedResources.
	Ordered bool
	// content is the object as JSON. All items of a backup are in memory from the first list until their turn comes, and as
	// maps they would take several times the room.
	content []byte
}

// NewItem makes an item of an object of that type. Later changes to the object are not seen. It fails for an object that can't
// be written as JSON, which no API server sends.
func NewItem(t *Type, object *unstructured.Unstructured) (Item, error) {
	item := Item{Type: t, Namespace: object.GetNamespace(), Name: object.GetName()}
	// As for the tarball, which gets the same bytes when no plugin changes the object (178).
	content, err := stdjson.Marshal(object.Object)
	if err != nil {
		return item, fmt.Errorf("encoding %s as JSON: %w", item, err)
	}
	item.content = content
	return item, nil
}

// Object decodes the object as the API server returned it. Each call gives another copy, which is the caller's own; whoever
// needs it several times keeps it meanwhile.
func (i Item) Object() *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	if err := json.Unmarshal(i.content, &object.Object); err != nil {
		panic(fmt.Sprintf("decoding what was encoded from %s: %v", i, err)) // memory is broken
	}
	return object
}

// JSON is the object as it is written to the tarball. It is shared and must not be changed.
func (i Item) JSON() []byte { return i.content }

// ID names the object without its version: all versions of an object have the same ID. It is comparable.
func (i Item) ID() velero.ResourceIdentifier {
	return velero.ResourceIdentifier{GroupResource: i.GroupResource, Namespace: i.Namespace, Name: i.Name}
}

// NamespacedName is the object's name with its namespace.
func (i Item) NamespacedName() types.NamespacedName {
	return types.NamespacedName{Namespace: i.Namespace, Name: i.Name}
}

// Preferred says whether the object has the preferred version.
func (i Item) Preferred() bool {
	return i.APIVersion == i.PreferredGVR.GroupVersion().String()
}

// String gives type, namespace and name, for logs.
func (i Item) String() string { return Describe(i.ID()) }

// Describe gives an object's type, namespace and name, for logs.
func Describe(id velero.ResourceIdentifier) string {
	return id.GroupResource.String() + " " + fullName(id.Namespace, id.Name)
}

// fullName is the name that spec.orderedResources uses: with its namespace, if it has one (110).
func fullName(namespace, name string) string {
	if namespace == "" {
		return name
	}
	return namespace + "/" + name
}
