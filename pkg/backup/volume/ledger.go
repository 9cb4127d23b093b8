// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package volume

import (
	"encoding/json"
	"fmt"
	"sync"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"github.com/sirupsen/logrus"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	velerobackup "github.com/vmware-tanzu/velero/pkg/backup"
	"github.com/vmware-tanzu/velero/pkg/itemoperation"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/velero-clipper/clipper/internal/velero"
)

// Ledger collects, while a backup is walked, what its volume information file tells about each volume. Velero keeps the
// types of that file to itself; the ledger fills them through the exported fields of Velero's backup request. It is
// safe for concurrent use.
type Ledger struct {
	mu      sync.Mutex
	request *velerobackup.Request
}

// NewLedger returns an empty ledger for a backup.
func NewLedger(backup *velerov1.Backup) *Ledger {
	request := &velerobackup.Request{Backup: backup, SkippedPVTracker: velerobackup.NewSkipPVTracker()}
	request.VolumesInformation.Init()
	return &Ledger{request: request}
}

// Volume enters a volume that is in the backup.
func (l *Ledger) Volume(pv *corev1.PersistentVolume) {
	var namespace, claim string
	if pv.Spec.ClaimRef != nil {
		namespace, claim = pv.Spec.ClaimRef.Namespace, pv.Spec.ClaimRef.Name
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.request.VolumesInformation.InsertPVMap(*pv, claim, namespace)
}

// Skip notes that a volume wasn't protected by an approach, and why. It has no effect for a volume that was taken.
func (l *Ledger) Skip(volume string, approach Approach, reason string) {
	if volume == "" {
		return
	}
	l.request.SkippedPVTracker.Track(volume, string(approach), reason)
}

// Taken notes that a volume is protected. It can't be skipped any more in this backup (BEHAVIOURS 343).
func (l *Ledger) Taken(volume string) {
	if volume == "" {
		return
	}
	l.request.SkippedPVTracker.Untrack(volume)
}

// NativeSnapshot enters a native snapshot, also one that could not be taken.
func (l *Ledger) NativeSnapshot(s velero.NativeSnapshot) { velero.AddNativeSnapshot(l.request, s) }

// NativeSnapshots returns the records of the native snapshots, ready to be encoded as JSON, and counts them (62).
func (l *Ledger) NativeSnapshots() (records any, attempted, completed int) {
	attempted, completed = velero.CountNativeSnapshots(l.request)
	return l.request.VolumeSnapshots.Get(), attempted, completed
}

// PodVolumeBackups enters the file-system backups. They may go on until Information is called.
func (l *Ledger) PodVolumeBackups(list []*velerov1.PodVolumeBackup) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.request.PodVolumeBackups = list
}

// SkippedSummary returns the skipped volumes and their reasons as JSON.
func (l *Ledger) SkippedSummary() (string, error) {
	summary, err := json.Marshal(l.request.SkippedPVTracker.Summary())
	if err != nil {
		return "", fmt.Errorf("encoding the summary of skipped volumes: %w", err)
	}
	return string(summary), nil
}

// Snapshots are the CSI objects of a finished walk.
type Snapshots struct {
	VolumeSnapshots []snapshotv1.VolumeSnapshot
	Contents        []snapshotv1.VolumeSnapshotContent
	Classes         []snapshotv1.VolumeSnapshotClass
}

// Information returns the content of the volume information file, ready to be encoded as JSON (BEHAVIOURS 347, 348).
// It must be called once, after the walk.
func (l *Ledger) Information(snapshots Snapshots, operations []*itemoperation.BackupOperation, c client.Client, log logrus.FieldLogger) any {
	l.mu.Lock()
	defer l.mu.Unlock()
	*l.request.GetItemOperationsList() = operations
	l.request.FillVolumesInformation()
	return l.request.VolumesInformation.Result(withFullBackupName(snapshots.VolumeSnapshots, l.request.Name), snapshots.Contents, snapshots.Classes, c, log)
}

// withFullBackupName returns copies whose backup label has the unshortened name. Velero compares the label with the full
// name and would leave out every snapshot of a backup whose name had to be shortened (field case F25).
func withFullBackupName(snapshots []snapshotv1.VolumeSnapshot, backup string) []snapshotv1.VolumeSnapshot {
	out := make([]snapshotv1.VolumeSnapshot, 0, len(snapshots))
	for i := range snapshots {
		vs := snapshots[i].DeepCopy()
		if vs.Labels == nil {
			vs.Labels = map[string]string{}
		}
		vs.Labels[velerov1.BackupNameLabel] = backup
		out = append(out, *vs)
	}
	return out
}
