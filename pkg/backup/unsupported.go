// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"fmt"
	"strings"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/util/boolptr"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// wayOut ends the sentence about each thing that the engine can't do yet.
const wayOut = "isn't available with the parallel engine yet; leave it out, or run the server with --csi-snapshot-parallelism=0, which is Velero's own engine"

// Unsupported returns a sentence for each part of a backup's spec that the engine can't honour. A backup that has any must
// not be started: it would silently protect less than was asked for. The spec's defaults must be filled in.
func Unsupported(spec velerov1.BackupSpec) []string {
	var found []string
	if boolptr.IsSetToTrue(spec.SnapshotMoveData) {
		found = append(found, "spec.snapshotMoveData (moving snapshot data to the backup storage location) "+wayOut)
	}
	if boolptr.IsSetToTrue(spec.DefaultVolumesToFsBackup) {
		found = append(found, "spec.defaultVolumesToFsBackup (file-system backup of pod volumes) "+wayOut)
	}
	if spec.ResourcePolicy != nil {
		found = append(found, fmt.Sprintf("spec.resourcePolicy (%s) %s", spec.ResourcePolicy.Name, wayOut))
	}
	return found
}

// fileSystemBackups returns an error for a pod that asks, by annotation, for the file-system backup of a volume (248).
func fileSystemBackups(pod *unstructured.Unstructured) error {
	volumes := pod.GetAnnotations()[velerov1.VolumesToBackupAnnotation]
	if strings.TrimSpace(volumes) == "" {
		return nil
	}
	return fmt.Errorf("pod %s/%s asks for a file-system backup of its volumes %s (annotation %s), which %s",
		pod.GetNamespace(), pod.GetName(), volumes, velerov1.VolumesToBackupAnnotation, wayOut)
}
