// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
)

// check says what doesn't hold. With once, each freeze must have been followed by exactly one thaw.
func (l *Lab) check(once bool) []string {
	var failures []string
	var backups map[string]velerov1.BackupStatus
	l.state.view(func(s *seen) {
		backups = maps.Clone(s.backups)
		failures = slices.Concat(s.exits, checkHooks(s.hooks(), once), checkLeft(s))
	})
	for i := range failures {
		failures[i] = strings.TrimSpace(failures[i])
	}
	owned := map[string]bool{}
	for _, name := range slices.Sorted(maps.Keys(backups)) {
		failures = append(failures, l.checkBackup(name, backups[name], owned)...)
	}
	exists := map[string]bool{}
	for _, snapshot := range l.driver.Snapshots() {
		exists[snapshot.ID] = true
		if !owned[snapshot.ID] {
			failures = append(failures, fmt.Sprintf("physical snapshot %s of %s has no owner", snapshot.ID, snapshot.Volume))
		}
	}
	for _, handle := range slices.Sorted(maps.Keys(owned)) {
		if !exists[handle] {
			failures = append(failures, fmt.Sprintf("physical snapshot %s is in a backup and does not exist", handle))
		}
	}
	return failures
}

// checkHooks judges the runs of the hooks of each pod.
func checkHooks(pods map[string]hookRuns, once bool) []string {
	var failures []string
	for _, pod := range slices.Sorted(maps.Keys(pods)) {
		runs := pods[pod]
		switch {
		case runs.isFrozen():
			failures = append(failures, fmt.Sprintf("pod %s is frozen", pod))
		case runs.again > 0:
			failures = append(failures, fmt.Sprintf("pod %s was frozen again before it was thawed", pod))
		case once && runs.freezes != runs.thaws:
			failures = append(failures, fmt.Sprintf("pod %s was frozen %d times and thawed %d times", pod, runs.freezes, runs.thaws))
		}
	}
	return failures
}

// checkLeft lists what should be gone.
func checkLeft(s *seen) []string {
	var failures []string
	for kind, left := range map[string]int{
		"VolumeSnapshots are left": len(s.snapshots), "VolumeSnapshotContents are left": len(s.contents), "freeze records are left": len(s.records),
	} {
		if left > 0 {
			failures = append(failures, fmt.Sprintf("%d %s", left, kind))
		}
	}
	if s.busy {
		failures = append(failures, "a call of the driver is still under way")
	}
	slices.Sort(failures)
	return failures
}

// checkBackup judges a backup and notes the physical snapshots that it owns.
func (l *Lab) checkBackup(name string, status velerov1.BackupStatus, owned map[string]bool) []string {
	switch status.Phase {
	case velerov1.BackupPhaseFailed:
		if status.FailureReason == "" {
			return []string{fmt.Sprintf("backup %s is Failed and doesn't say why", name)}
		}
		return nil
	case velerov1.BackupPhaseFailedValidation:
		return nil
	case velerov1.BackupPhaseCompleted, velerov1.BackupPhasePartiallyFailed:
	default:
		return []string{fmt.Sprintf("backup %s has no end: it is %q", name, status.Phase)}
	}
	var failures []string
	var stored velerov1.Backup
	if err := l.readJSON(path.Join("backups", name, metadataFile), false, &stored); err != nil {
		failures = append(failures, fmt.Sprintf("backup %s is %s and its metadata can't be read: %v", name, status.Phase, err))
	} else if stored.Status.Phase != status.Phase {
		failures = append(failures, fmt.Sprintf("backup %s is %s in the cluster and %q in the object store", name, status.Phase, stored.Status.Phase))
	}
	var volumes []struct {
		CSI struct {
			SnapshotHandle string `json:"snapshotHandle"`
		} `json:"csiSnapshotInfo"`
	}
	if err := l.readJSON(path.Join("backups", name, name+"-volumeinfo.json.gz"), true, &volumes); err != nil {
		return append(failures, fmt.Sprintf("the volumes of backup %s can't be read: %v", name, err))
	}
	handles := 0
	for _, volume := range volumes {
		if volume.CSI.SnapshotHandle != "" {
			owned[volume.CSI.SnapshotHandle] = true
			handles++
		}
	}
	if status.Phase == velerov1.BackupPhaseCompleted && handles != status.CSIVolumeSnapshotsAttempted {
		failures = append(failures, fmt.Sprintf("backup %s is Completed with %d snapshots of %d", name, handles, status.CSIVolumeSnapshotsAttempted))
	}
	return failures
}

// readJSON reads a file of the object store.
func (l *Lab) readJSON(key string, gzipped bool, into any) error {
	content, err := l.store.Get(key)
	if err != nil {
		return err
	}
	if gzipped {
		reader, err := gzip.NewReader(bytes.NewReader(content))
		if err != nil {
			return fmt.Errorf("reading %s: %w", key, err)
		}
		if content, err = io.ReadAll(reader); err != nil {
			return fmt.Errorf("reading %s: %w", key, err)
		}
	}
	return json.Unmarshal(content, into)
}
