// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/velero-clipper/clipper/pkg/backup/collect"
	"github.com/velero-clipper/clipper/pkg/backup/itemblock"
)

// hookedBlocks backs up the blocks with hooks, as many at once as there are workers. They go before all others, so that
// nothing competes for the driver while a pod is frozen.
func (r *run) hookedBlocks(ctx context.Context) error {
	var group errgroup.Group
	group.SetLimit(r.deps.Workers)
	for _, block := range r.blocks.hooked {
		if ctx.Err() != nil {
			break
		}
		group.Go(func() error {
			return r.worker(ctx, func() { r.hookedBlock(ctx, block) })
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return context.Cause(ctx)
}

// hookedBlock freezes the block's pods, takes all its snapshots in one pass, waits for all cuts together, then for the
// file-system backups if there are any, thaws, and writes the items when nobody waits for them any more.
func (r *run) hookedBlock(ctx context.Context, block *itemblock.Block) {
	log := r.log.WithField("block", block.String())
	r.freezeAndSnapshot(ctx, block)
	if ctx.Err() != nil {
		log.WithError(context.Cause(ctx)).Warn("The backup was ended while this block's pods were frozen; they are thawed, its items are not written")
		return
	}
	r.checkWindows(ctx, block)
	r.walk(ctx, block)
}

// freezeAndSnapshot returns when the pods are thawed. They are thawed whatever happens on the way, a panic included
// (368).
func (r *run) freezeAndSnapshot(ctx context.Context, block *itemblock.Block) {
	log := r.log.WithField("block", block.String())
	pods := r.worthFreezing(r.unvisited(block.Pods()))
	r.preparePods(ctx, pods)
	// Room for the snapshots comes first: a pod must not be frozen while those of other backups have all the places.
	release := r.deps.Taker.Reserve(ctx, r.claims.wanted(block)...)
	defer release()
	f := r.newFreeze(ctx, log, pods)
	defer f.thaw()
	f.begin(block)
	if ctx.Err() == nil {
		r.protect(ctx, f, block, release)
	}
}

// countEnded counts the hooks of pods that have ended. They are due, and succeed without being run (217).
func (r *run) countEnded(ctx context.Context, block *itemblock.Block) {
	for _, pod := range r.unvisited(block.Pods()) {
		object := pod.Object()
		phase, _, _ := unstructured.NestedString(object.Object, "status", "phase")
		if phase != string(corev1.PodSucceeded) && phase != string(corev1.PodFailed) {
			continue
		}
		if err := r.runner.Freeze(ctx, r.log, object); err == nil {
			_ = r.runner.Thaw(ctx, r.log, object) // no hook of such a pod can fail
		}
	}
}

// unvisited returns the items that aren't in the backup yet. A pod that another block has brought in is not frozen for
// nothing (161, 221).
func (r *run) unvisited(items []collect.Item) []collect.Item {
	var found []collect.Item
	for _, item := range items {
		if !r.visits.isKnown(keyOf(item)) {
			found = append(found, item)
		}
	}
	return found
}
