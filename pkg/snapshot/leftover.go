// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"regexp"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/datamover"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// OwnerState is how the backup stands that a snapshot was taken for.
type OwnerState string

const (
	// OwnerUnknown: it is in a state that says nothing of its snapshots. Nothing is touched.
	OwnerUnknown OwnerState = "Unknown"
	// OwnerRunning: it is waiting, running, being finalized or being deleted; its snapshots are in good hands.
	OwnerRunning OwnerState = "Running"
	// OwnerEnding: it has failed, and is still being worked on in this server; soon it will be OwnerFailed.
	OwnerEnding OwnerState = "Ending"
	// OwnerFinished: it is there for restores, with its snapshots.
	OwnerFinished OwnerState = "Finished"
	// OwnerFailed: it failed as a whole, and owns no snapshot.
	OwnerFailed OwnerState = "Failed"
	// OwnerGone: there is no Backup with that UID. Its data may still be in an object store.
	OwnerGone OwnerState = "Gone"
)

// OwnerID names a backup as its snapshots do.
type OwnerID struct {
	// Label is the value of the label velero.io/backup-name: the name, shortened when it is too long for a label.
	Label string
	// UID of the Backup. Empty means any Backup of that label value.
	UID types.UID
}

// Owners knows the backups of this installation. Its methods are called from one goroutine.
type Owners interface {
	// Cached answers from a cache, which may lag.
	Cached(ctx context.Context, id OwnerID) (OwnerState, error)
	// Live asks the API server.
	Live(ctx context.Context, id OwnerID) (OwnerState, error)
}

const (
	// nudgeAge is how long a content must be on its way out before the sweep takes it for forgotten: deleting the physical
	// snapshot looks the same and takes a moment.
	nudgeAge = 10 * time.Second
	// nudgeAgain is how long after a nudge without effect the next one follows.
	nudgeAgain = 5 * time.Minute
	// sidecarResync is how often csi-snapshotter looks at all contents.
	sidecarResync = 15 * time.Minute
	// longRemoval is how long a removal may take before it is named.
	longRemoval = time.Minute
)

// ourName is the form of Name.
var ourName = regexp.MustCompile(`^velero-[0-9a-f]{32}$`)

// isTaken says whether a VolumeSnapshot was made by a Taker for a backup of the installation in that namespace. Snapshots of
// users, of other installations, of Velero's own engine and of restores don't pass: a restored one has the labels of the one
// that was backed up, but is made of a content.
func isTaken(vs *snapshotv1.VolumeSnapshot, namespace string) bool {
	owner, pvc := vs.Labels[velerov1.BackupUIDLabel], vs.Labels[velerov1.PVCUIDLabel]
	_, restored := vs.Labels[velerov1.RestoreNameLabel]
	named := vs.Name == Name(types.UID(owner), types.UID(pvc)) || vs.Annotations[AnnGroup] != ""
	return owner != "" && pvc != "" && !restored && named &&
		ptr.Deref(vs.Spec.Source.PersistentVolumeClaimName, "") != "" &&
		namespace != "" && vs.Annotations[AnnInstallation] == namespace
}

// isTakenContent says whether a content is of a VolumeSnapshot that a Taker made, of whatever installation.
func isTakenContent(content *snapshotv1.VolumeSnapshotContent) bool {
	_, restored := content.Labels[velerov1.RestoreNameLabel]
	return !restored && ourName.MatchString(content.Spec.VolumeSnapshotRef.Name) && ptr.Deref(content.Spec.Source.VolumeHandle, "") != ""
}

// isRecorded says whether a backup wrote this snapshot, or was about to: it puts the handle on the VolumeSnapshot first, and
// writes neither the VolumeSnapshot nor the claim when that fails. What isn't recorded is in no backup.
func isRecorded(vs *snapshotv1.VolumeSnapshot) bool {
	return vs.Annotations[velerov1.VolumeSnapshotHandleAnnotation] != ""
}

// isMoved says whether a data mover had the snapshot to work on, and whether that was Velero's own.
func isMoved(vs *snapshotv1.VolumeSnapshot) (moved, builtIn bool) {
	mover, moved := vs.Annotations[AnnDataMover]
	return moved, moved && datamover.IsBuiltInUploader(mover)
}

func backupOf(vs *snapshotv1.VolumeSnapshot) OwnerID {
	return OwnerID{Label: vs.Labels[velerov1.BackupNameLabel], UID: types.UID(vs.Labels[velerov1.BackupUIDLabel])}
}

// sighting is what the sweep sees of one snapshot.
type sighting struct {
	// vs is nil when only a content is left.
	vs      *snapshotv1.VolumeSnapshot
	content *snapshotv1.VolumeSnapshotContent
	owner   OwnerState
	// certain: that is the owner of a lone content, by the name of the VolumeSnapshot that it had.
	certain bool
	// held: the Taker is taking it, or about to remove it.
	held bool
	// followed: its removal is followed to the end.
	followed bool
	now      time.Time
}

// step is what is to be done about a sighting.
type step string

const (
	// leave: nothing, it is in good hands.
	leave step = "leave"
	// waitFor: nothing now; look again soon.
	waitFor step = "wait"
	// finish: remove it to the end, the physical snapshot too.
	finish step = "finish"
	// wakeSidecar: its deletion was asked for, by whomever; make the sidecar see that.
	wakeSidecar step = "nudge"
	// keep: it may be in a backup. See to it that no deletion takes the physical snapshot along, and name it.
	keep step = "keep"
	// name: nothing can be done safely but to say that it is there.
	name step = "name"
)

