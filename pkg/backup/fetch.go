// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"

	"github.com/vmware-tanzu/velero/pkg/kuberesource"
	velero "github.com/vmware-tanzu/velero/pkg/plugin/velero"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/pager"

	"github.com/velero-clipper/clipper/pkg/backup/collect"
)

// manyVolumes is from how many claims on reading all volumes at once beats reading each. With an explicit list of
// namespaces volumes aren't collected, and each claim brings in its own (139).
const manyVolumes = 20

// relatedFetcher gets the items that belong into a block and were not collected. It belongs to one goroutine.
type relatedFetcher struct {
	collect.Fetcher
	pageSize int64
	// many is true when a list of all volumes is worth its while.
	many    bool
	volumes map[string]*collect.Item
}

func (r *run) relatedFetcher() *relatedFetcher {
	claims := 0
	for _, item := range r.items {
		if item.GroupResource == kuberesource.PersistentVolumeClaims {
			claims++
		}
	}
	return &relatedFetcher{
		Fetcher:  collect.Fetcher{Discovery: r.deps.Discovery, Dynamic: r.deps.Dynamic},
		pageSize: int64(r.deps.PageSize),
		many:     claims >= manyVolumes,
	}
}

// fetch gets one item.
func (f *relatedFetcher) fetch(ctx context.Context, id velero.ResourceIdentifier) (*collect.Item, error) {
	if id.GroupResource != kuberesource.PersistentVolumes || !f.many {
		return f.Fetch(ctx, id)
	}
	gvr, resource, err := f.Discovery.ResourceFor(id.GroupResource.WithVersion(""))
	if err != nil {
		return f.Fetch(ctx, id) // it says what is wrong
	}
	if f.volumes == nil {
		f.volumes = map[string]*collect.Item{}
		kind := &collect.Type{GroupResource: id.GroupResource, PreferredGVR: gvr, APIVersion: gvr.GroupVersion().String(), Kind: resource.Kind}
		lists := pager.New(func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
			return f.Dynamic.Resource(gvr).List(ctx, opts)
		})
		lists.PageSize = f.pageSize
		lists.PageBufferSize = 0 // no pages in store
		err := lists.EachListItem(ctx, metav1.ListOptions{}, func(object runtime.Object) error {
			volume, ok := object.(*unstructured.Unstructured)
			if !ok {
				return nil
			}
			item, err := collect.NewItem(kind, volume)
			if err == nil {
				f.volumes[item.Name] = &item
			}
			return err
		})
		f.many = err == nil // what can't be listed is asked for one by one
	}
	volume := f.volumes[id.Name]
	if volume == nil {
		return f.Fetch(ctx, id)
	}
	return volume, nil
}
