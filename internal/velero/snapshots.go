// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package velero

import (
	velerobackup "github.com/vmware-tanzu/velero/pkg/backup"
)

// NativeSnapshot is what Velero's records keep of a snapshot that a VolumeSnapshotter plugin took, or failed to take.
type NativeSnapshot struct {
	// Location is the name of the VolumeSnapshotLocation.
	Location string
	// Volume is the PersistentVolume's name, VolumeID the provider's name for it.
	Volume, VolumeID string
	// Type, Zone and IOPS describe the volume to the plugin that restores it; IOPS may be nil.
	Type, Zone string
	IOPS       *int64
	// SnapshotID is the provider's name for the snapshot; empty when it was not taken.
	SnapshotID string
	// Failed: it was not taken (269).
	Failed bool
}

// AddNativeSnapshot adds a snapshot to the native ones of a backup's request. It is safe for concurrent use.
func AddNativeSnapshot(to *velerobackup.Request, s NativeSnapshot) {
	record := elementOf(to.VolumeSnapshots.Get)
	record.Spec.BackupName, record.Spec.BackupUID = to.Backup.Name, string(to.Backup.UID)
	record.Spec.Location = s.Location
	record.Spec.PersistentVolumeName, record.Spec.ProviderVolumeID = s.Volume, s.VolumeID
	record.Spec.VolumeType, record.Spec.VolumeAZ, record.Spec.VolumeIOPS = s.Type, s.Zone, s.IOPS
	record.Status.ProviderSnapshotID = s.SnapshotID
	record.Status.Phase = "Completed"
	if s.Failed {
		record.Status.Phase = "Failed"
	}
	to.VolumeSnapshots.Add(record)
}

// CountNativeSnapshots returns how many native snapshots a request has, and how many of them were taken (62).
func CountNativeSnapshots(of *velerobackup.Request) (attempted, completed int) {
	for _, s := range of.VolumeSnapshots.Get() {
		attempted++
		if s.Status.Phase == "Completed" {
			completed++
		}
	}
	return attempted, completed
}

// elementOf makes a value for the elements of the list that a function returns.
func elementOf[T any](func() []*T) *T { return new(T) }
