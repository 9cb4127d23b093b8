// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
)

// This file is the inner half of the Tracker: who is woken by which event, and which objects belong together.

// subscribe registers interest in a VolumeSnapshot, which need not exist yet, and in its content.
func (t *Tracker) subscribe(key types.NamespacedName, notify func()) *subscription {
	s := &subscription{key: key, notify: notify, gone: map[types.UID]struct{}{}}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.subscribers[key] == nil {
		t.subscribers[key] = map[*subscription]struct{}{}
	}
	t.subscribers[key][s] = struct{}{}
	return s
}

// unsubscribe ends it; nil and doing it twice are harmless. A notification that is under way may still arrive.
func (t *Tracker) unsubscribe(s *subscription) {
	if s == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.subscribers[s.key], s)
	if len(t.subscribers[s.key]) == 0 {
		delete(t.subscribers, s.key)
	}
}

// sawDeletion says whether the object with that UID was deleted since the subscription began.
func (t *Tracker) sawDeletion(s *subscription, uid types.UID) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	_, gone := s.gone[uid]
	return gone && uid != ""
}

// wake notifies all that are interested in key; a UID says that this object is gone.
func (t *Tracker) wake(key types.NamespacedName, gone types.UID) {
	t.mu.Lock()
	notify := make([]func(), 0, len(t.subscribers[key]))
	for s := range t.subscribers[key] {
		if gone != "" {
			s.gone[gone] = struct{}{}
		}
		notify = append(notify, s.notify)
	}
	t.mu.Unlock()
	for _, f := range notify {
		f()
	}
}

func (t *Tracker) snapshotEvent(obj any, deleted bool) {
	vs, ok := lastKnown(obj).(*snapshotv1.VolumeSnapshot)
	if !ok {
		return
	}
	key := types.NamespacedName{Namespace: vs.Namespace, Name: vs.Name}
	if deleted {
		t.forget(key, ownerOf(vs))
	} else {
		t.note(key)
	}
	t.wake(key, goneUID(vs.UID, deleted))
}

func (t *Tracker) contentEvent(obj any, deleted bool) {
	content, ok := lastKnown(obj).(*snapshotv1.VolumeSnapshotContent)
	if !ok {
		return
	}
	key := refOf(content)
	t.note(key)
	t.wake(key, goneUID(content.UID, deleted))
}

// note brings the history of a VolumeSnapshot up to date. It looks under the lock: of two events at once the one that
// comes second sees the state after both.
func (t *Tracker) note(key types.NamespacedName) {
	t.mu.Lock()
	vs, content := t.look(key, "")
	if vs == nil {
		t.mu.Unlock()
		return
	}
	h := t.histories[key]
	if h == nil {
		h = new(history)
		t.histories[key] = h
	}
	changed := h.note(errorOf(vs, content), handleOf(content) != "", isReady(vs, content), t.clock.Now())
	owner := ownerOf(vs)
	if h.isSettled() {
		t.settle(key, owner)
	} else {
		if t.unsettled[owner] == nil {
			t.unsettled[owner] = map[types.NamespacedName]struct{}{}
		}
		t.unsettled[owner][key] = struct{}{}
	}
	tell := changed && len(t.unsettled[owner]) == 0
	t.mu.Unlock()
	if tell {
		t.settled(owner)
	}
}

// forget ends the history of a VolumeSnapshot that is gone.
func (t *Tracker) forget(key types.NamespacedName, owner types.UID) {
	t.mu.Lock()
	delete(t.histories, key)
	tell := t.settle(key, owner)
	t.mu.Unlock()
	if tell {
		t.settled(owner)
	}
}

// settle takes a VolumeSnapshot off those that are waited for; true when it was the last one. The lock is held.
func (t *Tracker) settle(key types.NamespacedName, owner types.UID) bool {
	waited := t.unsettled[owner]
	if _, found := waited[key]; !found {
		return false
	}
	delete(waited, key)
	if len(waited) > 0 {
		return false
	}
	delete(t.unsettled, owner)
	return true
}

