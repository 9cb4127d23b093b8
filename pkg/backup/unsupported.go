// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"
	"fmt"
	"strings"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/util/boolptr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/velero-clipper/clipper/pkg/backup/collect"
)

// wayOut ends the sentence about each thing that the engine can't do yet.
const wayOut = "isn't available with the parallel engine yet; leave it out, or run the server with --csi-snapshot-parallelism=0, which is Velero's own engine"

// Unsupported returns a sentence for each part of a backup's spec that the engine can't honour. A backup that has any must
// not be started: it would silently protect less than was asked for. The spec's defaults must be filled in.
func Unsupported(spec velerov1.BackupSpec) []string {
	var found []string
	if boolptr.IsSetToTrue(spec.DefaultVolumesToFsBackup) {
		found = append(found, "spec.defaultVolumesToFsBackup (file-system backup of pod volumes) "+wayOut)
	}
	return found
}

// fileSystemBackups returns the error of a pod of which a volume would be backed up by its file system, because the pod's
// annotations or a volume policy say so (168, 246 to 248). What keeps that from being known is an error, too, but for a claim
// that isn't bound: there is nothing to back up, which the claim's own warning tells.
func (w *walker) fileSystemBackups(ctx context.Context, item collect.Item) (errs []error) {
	pod := new(corev1.Pod)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(item.Object.Object, pod); err != nil {
		return []error{fmt.Errorf("reading pod %s/%s: %w", item.Namespace, item.Name, err)}
	}
	var wanted []string
	for _, volume := range pod.Spec.Volumes {
		yes, err := w.helper.ShouldPerformFSBackup(volume, *pod)
		switch {
		case err != nil && volume.PersistentVolumeClaim != nil && w.objects.IsUnbound(ctx, pod.Namespace, volume.PersistentVolumeClaim.ClaimName):
		case err != nil:
			errs = append(errs, fmt.Errorf("deciding how volume %s of pod %s/%s is backed up: %w", volume.Name, pod.Namespace, pod.Name, err))
		case yes:
			wanted = append(wanted, volume.Name)
		}
	}
	if len(wanted) == 0 {
		return errs
	}
	names := strings.Join(wanted, ", ")
	if pod.Status.Phase != corev1.PodRunning { // (251)
		w.itemLog(item).Warnf("The pod isn't running, so the file systems of its volumes %s can't be backed up", names)
		return errs
	}
	return append(errs, fmt.Errorf("pod %s/%s wants a file-system backup of its volumes %s (by annotation %s, or by a volume policy), which %s",
		pod.Namespace, pod.Name, names, velerov1.VolumesToBackupAnnotation, wayOut))
}
