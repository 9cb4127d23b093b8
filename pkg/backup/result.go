// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/itemoperation"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/velero-clipper/clipper/pkg/backup/volume"
	"github.com/velero-clipper/clipper/pkg/hook"
)

// Result tells what a run did.
type Result struct {
	// Operations go on after the walk.
	Operations []*itemoperation.BackupOperation
	// Resources are the names of the items that were met, by API version and kind.
	Resources map[string][]string
	// Volumes has what the volume information file is made of. Nil when the run ended before it began.
	Volumes *volume.Ledger
	// Snapshots are the CSI objects that are part of the backup.
	Snapshots volume.Snapshots
	// SnapshotsAttempted counts the CSI snapshots that were asked for, with those that failed (360). It is 0 when their data
	// is moved (63).
	SnapshotsAttempted int
	// PodVolumeBackups are the file-system backups that were made, also failed ones.
	PodVolumeBackups []*velerov1.PodVolumeBackup
	// Progress and Hooks are for the Backup's status.
	Progress velerov1.BackupProgress
	Hooks    velerov1.HookStatus
	// FreezeWindows of the pods with hooks.
	FreezeWindows []hook.Window
}

// describedSnapshot is a snapshot whose objects are in the tarball.
type describedSnapshot struct {
	name    types.NamespacedName
	vs      *snapshotv1.VolumeSnapshot
	content *snapshotv1.VolumeSnapshotContent
}

// described notes the objects of a snapshot as they went into the tarball.
func (c *claims) described(name types.NamespacedName, vs *snapshotv1.VolumeSnapshot, content *snapshotv1.VolumeSnapshotContent) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inTarball = append(c.inTarball, describedSnapshot{name: name, vs: vs, content: content})
}

func (r *run) result() *Result {
	result := &Result{
		Operations: r.operations.all(),
		Resources:  r.visits.resourceList(),
		Volumes:    r.volumes,
	}
	result.PodVolumeBackups = r.podVolumes.latest()
	r.volumes.PodVolumeBackups(result.PodVolumeBackups)
	finished, _ := r.visits.counts()
	result.Progress = velerov1.BackupProgress{TotalItems: finished, ItemsBackedUp: finished}
	if r.runner != nil {
		result.Hooks.HooksAttempted, result.Hooks.HooksFailed = r.runner.Stats()
		result.FreezeWindows = r.runner.Windows()
	}
	if r.claims != nil && r.mover == nil { // moved snapshots are no part of the backup (63)
		result.SnapshotsAttempted = len(r.claims.taken())
		result.Snapshots = r.claims.objects(r.objects)
	}
	r.tellWindows(result.FreezeWindows)
	if summary, err := r.volumes.SkippedSummary(); err == nil {
		r.log.Infof("Volumes that are not protected, and why: %s", summary)
	}
	return result
}

// tellWindows logs how long the pods were frozen, and warns of those that were for too long.
func (r *run) tellWindows(windows []hook.Window) {
	soft := r.deps.FreezeLimits.Warning
	for _, w := range windows {
		log, length := r.log.WithField("namespace", w.Namespace).WithField("name", w.Pod), w.End.Sub(w.Start)
		if soft > 0 && length > soft {
			log.Warnf("Pod %s/%s was frozen for %.2f s, longer than --freeze-warning-after=%s; see what took so long in the backup's log, or set the limit %s",
				w.Namespace, w.Pod, length.Seconds(), soft, MaxFreezeAnnotation)
			continue
		}
		log.Infof("The pod was frozen for %.2f s", length.Seconds())
	}
}

// objects returns the snapshots that were taken for the backup and are in its tarball, with their latest known status,
// and their classes. A snapshot of somebody else that a plugin brought in is an item like any other.
func (c *claims) objects(known *volume.Objects) volume.Snapshots {
	latest := map[types.NamespacedName]*snapshotv1.VolumeSnapshot{}
	for _, s := range c.taken() {
		if vs := s.Outcome().VolumeSnapshot; vs != nil {
			latest[types.NamespacedName{Namespace: vs.Namespace, Name: vs.Name}] = vs
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var found volume.Snapshots
	used := map[string]bool{}
	for _, s := range c.inTarball {
		if c.bySnapshot[s.name] == nil {
			continue
		}
		vs := s.vs.DeepCopy()
		if seen := latest[s.name]; seen != nil && seen.Status != nil {
			vs.Status = seen.Status.DeepCopy()
		}
		catchUp(vs, s.content)
		found.VolumeSnapshots = append(found.VolumeSnapshots, *vs)
		found.Contents = append(found.Contents, *s.content)
		if vs.Spec.VolumeSnapshotClassName != nil {
			used[*vs.Spec.VolumeSnapshotClassName] = true
		}
	}
	for _, class := range known.KnownClasses() {
		if used[class.Name] {
			found.Classes = append(found.Classes, class)
		}
	}
	return found
}

// catchUp fills in what a VolumeSnapshot will take over from its content. It may not have done so when the walk is over,
// and without the content's name the volume information would leave the snapshot out (348).
func catchUp(vs *snapshotv1.VolumeSnapshot, content *snapshotv1.VolumeSnapshotContent) {
	if vs.Status == nil {
		vs.Status = &snapshotv1.VolumeSnapshotStatus{}
	}
	if vs.Status.BoundVolumeSnapshotContentName == nil {
		vs.Status.BoundVolumeSnapshotContentName = ptr.To(content.Name)
	}
	if content.Status == nil {
		return
	}
	if size := content.Status.RestoreSize; size != nil && vs.Status.RestoreSize == nil {
		vs.Status.RestoreSize = resource.NewQuantity(*size, resource.BinarySI)
	}
	if created := content.Status.CreationTime; created != nil && vs.Status.CreationTime == nil {
		vs.Status.CreationTime = ptr.To(metav1.NewTime(time.Unix(0, *created)))
	}
}