// decision is a step and, for those that name a leftover, its kind and reason.
type decision struct {
	step step
	// kind is the label value of the gauge; empty for what isn't counted.
	kind leftoverKind
	// reason is empty where the state of the objects has to be put into words.
	reason string
}

// leftoverKind is why something is still there.
type leftoverKind string

const (
	kindRemoving leftoverKind = "removing" // its removal takes long
	kindKept     leftoverKind = "kept"     // it may be in a backup
	kindOrphan   leftoverKind = "orphan"   // a content whose VolumeSnapshot is gone
	kindUnknown  leftoverKind = "unknown"  // its owner's state says nothing
	kindFailed   leftoverKind = "failed"   // the sweep couldn't do what it should
)

var leftoverKinds = []leftoverKind{kindRemoving, kindKept, kindOrphan, kindUnknown, kindFailed}

// leftover decides what is to be done about a snapshot. It destroys only what is certainly in no backup: everything of a backup
// that failed as a whole, and what a backup that is gone never recorded. A finished backup keeps all: a VolumeSnapshot that is
// still there means that releasing it didn't work (298), or that removing a failed one didn't. Only the tarball could tell
// the two apart, so it is neither destroyed nor released. Released, the second kind would be a physical snapshot that nothing in
// the cluster or in the backup names any more.
func leftover(s sighting) decision {
	if s.vs == nil {
		return leftoverContent(s)
	}
	switch {
	case s.held && s.owner == OwnerRunning:
		return decision{step: leave} // the backup's end, or its failure, brings the next sweep
	case s.held:
		return decision{step: waitFor}
	case s.followed && s.vs.DeletionTimestamp != nil:
		return removing(s, s.vs)
	case s.owner == OwnerFailed, s.owner == OwnerGone && !isRecorded(s.vs):
		return decision{step: finish}
	case isOnItsWay(s):
		return removing(s, s.vs)
	}
	switch s.owner {
	case OwnerRunning:
		return decision{step: leave}
	case OwnerEnding:
		return decision{step: waitFor}
	case OwnerFinished:
		if moved, builtIn := isMoved(s.vs); moved {
			return leftByMover(builtIn)
		}
		return decision{keep, kindKept, "its Backup is finished and may need it: releasing it, or removing it, did not work when the backup ended. " +
			"The deletion policy of its content is Retain now. Delete both objects if a restore of the backup works without them"}
	case OwnerGone:
		return decision{keep, kindKept, "its Backup is gone from the cluster, and had recorded it: the backup may still be in an object store. " +
			"The deletion policy of its content is Retain now. Delete the objects, and the physical snapshot, if it is not"}
	default:
		return decision{name, kindUnknown, "the state of its Backup does not say whether it is needed"}
	}
}

// leftByMover decides about the snapshot of a finished backup that a data mover should have removed. Velero's own does not look at it
// again. What another one does with it only its makers know.
func leftByMover(builtIn bool) decision {
	if builtIn {
		return decision{step: finish}
	}
	return decision{name, kindKept, "its Backup is finished, and its data mover has not removed it. " +
		"Delete it if the data mover has no use for it any more: a restore needs only what was moved"}
}

// leftoverContent decides about a content whose VolumeSnapshot is gone. snapshot-controller makes one that no deletion reaches when a
// VolumeSnapshot is deleted at the moment at which it begins with it. Whose it was is known for certain only when the name tells.
func leftoverContent(s sighting) decision {
	switch {
	case s.content.DeletionTimestamp != nil:
		return removing(s, s.content)
	case s.certain && s.owner == OwnerFailed:
		return decision{step: finish}
	case s.certain && s.owner == OwnerEnding:
		return decision{step: waitFor}
	case s.owner == OwnerRunning, s.owner == OwnerEnding:
		return decision{step: leave}
	default:
		return decision{name, kindOrphan, "its VolumeSnapshot is gone, and nothing says for certain that no backup needs it. " +
			"To remove the physical snapshot too, set its deletionPolicy to Delete, annotate it with " + annBeingDeleted + "=yes and delete it"}
	}
}

// isOnItsWay: somebody asked for the deletion of one of the two objects.
func isOnItsWay(s sighting) bool {
	return s.vs.DeletionTimestamp != nil || s.content != nil && s.content.DeletionTimestamp != nil
}

// removing is about a deletion that somebody asked for. Who that was doesn't matter: nothing is changed that was decided.
func removing(s sighting, object metav1.Object) decision {
	if s.content != nil && isForgotten(s.content) && needsNudge(s.content, s.now) {
		if s.now.Sub(s.content.DeletionTimestamp.Time) >= nudgeAge {
			return decision{step: wakeSidecar}
		}
		return decision{step: waitFor}
	}
	if isLong(object, s.now) {
		return decision{step: name, kind: kindRemoving}
	}
	return decision{step: waitFor}
}

// needsNudge says whether to make the sidecar look at a content that it seems to have forgotten: once, and once more where that
// had no effect. After its own resync it has looked at everything anyway.
func needsNudge(content *snapshotv1.VolumeSnapshotContent, now time.Time) bool {
	mark := content.Annotations[annNudge]
	if mark == "" {
		return true
	}
	nudged, err := time.Parse(time.RFC3339, mark)
	return err == nil && now.Sub(nudged) >= nudgeAgain && now.Sub(content.DeletionTimestamp.Time) < sidecarResync
}

func isLong(object metav1.Object, now time.Time) bool {
	since := object.GetDeletionTimestamp()
	return since != nil && now.Sub(since.Time) >= longRemoval
}
