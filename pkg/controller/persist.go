// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/vmware-tanzu/velero/pkg/itemoperation"
	"github.com/vmware-tanzu/velero/pkg/persistence"
	"github.com/vmware-tanzu/velero/pkg/util/encode"

	"github.com/velero-clipper/clipper/pkg/backup"
)

// persist uploads the tarball, the log and what is told about the backup. The store is opened anew: credentials may have
// changed since a long backup began (70).
func (r *BackupReconciler) persist(x *execution, result *backup.Result) error {
	store, err := r.deps.Stores.Get(x.location, x.storage, x.log)
	if err != nil {
		return fmt.Errorf("opening storage location %s for the upload: %w", x.location.Name, err)
	}
	log, err := x.log.GetPersistFile()
	if err != nil {
		return fmt.Errorf("reading back the backup's log: %w", err)
	}
	if _, err := x.tarball.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("reading back the tarball: %w", err)
	}
	info, encodeErr := r.files(x, result)
	info.Name, info.Log = x.backup.Name, log
	if err := store.PutBackup(info); err != nil {
		err = fmt.Errorf("uploading backup %s to storage location %s: %w", x.backup.Name, x.location.Name, err)
		return errors.Join(encodeErr, err)
	}
	return encodeErr
}

// files encodes what is uploaded beside the log (71). When anything can't be encoded, nothing of it is uploaded (73).
func (r *BackupReconciler) files(x *execution, result *backup.Result) (persistence.BackupInfo, error) {
	var errs []error
	gzipped := func(what string, data any) io.Reader {
		encoded, failures := r.encode(data, what)
		errs = append(errs, failures...)
		if encoded == nil { // a nil buffer in an interface isn't nil, and would be uploaded
			return nil
		}
		return encoded
	}
	metadata := new(bytes.Buffer)
	if err := encode.To(x.backup, "json", metadata); err != nil {
		errs = append(errs, fmt.Errorf("encoding the Backup: %w", err))
	}
	info := persistence.BackupInfo{
		Metadata:             metadata,
		Contents:             x.tarball,
		PodVolumeBackups:     gzipped("pod volume backups", result.PodVolumeBackups),
		VolumeSnapshots:      gzipped("native volume snapshots", nativeSnapshots(result)),
		BackupItemOperations: gzipped("item operations", append([]*itemoperation.BackupOperation{}, result.Operations...)), // [], not null
		BackupResourceList:   gzipped("resource list", result.Resources),
		BackupResults:        gzipped("results", x.results(result)),
	}
	if result.Volumes != nil {
		volumes := result.Volumes.Information(result.Snapshots, result.Operations, r.deps.Uncached, x.log)
		info.BackupVolumeInfo = gzipped("volume information", volumes)
		info.CSIVolumeSnapshotClasses = gzipped("CSI snapshot classes", result.Snapshots.Classes)
	}
	if err := errors.Join(errs...); err != nil {
		return persistence.BackupInfo{PodVolumeBackups: info.PodVolumeBackups}, fmt.Errorf("encoding the backup's files: %w", err)
	}
	return info, nil
}

// nativeSnapshots are the records of native volume snapshots; a run that ended before it began has none.
func nativeSnapshots(result *backup.Result) any {
	if result.Volumes == nil {
		return []any(nil)
	}
	records, _, _ := result.Volumes.NativeSnapshots()
	return records
}
