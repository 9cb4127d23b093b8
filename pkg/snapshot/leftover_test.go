// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	. "github.com/onsi/gomega"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

var sweepTime = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func ago(d time.Duration) *metav1.Time { return ptr.To(metav1.NewTime(sweepTime.Add(-d))) }

// takenSnapshot is one that the Taker made for the installation in "velero".
func takenSnapshot(change ...func(*snapshotv1.VolumeSnapshot)) *snapshotv1.VolumeSnapshot {
	vs := desired(request(1, ofInstallation("velero")))
	for _, f := range change {
		f(vs)
	}
	return vs
}

func ofInstallation(namespace string) func(*Request) {
	return func(r *Request) { r.Owner.Namespace = namespace }
}

func recorded(vs *snapshotv1.VolumeSnapshot) {
	metav1.SetMetaDataAnnotation(&vs.ObjectMeta, velerov1.VolumeSnapshotHandleAnnotation, "handle")
}

func deletedAgo(d time.Duration) func(*snapshotv1.VolumeSnapshot) {
	return func(vs *snapshotv1.VolumeSnapshot) { vs.DeletionTimestamp = ago(d) }
}

func takenContent(change ...func(*snapshotv1.VolumeSnapshotContent)) *snapshotv1.VolumeSnapshotContent {
	c := &snapshotv1.VolumeSnapshotContent{}
	c.Name = "content"
	c.Spec.Source.VolumeHandle = ptr.To("volume")
	c.Spec.VolumeSnapshotRef = corev1.ObjectReference{Namespace: "app", Name: keyOf(request(1)).Name, UID: "uid"}
	for _, f := range change {
		f(c)
	}
	return c
}

func withHandle(c *snapshotv1.VolumeSnapshotContent) {
	contentStatus(c).SnapshotHandle = ptr.To("handle")
}

func marked(key string) func(*snapshotv1.VolumeSnapshotContent) {
	return func(c *snapshotv1.VolumeSnapshotContent) { metav1.SetMetaDataAnnotation(&c.ObjectMeta, key, "yes") }
}

func movedBy(mover string) func(*snapshotv1.VolumeSnapshot) {
	return func(vs *snapshotv1.VolumeSnapshot) { metav1.SetMetaDataAnnotation(&vs.ObjectMeta, AnnDataMover, mover) }
}

func nudgedAgo(d time.Duration) func(*snapshotv1.VolumeSnapshotContent) {
	return func(c *snapshotv1.VolumeSnapshotContent) {
		metav1.SetMetaDataAnnotation(&c.ObjectMeta, annNudge, sweepTime.Add(-d).UTC().Format(time.RFC3339))
	}
}

func contentDeletedAgo(d time.Duration) func(*snapshotv1.VolumeSnapshotContent) {
	return func(c *snapshotv1.VolumeSnapshotContent) { c.DeletionTimestamp = ago(d) }
}

