// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"
	"fmt"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/features"
	"github.com/vmware-tanzu/velero/pkg/kuberesource"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/velero-clipper/clipper/pkg/backup/collect"
	"github.com/velero-clipper/clipper/pkg/backup/filter"
	"github.com/velero-clipper/clipper/pkg/backup/itemblock"
	"github.com/velero-clipper/clipper/pkg/backup/volume"
	"github.com/velero-clipper/clipper/pkg/snapshot"
)

// ParallelismAnnotation on a Backup lowers, for this backup, how many snapshots may be in flight. Its values are those of
// the server's flag --csi-snapshot-parallelism, without 0.
const ParallelismAnnotation = "velero.io/csi-snapshot-parallelism"

// blocks are a backup's item blocks, by how they are treated. Within each kind they are in the order in which their
// first item was collected.
type blocks struct {
	// hooked blocks have a pod with a hook: they are frozen, one worker each.
	hooked []*itemblock.Block
	// ordered blocks have no hooks but items of spec.orderedResources: their snapshots are taken one after the other.
	ordered []*itemblock.Block
	// plain blocks are all others: their snapshots are the batch.
	plain []*itemblock.Block
}

// collect lists the items that the filters include.
func (r *run) collect(ctx context.Context) error {
	items, err := collect.Collect(ctx, collect.Deps{
		Log: r.log, Discovery: r.deps.Discovery, Dynamic: r.deps.Dynamic,
		PageSize: r.deps.PageSize, Filter: r.filter, Spec: r.backup.Spec,
	})
	if err != nil {
		return err
	}
	r.items = items
	for _, item := range items {
		r.visits.expect(keyOf(item))
	}
	r.log.Infof("Collected %d items; plugins may add to them, and labels or plugins may take some out", len(items))
	r.progress.collected(ctx)
	_, known := r.visits.counts()
	r.backup.Status.Progress = &velerov1.BackupProgress{TotalItems: known} // for plugins, none of which runs yet (199)
	return nil
}

// plan puts the items into blocks, sorts the blocks by how they are treated, and decides for each claim how its volume is
// protected, before anything is frozen.
func (r *run) plan(ctx context.Context) error {
	built := itemblock.Build(ctx, r.items, itemblock.Deps{
		Log: r.log, Actions: r.blockActions, Backup: r.backup, Filter: r.filter, Excluded: r.excluded,
		Fetch: r.relatedFetcher().fetch,
	})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	for _, block := range built {
		switch {
		case r.isHooked(block):
			r.blocks.hooked = append(r.blocks.hooked, block)
		case block.Ordered:
			r.blocks.ordered = append(r.blocks.ordered, block)
		default:
			r.blocks.plain = append(r.blocks.plain, block)
		}
		r.knowVolumes(block)
	}
	if err := r.planClaims(ctx, built); err != nil {
		return err
	}
	if r.claims.snapshots() > 0 {
		r.deps.Taker.AwaitReadiness(ctx) // no pod is frozen while that is waited for
	}
	r.log.Infof("Planned %d item blocks: %d with hooks, %d in a given order, %d others; %d CSI snapshots",
		len(built), len(r.blocks.hooked), len(r.blocks.ordered), len(r.blocks.plain), r.claims.snapshots())
	return nil
}

func (r *run) isHooked(block *itemblock.Block) bool {
	for _, pod := range block.Pods() {
		if r.hooks.HasHooks(pod.Object()) {
			return true
		}
	}
	return false
}

// knowVolumes saves reading volumes, and claims, again that were collected anyway.
func (r *run) knowVolumes(block *itemblock.Block) {
	for _, item := range block.OfType(kuberesource.PersistentVolumes) {
		pv := new(corev1.PersistentVolume)
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(item.Object().Object, pv); err == nil {
			r.objects.Know(pv)
		}
	}
	if r.request.Policies == nil { // nobody asks for claims then
		return
	}
	for _, item := range block.PVCs() {
		pvc := new(corev1.PersistentVolumeClaim)
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(item.Object().Object, pvc); err == nil {
			r.objects.KnowClaim(pvc)
		}
	}
}

// planClaims plans the claims for which the CSI action would be called: without Velero's CSI feature there is none (185).
func (r *run) planClaims(ctx context.Context, built []*itemblock.Block) error {
	if !features.IsEnabled(velerov1.CSIFeatureFlag) {
		return nil
	}
	for _, block := range built {
		for _, item := range block.PVCs() {
			if object := item.Object(); r.usesAction(claimActionName, item, object) {
				r.claims.plan(ctx, object)
			}
		}
	}
	limit, err := r.limit(r.claims.snapshots())
	if err != nil {
		return err
	}
	r.claims.owner(snapshot.Owner{Name: r.backup.Name, Namespace: r.backup.Namespace, UID: r.backup.UID, Limit: limit})
	return nil
}

// ParallelismOf returns the limit that a Backup has in its annotation; without one it is unlimited. The error names the
// annotation and what it may be.
func ParallelismOf(b *velerov1.Backup) (snapshot.Parallelism, error) {
	text, ok := b.Annotations[ParallelismAnnotation]
	if !ok {
		text = "unlimited"
	}
	own, err := snapshot.ParseParallelism(text)
	if err != nil || own.Disabled() {
		return own, fmt.Errorf("annotation %s: %q is not a limit; use a number from 1 up, a percentage of the backup's claims such as 10%%, or unlimited",
			ParallelismAnnotation, text)
	}
	return own, nil
}

// limit returns how many snapshots this backup may have in flight; 0 means only the server's limit holds.
func (r *run) limit(snapshots int) (int, error) {
	limit := r.deps.Parallelism.Limit(snapshots)
	own, err := ParallelismOf(r.backup)
	if err != nil {
		return 0, err
	}
	if lower := own.Limit(snapshots); lower > 0 && (limit == 0 || lower < limit) {
		return lower, nil
	}
	return limit, nil
}

// excluded hears of the items that the filter left out: a volume that is out by label is a skipped volume (141).
func (r *run) excluded(item collect.Item, decision filter.Decision) {
	if decision.Reason == filter.ReasonExcludedByLabel {
		r.volumes.Skip(volumeName(item.GroupResource, item.Object()), volume.ApproachAny, decision.Message)
	}
}
