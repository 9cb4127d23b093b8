// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"fmt"
	"sync"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// This file is what the sweep tells, and how it looks into the tracker.

// names are the leftovers of the present sweep and of the one before.
type names struct {
	mu          sync.Mutex
	now, before map[types.NamespacedName]named
}

type named struct {
	kind   leftoverKind
	reason string
	// told is when the log had it last.
	told time.Time
}

func newNames() *names {
	return &names{now: map[types.NamespacedName]named{}}
}

// begin starts a new sweep.
func (n *names) begin() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.now, n.before = map[types.NamespacedName]named{}, n.now
}

// add notes a leftover; true when it is to be told: when the sweep before didn't say the same, and again after some time, unless
// that is zero. what.told is the present time.
func (n *names) add(key types.NamespacedName, what named, again time.Duration) (tell bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	before, known := n.before[key]
	tell = !known || before.kind != what.kind || before.reason != what.reason || again > 0 && what.told.Sub(before.told) >= again
	if !tell {
		what.told = before.told
	}
	n.now[key] = what
	return tell
}

func (n *names) has(key types.NamespacedName) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, now := n.now[key]
	_, before := n.before[key]
	return now || before
}

func (n *names) count() map[leftoverKind]int {
	n.mu.Lock()
	defer n.mu.Unlock()
	counts := map[leftoverKind]int{}
	for _, what := range n.now {
		counts[what.kind]++
	}
	return counts
}

// note names a leftover, in the log only when it is new or its reason is.
func (s *Sweeper) note(f *finding, kind leftoverKind, reason string) {
	if s.named.add(f.key, named{kind: kind, reason: reason, told: f.now}, 0) {
		s.Logger.Warnf("%s is left over: %s", f.title(), reason)
	}
}

// noteRemoving names a removal that takes long, and again after each interval: somebody may have to see to the driver.
func (s *Sweeper) noteRemoving(ctx context.Context, f *finding) {
	ref := f.ref()
	reason := (&settling{Remover: s.Remover, ref: ref}).reason(ctx)
	if reason == "" {
		return // it has just gone
	}
	if s.named.add(f.key, named{kind: kindRemoving, reason: reason, told: f.now}, s.Interval) {
		s.Logger.Warnf("%s is not gone yet: %s", f.title(), reason)
	}
}

func (f *finding) title() string {
	if f.vs == nil {
		return fmt.Sprintf("VolumeSnapshotContent %s of VolumeSnapshot %s", f.content.Name, f.key)
	}
	return fmt.Sprintf("VolumeSnapshot %s", f.key)
}

// show sets the gauge.
func (s *Sweeper) show() {
	counts := s.named.count()
	for _, kind := range leftoverKinds {
		s.gauge.WithLabelValues(string(kind)).Set(float64(counts[kind]))
	}
}

func (t *Tracker) allSnapshots() []*snapshotv1.VolumeSnapshot {
	return allOf[*snapshotv1.VolumeSnapshot](t.snapshotInformer)
}

func (t *Tracker) allContents() []*snapshotv1.VolumeSnapshotContent {
	return allOf[*snapshotv1.VolumeSnapshotContent](t.contentInformer)
}

func allOf[T any](informer cache.SharedIndexInformer) []T {
	var all []T
	for _, obj := range informer.GetStore().List() {
		if typed, ok := obj.(T); ok {
			all = append(all, typed)
		}
	}
	return all
}

// hasSnapshot says whether the cache has a VolumeSnapshot of that name and, if it is known, that UID.
func (t *Tracker) hasSnapshot(key types.NamespacedName, uid types.UID) bool {
	obj, exists, _ := t.snapshotInformer.GetStore().GetByKey(key.String())
	vs, ok := obj.(*snapshotv1.VolumeSnapshot)
	return exists && ok && (uid == "" || vs.UID == uid)
}

// isWaitedFor says whether anybody in this server follows the VolumeSnapshot.
func (t *Tracker) isWaitedFor(key types.NamespacedName) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.subscribers[key]) > 0
}

// onSnapshot and onContent call f at every event, from an informer's goroutine, until they are stopped.
func (t *Tracker) onSnapshot(f func(vs *snapshotv1.VolumeSnapshot, deleted bool)) (stop func() error, err error) {
	return on(t.snapshotInformer, f)
}

func (t *Tracker) onContent(f func(content *snapshotv1.VolumeSnapshotContent, deleted bool)) (stop func() error, err error) {
	return on(t.contentInformer, f)
}

func on[T any](informer cache.SharedIndexInformer, f func(obj T, deleted bool)) (stop func() error, err error) {
	call := func(obj any, deleted bool) {
		if typed, ok := lastKnown(obj).(T); ok {
			f(typed, deleted)
		}
	}
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(obj any) { call(obj, false) },
		UpdateFunc: func(_, obj any) { call(obj, false) },
		DeleteFunc: func(obj any) { call(obj, true) },
	})
	if err != nil {
		return nil, fmt.Errorf("listening to the tracker: %w", err)
	}
	return func() error { return informer.RemoveEventHandler(registration) }, nil
}
