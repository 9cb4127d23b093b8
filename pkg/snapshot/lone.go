// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"k8s.io/apimachinery/pkg/types"
)

// This file is about contents whose VolumeSnapshots are gone. A content has neither labels nor an owner reference that would say for which
// backup its VolumeSnapshot was taken; but Name is made of the UIDs of the backup and of the claim, so who knows both can tell.

// suspects are the failed backups, and the claims of a namespace.
type suspects struct {
	failed []OwnerID
	claims []types.UID
}

// ownerOf finds the failed backup for which a VolumeSnapshot of that name was taken.
func (s suspects) ownerOf(name string) (OwnerID, bool) {
	for _, backup := range s.failed {
		for _, claim := range s.claims {
			if Name(backup.UID, claim) == name {
				return backup, true
			}
		}
	}
	return OwnerID{}, false
}

// lone is the finding about a content without a VolumeSnapshot. The suspects of each namespace are asked for once.
func (s *Sweeper) lone(ctx context.Context, content *snapshotv1.VolumeSnapshotContent, owners *ownerStates, known map[string]suspects) *finding {
	f := &finding{key: refOf(content), sighting: sighting{content: content, owner: OwnerUnknown, now: s.Clock.Now()}}
	if label := content.Labels[velerov1.BackupNameLabel]; label != "" {
		f.owner, _ = owners.of(ctx, OwnerID{Label: label}) // unknown is an answer too: it is only named
	}
	if s.Suspects == nil || content.DeletionTimestamp != nil {
		return f
	}
	of, asked := known[f.key.Namespace]
	if !asked {
		var err error
		if of.failed, of.claims, err = s.Suspects(ctx, f.key.Namespace); err != nil {
			s.Logger.WithError(err).Debug("It can't be found out whose contents without VolumeSnapshots were")
		}
		known[f.key.Namespace] = of
	}
	if id, found := of.ownerOf(f.key.Name); found {
		f.id, f.certain = id, true
		f.owner, f.trouble = owners.of(ctx, id)
	}
	return f
}

// isLone says whether a content of ours has no VolumeSnapshot, and nobody in this server is about to see to it.
func (s *Sweeper) isLone(content *snapshotv1.VolumeSnapshotContent) bool {
	key := refOf(content)
	return isTakenContent(content) && content.DeletionTimestamp == nil &&
		!s.Tracker.hasSnapshot(key, content.Spec.VolumeSnapshotRef.UID) && !s.Tracker.isWaitedFor(key)
}
