// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package itemblock

import (
	"fmt"

	"github.com/vmware-tanzu/velero/pkg/kuberesource"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/velero-clipper/clipper/pkg/backup/collect"
)

// Block is a number of items that are backed up together, one after the other. Build fills it; nobody changes it
// afterwards, so it can be read by several goroutines.
type Block struct {
	// Items in backup order. All versions of an object stand next to each other.
	Items []collect.Item
	// Ordered is true when an item of the block is named in spec.orderedResources. The block's snapshots must then be
	// taken in the order of its items.
	Ordered bool
}

// Find returns the versions of one object that are in the block, the preferred version first. It returns nil when the
// object isn't in the block.
func (b *Block) Find(gr schema.GroupResource, namespace, name string) []collect.Item {
	var preferred, others []collect.Item
	for _, item := range b.Items {
		switch {
		case item.GroupResource != gr || item.Namespace != namespace || item.Name != name:
		case item.Preferred():
			preferred = append(preferred, item)
		default:
			others = append(others, item)
		}
	}
	return append(preferred, others...)
}

// OfType returns the block's items of one resource type, in block order.
func (b *Block) OfType(gr schema.GroupResource) []collect.Item {
	var items []collect.Item
	for _, item := range b.Items {
		if item.GroupResource == gr {
			items = append(items, item)
		}
	}
	return items
}

// Pods returns the block's pods in block order, which is the order of their hooks (161).
func (b *Block) Pods() []collect.Item { return b.OfType(kuberesource.Pods) }

// PVCs returns the block's persistent volume claims in block order.
func (b *Block) PVCs() []collect.Item { return b.OfType(kuberesource.PersistentVolumeClaims) }

// String names the block by its first item, for logs.
func (b *Block) String() string {
	switch len(b.Items) {
	case 0:
		return "empty block"
	case 1:
		return b.Items[0].String()
	default:
		return fmt.Sprintf("%s and %d more", b.Items[0], len(b.Items)-1)
	}
}

// add appends an item.
func (b *Block) add(item collect.Item) {
	b.Items = append(b.Items, item)
	b.Ordered = b.Ordered || item.Ordered
}
