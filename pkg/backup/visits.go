// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"
	"slices"
	"strings"
	"sync"

	velero "github.com/vmware-tanzu/velero/pkg/plugin/velero"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/velero-clipper/clipper/pkg/backup/collect"
	"github.com/velero-clipper/clipper/pkg/backup/itemblock"
)

// itemKey tells items apart. All versions of an object that are backed up have a key of their own (165).
type itemKey struct {
	apiVersion, kind, namespace, name string
}

func keyOf(item collect.Item) itemKey {
	return itemKey{item.APIVersion, item.Kind, item.Namespace, item.Name}
}

func nameOf(object metav1.Object) types.NamespacedName {
	return types.NamespacedName{Namespace: object.GetNamespace(), Name: object.GetName()}
}

// visits knows the items of a backup that were met on the walk, and what came of them. It is safe for concurrent use.
type visits struct {
	mu       sync.Mutex
	expected map[itemKey]bool
	byKey    map[itemKey]*visit
	byID     map[velero.ResourceIdentifier]*visit
	// finished counts the visits that have ended, with whatever result.
	finished int
	// types are the resource types of which a block's item was backed up.
	types map[schema.GroupResource]bool
	// waiting says which block waits for which visit, so that two that want each other's items don't wait for ever.
	waiting map[*itemblock.Block]*visit
}

// visit is one item on its way into the backup.
type visit struct {
	key   itemKey
	id    velero.ResourceIdentifier
	block *itemblock.Block
	done  chan struct{}
	// Set before done is closed.
	err error
}

func newVisits() *visits {
	return &visits{
		expected: map[itemKey]bool{},
		byKey:    map[itemKey]*visit{},
		byID:     map[velero.ResourceIdentifier]*visit{},
		types:    map[schema.GroupResource]bool{},
		waiting:  map[*itemblock.Block]*visit{},
	}
}

// expect counts an item as one to come.
func (v *visits) expect(key itemKey) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.expected[key] = true
}

// refuse enters an item that will not be written: its own turn, and whoever brings it in, finds it done (162).
func (v *visits) refuse(item collect.Item, block *itemblock.Block) {
	if made, first := v.enter(keyOf(item), item.ID(), block); first {
		v.leave(made, nil)
	}
}

// enter starts the visit of an item. first is false when there was one already; then it is the one to wait for.
func (v *visits) enter(key itemKey, id velero.ResourceIdentifier, block *itemblock.Block) (_ *visit, first bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if known := v.byKey[key]; known != nil {
		return known, false
	}
	made := &visit{key: key, id: id, block: block, done: make(chan struct{})}
	v.byKey[key] = made
	v.byID[id] = made
	v.expected[key] = true
	return made, true
}

// find returns the visit of an object in whatever version, or nil.
func (v *visits) find(id velero.ResourceIdentifier) *visit {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.byID[id]
}

// leave ends a visit.
func (v *visits) leave(made *visit, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.finished++
	made.err = err
	close(made.done)
}

// forget ends a visit as if there had been none: a plugin has taken the item out of the backup (171).
func (v *visits) forget(made *visit) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.byKey, made.key)
	delete(v.expected, made.key)
	if v.byID[made.id] == made {
		delete(v.byID, made.id)
	}
	close(made.done)
}

// await waits for somebody else's visit and returns its error (362). A block never waits for itself, nor for a block that
// waits for it in turn: as in Velero's own engine such an item counts as backed up.
func (v *visits) await(ctx context.Context, other *visit, block *itemblock.Block) error {
	if other.isOver() {
		return other.err
	}
	if !v.mayWait(block, other) {
		return nil
	}
	defer v.stopWaiting(block)
	select {
	case <-other.done:
		return other.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (v *visits) mayWait(block *itemblock.Block, other *visit) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	// A visit that is over holds nobody up, even if who waited for it hasn't woken yet.
	for next := other; next != nil && !next.isOver(); next = v.waiting[next.block] {
		if next.block == block {
			return false
		}
	}
	v.waiting[block] = other
	return true
}

func (made *visit) isOver() bool {
	select {
	case <-made.done:
		return true
	default:
		return false
	}
}

func (v *visits) stopWaiting(block *itemblock.Block) {
	v.mu.Lock()
	defer v.mu.Unlock()
	delete(v.waiting, block)
}

// sawType notes that a block's item of this type is in the backup.
func (v *visits) sawType(gr schema.GroupResource) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.types[gr] = true
}

// backedUpTypes returns the types noted by sawType, sorted.
func (v *visits) backedUpTypes() []schema.GroupResource {
	v.mu.Lock()
	defer v.mu.Unlock()
	found := make([]schema.GroupResource, 0, len(v.types))
	for gr := range v.types {
		found = append(found, gr)
	}
	slices.SortFunc(found, func(a, b schema.GroupResource) int { return strings.Compare(a.String(), b.String()) })
	return found
}

// counts returns how many items are finished and how many are known (340, 361).
func (v *visits) counts() (finished, known int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.finished, len(v.expected)
}

// resourceList returns the visited items' names by API version and kind, for the backup's resource list file (345).
func (v *visits) resourceList() map[string][]string {
	v.mu.Lock()
	defer v.mu.Unlock()
	list := map[string][]string{}
	for key := range v.byKey {
		name := key.name
		if key.namespace != "" {
			name = key.namespace + "/" + name
		}
		kind := key.apiVersion + "/" + key.kind
		list[kind] = append(list[kind], name)
	}
	for _, names := range list {
		slices.Sort(names)
	}
	return list
}

// isKnown says whether an item was met.
func (v *visits) isKnown(key itemKey) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.byKey[key] != nil
}
