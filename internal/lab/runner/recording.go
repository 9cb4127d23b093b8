// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"maps"
	"time"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"k8s.io/apimachinery/pkg/types"
)

// recording is everything that was seen while an experiment ran, with wall-clock times. analyse.go turns it into a result.
type recording struct {
	// origin is when the first backup was created; nothing before it counts. Zero until then.
	origin time.Time
	// floorUIDs are the VolumeSnapshots that the floor made.
	floorUIDs map[types.UID]bool
	// foreign are the objects that the scenario itself created, as a user would.
	foreign map[types.UID]bool

	backups   map[string]*backupRecord
	restores  map[string]*restoreRecord
	deletes   map[string]*deleteRecord
	snapshots map[types.UID]*snapshotRecord
	contents  map[types.UID]*contentRecord
	uploads   map[types.UID]*uploadRecord
	// podVolumes are the PodVolumeBackups in the order in which they were seen first.
	podVolumes []*podVolumeRecord
	records    map[string]bool // freeze records that exist, by name

	execs []execution
	calls []driverCall
	exits []serverExit
	// starts counts the starts of the server; ready and running describe it now.
	starts         int
	ready, running bool
	notes          []note
	metrics        metricsRecord
}

func newRecording() *recording {
	return &recording{
		floorUIDs: map[types.UID]bool{}, foreign: map[types.UID]bool{},
		backups: map[string]*backupRecord{}, restores: map[string]*restoreRecord{}, deletes: map[string]*deleteRecord{},
		snapshots: map[types.UID]*snapshotRecord{}, contents: map[types.UID]*contentRecord{},
		uploads: map[types.UID]*uploadRecord{}, records: map[string]bool{},
		metrics: metricsRecord{final: map[string]float64{}, peaks: map[string]float64{}},
	}
}

// phaseSeen is a phase and when it was first seen.
type phaseSeen struct {
	phase string
	at    time.Time
}

// phases is the list of different phases that an object went through.
type phases []phaseSeen

func (p *phases) note(phase string, at time.Time) {
	if phase == "" || p.last() == phase {
		return
	}
	*p = append(*p, phaseSeen{phase: phase, at: at})
}

func (p phases) last() string {
	if len(p) == 0 {
		return ""
	}
	return p[len(p)-1].phase
}

type backupRecord struct {
	name    string
	uid     types.UID
	created time.Time // when the lab asked for it
	phases  phases
	status  velerov1.BackupStatus
	gone    time.Time
}

type restoreRecord struct {
	created time.Time
	phases  phases
	status  velerov1.RestoreStatus
}

type deleteRecord struct {
	created time.Time
	done    bool
	errors  []string
	// requests are the requests for this deletion, and before it.
	requests, earlier map[types.UID]bool
}

// newDelete begins the record of a deletion; what is still heard of the earlier ones of the same backup doesn't concern it.
func newDelete(earlier *deleteRecord, now time.Time) *deleteRecord {
	d := &deleteRecord{created: now, requests: map[types.UID]bool{}, earlier: map[types.UID]bool{}}
	if earlier != nil {
		maps.Copy(d.earlier, earlier.earlier)
		maps.Copy(d.earlier, earlier.requests)
	}
	return d
}

// snapshotRecord is a VolumeSnapshot.
type snapshotRecord struct {
	uid             types.UID
	namespace, name string
	// pvc is the claim that it was made of; empty for one that a restore made.
	pvc string
	// backup and restore are the values of Velero's labels.
	backup, restore string
	// deleting is when its deletion was asked for, deleted when it was gone.
	created, ready, deleting, deleted time.Time

	err string
}

// contentRecord is a VolumeSnapshotContent.
type contentRecord struct {
	uid  types.UID
	name string
	// snapshot is the UID of the VolumeSnapshot that it belongs to.
	snapshot                     types.UID
	driver, handle               string
	restore                      string
	created, cut, ready, deleted time.Time
	err                          string
}

// uploadRecord is a DataUpload.
type uploadRecord struct {
	// backup is the value of Velero's label, claim is "namespace/name".
	backup, claim    string
	phase            string
	created, deleted time.Time
}

// podVolumeRecord is a PodVolumeBackup.
type podVolumeRecord struct {
	uid types.UID
	// backup is the value of Velero's label, pod is "namespace/name".
	backup, pod, volume string
	phase               string
	created, ended      time.Time
}

// execution is one command in a container, by the kubelet stand-in's clock.
type execution struct {
	pod, container string // pod is "namespace/name"
	command        []string
	start, end     time.Time // end is zero while it runs
	exit           int
}

// driverCall is one call to a CSI driver, by the driver's clock.
type driverCall struct {
	driver string
	method string
	// name is what the sidecar calls the snapshot: "snapshot-" and the VolumeSnapshot's UID.
	name string
	// volume is "namespace/pvc", for CreateSnapshot; snapshot is the physical snapshot's ID.
	volume, snapshot string

	start, end time.Time // end is zero while it runs
	err        string
	// throttled is true for a call that the driver refused because it came too fast.
	throttled bool
}

const (
	methodCreate = "CreateSnapshot"
	methodDelete = "DeleteSnapshot"
)

type serverExit struct {
	at       time.Time
	status   string
	expected bool
}

// note is a line of the timeline that no object stands for.
type note struct {
	at                    time.Time
	kind, object, message string
}

// notOfBackups says whether a VolumeSnapshot was made by the floor or by a user.
func (r *recording) notOfBackups(snapshot types.UID) bool {
	return r.floorUIDs[snapshot] || r.foreign[snapshot]
}

// contentOf finds the content of a VolumeSnapshot; when it had several, the one that was cut.
func (r *recording) contentOf(uid types.UID) *contentRecord {
	var found *contentRecord
	for _, content := range r.contents {
		if content.snapshot != uid || content.restore != "" {
			continue
		}
		if found == nil || found.cut.IsZero() && !content.cut.IsZero() {
			found = content
		}
	}
	return found
}