func TestLeftover(t *testing.T) {
	vs, content := takenSnapshot, takenContent
	tests := []struct {
		name string
		sighting
		step step
		kind leftoverKind
	}{
		{"of a running backup", sighting{vs: vs(), owner: OwnerRunning}, leave, ""},
		{"of a backup that is about to have failed", sighting{vs: vs(), owner: OwnerEnding}, waitFor, ""},
		{"of a failed backup", sighting{vs: vs(), owner: OwnerFailed}, finish, ""},
		{"of a failed backup, recorded", sighting{vs: vs(recorded), owner: OwnerFailed}, finish, ""},
		{"of a failed backup, the Taker is at it", sighting{vs: vs(), owner: OwnerFailed, held: true}, waitFor, ""},
		{"of a failed backup, on its way out", sighting{vs: vs(deletedAgo(time.Second)), owner: OwnerFailed}, finish, ""},
		{"of a failed backup, for long on its way out", sighting{vs: vs(deletedAgo(time.Hour)), owner: OwnerFailed}, finish, ""},
		{"of a failed backup, followed, not asked for yet", sighting{vs: vs(), owner: OwnerFailed, followed: true}, finish, ""},
		{"of a failed backup, followed", sighting{vs: vs(deletedAgo(time.Second)), owner: OwnerFailed, followed: true}, waitFor, ""},
		{"of a failed backup, followed for long", sighting{vs: vs(deletedAgo(time.Hour)), owner: OwnerFailed, followed: true}, name, kindRemoving},
		{"of a failed backup, followed, forgotten by the sidecar", sighting{
			vs: vs(deletedAgo(time.Hour)), content: content(withHandle, contentDeletedAgo(nudgeAge)), owner: OwnerFailed, followed: true,
		}, wakeSidecar, ""},
		{"of a backup that is gone", sighting{vs: vs(), owner: OwnerGone}, finish, ""},
		{"of a backup that is gone, recorded", sighting{vs: vs(recorded), owner: OwnerGone}, keep, kindKept},
		{"of a finished backup", sighting{vs: vs(), owner: OwnerFinished}, keep, kindKept},
		{"of a finished backup, recorded", sighting{vs: vs(recorded), owner: OwnerFinished}, keep, kindKept},
		{"of a finished backup, being released", sighting{vs: vs(recorded, deletedAgo(time.Second)), owner: OwnerFinished}, waitFor, ""},
		{"of a finished backup, content being released", sighting{vs: vs(recorded), content: content(contentDeletedAgo(0)), owner: OwnerFinished}, waitFor, ""},
		{"of a finished backup, never released to the end", sighting{vs: vs(recorded, deletedAgo(time.Hour)), owner: OwnerFinished}, name, kindRemoving},
		{"of a finished backup, moved", sighting{vs: vs(movedBy("")), owner: OwnerFinished}, finish, ""},
		{"of a finished backup, moved by another data mover", sighting{vs: vs(movedBy("other")), owner: OwnerFinished}, name, kindKept},
		{"of a running backup, being moved", sighting{vs: vs(movedBy("velero")), owner: OwnerRunning}, leave, ""},
		{"of a backup that is gone, moved", sighting{vs: vs(movedBy("velero")), owner: OwnerGone}, finish, ""},
		{"of an unknown backup, moved", sighting{vs: vs(movedBy("velero")), owner: OwnerUnknown}, name, kindUnknown},
		{"of an unknown backup", sighting{vs: vs(), owner: OwnerUnknown}, name, kindUnknown},
		{"of an unknown backup, forgotten by the sidecar", sighting{
			vs: vs(deletedAgo(time.Hour)), content: content(withHandle, contentDeletedAgo(time.Hour)), owner: OwnerUnknown,
		}, wakeSidecar, ""},
		{"of a running backup, deleted by a user while it was cut", sighting{
			vs: vs(deletedAgo(time.Hour)), content: content(withHandle, contentDeletedAgo(time.Hour)), owner: OwnerRunning,
		}, wakeSidecar, ""},
		{"the physical snapshot is just being deleted", sighting{
			vs: vs(deletedAgo(time.Second)), content: content(withHandle, contentDeletedAgo(time.Second)), owner: OwnerFinished,
		}, waitFor, ""},
		{"the driver still hangs", sighting{
			vs: vs(deletedAgo(time.Hour)), content: content(withHandle, marked(annBeingCreated), contentDeletedAgo(time.Hour)), owner: OwnerFinished,
		}, name, kindRemoving},
		{"nudged, and no better", sighting{
			vs: vs(deletedAgo(time.Hour)), content: content(withHandle, marked(annNudge), contentDeletedAgo(time.Hour)), owner: OwnerFinished,
		}, name, kindRemoving},
		{"a lone content", sighting{content: content(withHandle), owner: OwnerUnknown}, name, kindOrphan},
		{"a lone content, no backup of its label", sighting{content: content(withHandle), owner: OwnerGone}, name, kindOrphan},
		{"a lone content of a failed backup", sighting{content: content(withHandle), owner: OwnerFailed}, name, kindOrphan},
		{"a lone content of a finished backup", sighting{content: content(withHandle), owner: OwnerFinished}, name, kindOrphan},
		{"a lone content of a running backup", sighting{content: content(withHandle), owner: OwnerRunning}, leave, ""},
		{"a lone content, certainly of a failed backup", sighting{content: content(withHandle), owner: OwnerFailed, certain: true}, finish, ""},
		{"a lone content, certainly of an ending backup", sighting{content: content(withHandle), owner: OwnerEnding, certain: true}, waitFor, ""},
		{"a lone content, certainly of a backup that is gone", sighting{content: content(withHandle), owner: OwnerGone, certain: true}, name, kindOrphan},
		{"a lone content, forgotten", sighting{content: content(withHandle, contentDeletedAgo(time.Hour))}, wakeSidecar, ""},
		{"a lone content, being released", sighting{content: content(withHandle, contentDeletedAgo(time.Second))}, waitFor, ""},
		{"a lone content without a handle, on its way out", sighting{content: content(contentDeletedAgo(time.Second))}, waitFor, ""},
		{"a lone content without a handle, forgotten", sighting{content: content(contentDeletedAgo(nudgeAge))}, wakeSidecar, ""},
		{"a lone content, its driver is still cutting", sighting{content: content(contentDeletedAgo(time.Hour), marked(annBeingCreated))}, name, kindRemoving},
		{"a lone content, nudged and for long on its way out", sighting{
			content: content(contentDeletedAgo(time.Hour), nudgedAgo(time.Minute)),
		}, name, kindRemoving},
		{"a lone content, nudged without effect", sighting{
			content: content(contentDeletedAgo(nudgeAgain+nudgeAge), nudgedAgo(nudgeAgain)),
		}, wakeSidecar, ""},
		{"a lone content, nudged without effect, after the sidecar's resync", sighting{
			content: content(contentDeletedAgo(sidecarResync), nudgedAgo(nudgeAgain)),
		}, name, kindRemoving},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			test.now = sweepTime
			got := leftover(test.sighting)
			g.Expect(got.step).To(Equal(test.step))
			g.Expect(got.kind).To(Equal(test.kind))
			g.Expect(got.reason != "").To(Equal(got.kind != "" && got.kind != kindRemoving), "what isn't put into words here comes from the objects")
		})
	}
}

