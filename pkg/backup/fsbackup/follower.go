// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package fsbackup

import (
	"sync"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
)

// follower keeps the last known state of the PodVolumeBackups of one backup. It is an informer's handler, and safe for
// concurrent use.
type follower struct {
	backup types.UID

	mu   sync.Mutex
	last map[types.NamespacedName]*velerov1.PodVolumeBackup
	// changed is closed, and made anew, when one of them has ended.
	changed chan struct{}
}

func newFollower(backup types.UID) *follower {
	return &follower{backup: backup, last: map[types.NamespacedName]*velerov1.PodVolumeBackup{}, changed: make(chan struct{})}
}

// OnAdd implements toolscache.ResourceEventHandler. After a lost watch an object may be seen first in its last phase.
func (f *follower) OnAdd(object any, _ bool) { f.see(object, false) }

// OnUpdate implements toolscache.ResourceEventHandler.
func (f *follower) OnUpdate(_, object any) { f.see(object, false) }

// OnDelete implements toolscache.ResourceEventHandler: nothing will become of one that is gone.
func (f *follower) OnDelete(object any) {
	if tombstone, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
		object = tombstone.Obj
	}
	f.see(object, true)
}

func (f *follower) see(object any, deleted bool) {
	seen, ok := object.(*velerov1.PodVolumeBackup)
	if !ok || seen.Labels[velerov1.BackupUIDLabel] != string(f.backup) {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if hasEnded(f.last[nameOf(seen)]) {
		return
	}
	if deleted && !hasEnded(seen) {
		seen = seen.DeepCopy()
		seen.Status.Phase, seen.Status.Message = velerov1.PodVolumeBackupPhaseFailed, "the PodVolumeBackup was deleted before it ended"
	}
	f.last[nameOf(seen)] = seen
	if hasEnded(seen) {
		close(f.changed)
		f.changed = make(chan struct{})
	}
}

// unfinished returns those of the given ones that haven't ended, and a channel that is closed when one has.
func (f *follower) unfinished(of []*velerov1.PodVolumeBackup) ([]*velerov1.PodVolumeBackup, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var left []*velerov1.PodVolumeBackup
	for _, pvb := range of {
		if !hasEnded(f.last[nameOf(pvb)]) {
			left = append(left, pvb)
		}
	}
	return left, f.changed
}

// latest returns the last known states.
func (f *follower) latest(of []*velerov1.PodVolumeBackup) []*velerov1.PodVolumeBackup {
	f.mu.Lock()
	defer f.mu.Unlock()
	var found []*velerov1.PodVolumeBackup
	for _, pvb := range of {
		if seen := f.last[nameOf(pvb)]; seen != nil {
			pvb = seen
		}
		found = append(found, pvb)
	}
	return found
}

func hasEnded(pvb *velerov1.PodVolumeBackup) bool {
	if pvb == nil {
		return false
	}
	switch pvb.Status.Phase {
	case velerov1.PodVolumeBackupPhaseCompleted, velerov1.PodVolumeBackupPhaseFailed, velerov1.PodVolumeBackupPhaseCanceled:
		return true
	default:
		return false
	}
}

func nameOf(pvb *velerov1.PodVolumeBackup) types.NamespacedName {
	return types.NamespacedName{Namespace: pvb.Namespace, Name: pvb.Name}
}
