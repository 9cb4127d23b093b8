// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package collect

import (
	"context"
	"fmt"

	"github.com/vmware-tanzu/velero/pkg/discovery"
	"github.com/vmware-tanzu/velero/pkg/plugin/velero"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
)

// Fetcher gets single objects that were not collected but are named by a plugin (153, 195). The zero value is of no
// use; both fields are required. It is safe for concurrent use.
type Fetcher struct {
	Discovery discovery.Helper
	Dynamic   dynamic.Interface
}

// Fetch gets one object from the cluster, in the preferred version. An error of the API server can be recognized with
// the functions of apimachinery's errors package: IsNotFound is the one that callers treat differently.
func (f Fetcher) Fetch(ctx context.Context, id velero.ResourceIdentifier) (*Item, error) {
	preferred, resource, err := f.Discovery.ResourceFor(id.GroupResource.WithVersion(""))
	if err != nil {
		return nil, fmt.Errorf("finding the resource type %s in discovery: %w", id.GroupResource, err)
	}
	kind := &Type{GroupResource: id.GroupResource, PreferredGVR: preferred, APIVersion: preferred.GroupVersion().String(), Kind: resource.Kind}
	object, err := f.Dynamic.Resource(preferred).Namespace(id.Namespace).Get(ctx, id.Name, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("getting %s: %w", Describe(id), err)
	}
	item, err := NewItem(kind, object)
	return &item, err
}