// Nothing but finish destroys, and only these owners may lead to it.
func TestLeftoverNeverDestroysWhatABackupMayNeed(t *testing.T) {
	g := NewWithT(t)
	for _, owner := range []OwnerState{OwnerUnknown, OwnerRunning, OwnerEnding, OwnerFinished, OwnerGone, OwnerFailed} {
		for _, age := range []time.Duration{-1, 0, time.Hour} {
			for _, content := range []*snapshotv1.VolumeSnapshotContent{nil, takenContent(withHandle), takenContent(withHandle, contentDeletedAgo(time.Hour))} {
				s := sighting{vs: takenSnapshot(recorded), content: content, owner: owner, now: sweepTime}
				if age >= 0 {
					deletedAgo(age)(s.vs)
				}
				g.Expect(leftover(s).step == finish).To(Equal(owner == OwnerFailed), "%+v", s)
			}
		}
	}
}

func TestIsTaken(t *testing.T) {
	tests := map[string]struct {
		change func(*snapshotv1.VolumeSnapshot)
		taken  bool
	}{
		"ours":                        {func(*snapshotv1.VolumeSnapshot) {}, true},
		"of another installation":     {func(vs *snapshotv1.VolumeSnapshot) { vs.Annotations[AnnInstallation] = "other" }, false},
		"of an unknown installation":  {func(vs *snapshotv1.VolumeSnapshot) { vs.Annotations = nil }, false},
		"a user's, with our labels":   {func(vs *snapshotv1.VolumeSnapshot) { vs.Name = "mine" }, false},
		"of Velero's own engine":      {func(vs *snapshotv1.VolumeSnapshot) { vs.Name = "velero-data-x7k2p" }, false},
		"with another backup's label": {func(vs *snapshotv1.VolumeSnapshot) { vs.Labels[velerov1.BackupUIDLabel] = "other" }, false},
		"with another claim's label":  {func(vs *snapshotv1.VolumeSnapshot) { vs.Labels[velerov1.PVCUIDLabel] = "other" }, false},
		"without labels":              {func(vs *snapshotv1.VolumeSnapshot) { vs.Labels = nil }, false},
		"restored":                    {func(vs *snapshotv1.VolumeSnapshot) { vs.Labels[velerov1.RestoreNameLabel] = "r" }, false},
		"restored by hand, of content": {func(vs *snapshotv1.VolumeSnapshot) {
			vs.Spec.Source = snapshotv1.VolumeSnapshotSource{VolumeSnapshotContentName: ptr.To("c")}
		}, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(isTaken(takenSnapshot(test.change), "velero")).To(Equal(test.taken))
		})
	}
	NewWithT(t).Expect(isTaken(desired(request(1)), "")).To(BeFalse(), "no namespace is no installation")
}

func TestIsTakenContent(t *testing.T) {
	tests := map[string]struct {
		change func(*snapshotv1.VolumeSnapshotContent)
		taken  bool
	}{
		"ours":            {func(*snapshotv1.VolumeSnapshotContent) {}, true},
		"of another name": {func(c *snapshotv1.VolumeSnapshotContent) { c.Spec.VolumeSnapshotRef.Name = "velero-data-x7k2p" }, false},
		"restored": {func(c *snapshotv1.VolumeSnapshotContent) {
			c.Labels = map[string]string{velerov1.RestoreNameLabel: "r"}
		}, false},
		"pre-provisioned": {func(c *snapshotv1.VolumeSnapshotContent) {
			c.Spec.Source = snapshotv1.VolumeSnapshotContentSource{SnapshotHandle: ptr.To("handle")}
		}, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(isTakenContent(takenContent(test.change))).To(Equal(test.taken))
		})
	}
}
