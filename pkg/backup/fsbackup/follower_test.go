// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package fsbackup

import (
	"testing"

	. "github.com/onsi/gomega"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
)

func seenIn(name string, phase velerov1.PodVolumeBackupPhase) *velerov1.PodVolumeBackup {
	return &velerov1.PodVolumeBackup{
		ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: name, Labels: map[string]string{velerov1.BackupUIDLabel: "mine"}},
		Status:     velerov1.PodVolumeBackupStatus{Phase: phase},
	}
}

// Events come twice and out of order: after a watch was taken up anew, at a resynchronisation, and from two servers that write at
// once. None of that may end the server or a wait too early (field case F22).
func TestEventsThatComeTwiceAndOutOfOrder(t *testing.T) {
	const (
		running   = velerov1.PodVolumeBackupPhaseInProgress
		completed = velerov1.PodVolumeBackupPhaseCompleted
		failed    = velerov1.PodVolumeBackupPhaseFailed
	)
	a, b := seenIn("a", ""), seenIn("b", "")
	cases := map[string]struct {
		events func(*follower)
		left   []string
		phases []velerov1.PodVolumeBackupPhase
	}{
		"each twice": {
			events: func(f *follower) {
				for range 2 {
					f.OnAdd(seenIn("a", running), false)
					f.OnUpdate(nil, seenIn("a", completed))
				}
				f.OnAdd(seenIn("b", running), false)
			},
			left: []string{"b"}, phases: []velerov1.PodVolumeBackupPhase{completed, running},
		},
		"the end first": {
			events: func(f *follower) {
				for _, name := range []string{"a", "b"} {
					f.OnUpdate(nil, seenIn(name, completed))
					f.OnUpdate(nil, seenIn(name, running))
					f.OnAdd(seenIn(name, ""), true)
				}
			},
			phases: []velerov1.PodVolumeBackupPhase{completed, completed},
		},
		"two ends": {
			events: func(f *follower) {
				f.OnUpdate(nil, seenIn("a", failed))
				f.OnUpdate(nil, seenIn("a", completed))
				f.OnUpdate(nil, seenIn("b", completed))
			},
			phases: []velerov1.PodVolumeBackupPhase{failed, completed},
		},
		"deleted after its end, twice": {
			events: func(f *follower) {
				f.OnUpdate(nil, seenIn("a", completed))
				f.OnDelete(seenIn("a", completed))
				f.OnDelete(toolscache.DeletedFinalStateUnknown{Obj: seenIn("a", running)})
				f.OnUpdate(nil, seenIn("b", completed))
			},
			phases: []velerov1.PodVolumeBackupPhase{completed, completed},
		},
		"deleted before its end, and seen once more": {
			events: func(f *follower) {
				f.OnDelete(seenIn("a", running))
				f.OnUpdate(nil, seenIn("a", running))
				f.OnUpdate(nil, seenIn("b", completed))
			},
			phases: []velerov1.PodVolumeBackupPhase{failed, completed},
		},
		"nothing that it knows": {
			events: func(f *follower) {
				f.OnDelete(toolscache.DeletedFinalStateUnknown{})
				f.OnAdd(&velerov1.Backup{}, false)
				other := seenIn("a", completed)
				other.Labels[velerov1.BackupUIDLabel] = "another"
				f.OnAdd(other, false)
			},
			left: []string{"a", "b"}, phases: []velerov1.PodVolumeBackupPhase{"", ""},
		},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			f := newFollower("mine")
			test.events(f)
			var left []string
			unfinished, _ := f.unfinished([]*velerov1.PodVolumeBackup{a, b})
			for _, pvb := range unfinished {
				left = append(left, pvb.Name)
			}
			g.Expect(left).To(Equal(test.left))
			var phases []velerov1.PodVolumeBackupPhase
			for _, pvb := range f.latest([]*velerov1.PodVolumeBackup{a, b}) {
				phases = append(phases, pvb.Status.Phase)
			}
			g.Expect(phases).To(Equal(test.phases))
		})
	}
}

func TestWhoWaitsIsWokenByEachEndOnce(t *testing.T) {
	g := NewWithT(t)
	f := newFollower("mine")
	left, changed := f.unfinished([]*velerov1.PodVolumeBackup{seenIn("a", ""), seenIn("b", "")})
	g.Expect(left).To(HaveLen(2))
	f.OnUpdate(nil, seenIn("a", velerov1.PodVolumeBackupPhaseInProgress))
	g.Expect(changed).NotTo(BeClosed())
	f.OnUpdate(nil, seenIn("a", velerov1.PodVolumeBackupPhaseCompleted))
	g.Expect(changed).To(BeClosed())

	_, changed = f.unfinished(left)
	f.OnUpdate(nil, seenIn("a", velerov1.PodVolumeBackupPhaseCompleted))
	g.Expect(changed).NotTo(BeClosed(), "that end is known")
	f.OnUpdate(nil, seenIn("b", velerov1.PodVolumeBackupPhaseFailed))
	g.Expect(changed).To(BeClosed())
}
