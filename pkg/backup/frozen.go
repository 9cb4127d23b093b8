// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"
	"fmt"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/kuberesource"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/velero-clipper/clipper/pkg/backup/collect"
	"github.com/velero-clipper/clipper/pkg/backup/itemblock"
	"github.com/velero-clipper/clipper/pkg/backup/volume"
	"github.com/velero-clipper/clipper/pkg/snapshot"
)

// protect takes everything of a block that has to be taken while its pods are frozen, and returns when nothing of that goes
// on any more: CSI snapshots, native snapshots, file-system backups. The walk finds the results. What isn't done at the freeze
// limit fails. asked is called when the CSI snapshots have been asked for.
func (r *run) protect(ctx context.Context, f *freeze, block *itemblock.Block, asked func()) {
	taken := r.claims.take(f.ctx, snapshot.Frozen, r.claims.of(block)...)
	asked()
	failed := r.nativeSnapshots(ctx, f, block) // by the plugins, one after the other, while the CSI snapshots are being cut
	// Each future is decided when ctx ends, too; waiting for that tells removal apart from a snapshot still to come.
	_ = snapshot.Wait(context.WithoutCancel(ctx), taken...)
	if ctx.Err() == nil {
		r.frozenFileSystems(ctx, f, block, failed)
	}
}

// nativeSnapshots takes the native snapshots of a block's volumes. It returns the names of volumes for which that failed,
// which the volumes' own items report. When the freeze is over by then they fail: they aren't taken later.
func (r *run) nativeSnapshots(ctx context.Context, f *freeze, block *itemblock.Block) map[string]bool {
	failed := map[string]bool{}
	for _, item := range r.unvisited(block.OfType(kuberesource.PersistentVolumes)) {
		if ctx.Err() != nil {
			return failed
		}
		object := item.Object()
		if !r.filter.Includes(object, item.GroupResource, false).In {
			continue
		}
		pv := new(corev1.PersistentVolume)
		err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, pv)
		if err == nil {
			err = r.protectNatively(f.ctx, r.frozenCallLimit(), object, pv)
		}
		if err != nil {
			failed[item.Name] = true
		}
	}
	return failed
}

// frozenFileSystems makes the file-system backups of a block's pods and waits for them: a pod may write again when its data
// has been read (220). As in Velero's own engine they come after the snapshots, and a pod with a volume whose snapshot
// failed has none: it will not be in the backup.
func (r *run) frozenFileSystems(ctx context.Context, f *freeze, block *itemblock.Block, failed map[string]bool) {
	var made []*velerov1.PodVolumeBackup
	for _, item := range r.unvisited(block.Pods()) { // without those that a hook has kept out
		if ctx.Err() != nil {
			break
		}
		p := r.podVolumes.of(ctx, item)
		if len(p.wanted) == 0 || r.lacksSnapshot(block, p.pod, failed) || !r.filter.Includes(item.Object(), item.GroupResource, false).In {
			continue
		}
		if err := f.expired(); err != nil {
			r.refuseUnread(item, block, err)
			continue
		}
		_ = r.podVolumes.backUp(p, r.itemLog(item)) // the pod's own item reports what went wrong
		made = append(made, p.backups...)
	}
	if len(made) == 0 {
		return
	}
	log := r.log.WithField("block", block.String())
	log.Infof("Waiting for %d file-system backups of this block's pods", len(made))
	if err := r.podVolumes.session.Wait(f.ctx, made...); err != nil {
		// They are cancelled, so nothing is gained by staying frozen. What they came to is logged at the end of the backup.
		log.WithError(err).Info("The block's pods are thawed before all of their file-system backups have ended")
	}
}

// refuseUnread leaves a pod out whose file-system backups weren't begun when it was thawed: they would have neither the old
// state nor the new one.
func (r *run) refuseUnread(pod collect.Item, block *itemblock.Block, reason error) {
	r.itemLog(pod).WithError(reason).Error("The file-system backups of the pod's volumes were not begun while it was frozen; the pod is left out")
	r.visits.refuse(pod, block)
}

// lacksSnapshot says whether a snapshot of one of the pod's claims has failed.
func (r *run) lacksSnapshot(block *itemblock.Block, pod *corev1.Pod, failed map[string]bool) bool {
	for _, v := range pod.Spec.Volumes {
		if v.PersistentVolumeClaim == nil {
			continue
		}
		for _, item := range block.Find(kuberesource.PersistentVolumeClaims, pod.Namespace, v.PersistentVolumeClaim.ClaimName) {
			if failed[volumeName(item.GroupResource, item.Object())] || r.claims.hasFailed(item) {
				return true
			}
		}
	}
	return false
}

// hasFailed says whether a claim's plan or snapshot has failed.
func (c *claims) hasFailed(item collect.Item) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	claim := c.byName[item.NamespacedName()]
	switch {
	case claim == nil:
		return false
	case claim.err != nil:
		return true
	default:
		return claim.spoiled != nil || claim.snapshot != nil && claim.snapshot.Outcome().Err() != nil
	}
}

// preparePods does what can take long before the pods are frozen: it finds out which volumes are backed up by their file
// systems, and gets the repositories for them ready.
func (r *run) preparePods(ctx context.Context, pods []collect.Item) {
	for _, item := range pods {
		r.podVolumes.prepare(r.podVolumes.of(ctx, item))
	}
}

// noteOptOut enters into the skipped volumes that a pod keeps its claim from file-system backups (167).
func (w *walker) noteOptOut(item collect.Item) {
	if item.GroupResource != kuberesource.PersistentVolumeClaims {
		return
	}
	if pod, yes := w.podVolumes.optedOut(item); yes {
		w.volumes.Skip(volumeName(item.GroupResource, item.Object()), volume.ApproachPodVolume, fmt.Sprintf("pod %s doesn't ask for a file-system backup of it", pod))
	}
}