// historyOf returns a copy of what is known of a VolumeSnapshot.
func (t *Tracker) historyOf(key types.NamespacedName) history {
	t.mu.Lock()
	defer t.mu.Unlock()
	if h := t.histories[key]; h != nil {
		return *h
	}
	return history{}
}

// ownerOf is the UID of the backup that a VolumeSnapshot was made for.
func ownerOf(vs *snapshotv1.VolumeSnapshot) types.UID {
	return types.UID(vs.Labels[velerov1.BackupUIDLabel])
}

// look returns the newest known VolumeSnapshot of that name and its content; either is nil when there is none. With a UID
// only objects of that incarnation count.
func (t *Tracker) look(key types.NamespacedName, uid types.UID) (*snapshotv1.VolumeSnapshot, *snapshotv1.VolumeSnapshotContent) {
	var vs *snapshotv1.VolumeSnapshot
	if obj, exists, _ := t.snapshotInformer.GetIndexer().GetByKey(key.String()); exists {
		vs, _ = obj.(*snapshotv1.VolumeSnapshot)
	}
	if vs != nil && uid != "" && vs.UID != uid {
		vs = nil
	}
	if vs != nil {
		uid = vs.UID
	}
	return vs, t.contentOf(key, uid, vs)
}

// contentOf finds a snapshot's content from either side: the content names its snapshot before the snapshot's status
// names the content.
func (t *Tracker) contentOf(key types.NamespacedName, uid types.UID, vs *snapshotv1.VolumeSnapshot) *snapshotv1.VolumeSnapshotContent {
	if content := t.content(boundContent(vs)); content != nil && belongs(content, key, uid) {
		return content
	}
	found, _ := t.contentInformer.GetIndexer().ByIndex(bySnapshot, key.String())
	for _, obj := range found {
		if content, ok := obj.(*snapshotv1.VolumeSnapshotContent); ok && belongs(content, key, uid) {
			return content
		}
	}
	return nil
}

// content returns the named VolumeSnapshotContent from the cache, nil when there is none.
func (t *Tracker) content(name string) *snapshotv1.VolumeSnapshotContent {
	obj, exists, _ := t.contentInformer.GetIndexer().GetByKey(name)
	if !exists {
		return nil
	}
	content, _ := obj.(*snapshotv1.VolumeSnapshotContent)
	return content
}

// belongs says whether a content is for the snapshot of that name and, where both sides have one, that UID. A
// pre-provisioned content has no UID until it is bound.
func belongs(content *snapshotv1.VolumeSnapshotContent, key types.NamespacedName, uid types.UID) bool {
	ref := content.Spec.VolumeSnapshotRef
	return refOf(content) == key && (uid == "" || ref.UID == "" || ref.UID == uid)
}

// boundContent is the name of the content that a VolumeSnapshot says it is bound to; empty when it isn't.
func boundContent(vs *snapshotv1.VolumeSnapshot) string {
	if vs == nil || vs.Status == nil {
		return ""
	}
	return ptr.Deref(vs.Status.BoundVolumeSnapshotContentName, "")
}

func refOf(content *snapshotv1.VolumeSnapshotContent) types.NamespacedName {
	ref := content.Spec.VolumeSnapshotRef
	return types.NamespacedName{Namespace: ref.Namespace, Name: ref.Name}
}

func snapshotIndex(obj any) ([]string, error) {
	content, ok := obj.(*snapshotv1.VolumeSnapshotContent)
	if !ok || content.Spec.VolumeSnapshotRef.Name == "" {
		return nil, nil
	}
	return []string{refOf(content).String()}, nil
}

// lastKnown unwraps the object of an event that was missed and reconstructed.
func lastKnown(obj any) any {
	if missed, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		return missed.Obj
	}
	return obj
}

func goneUID(uid types.UID, deleted bool) types.UID {
	if deleted {
		return uid
	}
	return ""
}
