// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"

	"golang.org/x/sync/errgroup"

	"github.com/velero-clipper/clipper/pkg/backup/itemblock"
	"github.com/velero-clipper/clipper/pkg/snapshot"
)

// plainBlocks backs up the blocks without hooks. First those whose order the user gave. Then all other snapshots are
// asked for at once; what needs none is written meanwhile, and each other block when its snapshots are decided. A block
// that waits is a parked goroutine and holds no worker.
func (r *run) plainBlocks(ctx context.Context) error {
	for _, block := range r.blocks.ordered {
		if err := r.worker(ctx, func() { r.orderedBlock(ctx, block) }); err != nil {
			return err
		}
	}

	var batch []*claim
	for _, block := range r.blocks.plain {
		batch = append(batch, r.claims.of(block)...)
	}
	r.claims.take(ctx, snapshot.Batch, batch...)

	var group errgroup.Group
	var free []*itemblock.Block
	for _, block := range r.blocks.plain {
		awaited := r.claims.take(ctx, snapshot.Batch, r.claims.of(block)...)
		if len(awaited) == 0 {
			free = append(free, block)
			continue
		}
		group.Go(func() error {
			_ = snapshot.Wait(context.WithoutCancel(ctx), awaited...)
			return r.worker(ctx, func() { r.walk(ctx, block) })
		})
	}
	group.Go(func() error { return r.freeBlocks(ctx, free) })
	if err := group.Wait(); err != nil {
		return err
	}
	return context.Cause(ctx)
}

// freeBlocks walks the blocks that wait for nothing.
func (r *run) freeBlocks(ctx context.Context, free []*itemblock.Block) error {
	var group errgroup.Group
	group.SetLimit(r.deps.Workers)
	for _, block := range free {
		group.Go(func() error {
			return r.worker(ctx, func() { r.walk(ctx, block) })
		})
	}
	return group.Wait()
}

// orderedBlock takes the block's snapshots one after the other, in the order of its items.
func (r *run) orderedBlock(ctx context.Context, block *itemblock.Block) {
	for _, claim := range r.claims.of(block) {
		taken := r.claims.take(ctx, snapshot.Batch, claim)
		_ = snapshot.Wait(context.WithoutCancel(ctx), taken...)
		if ctx.Err() != nil {
			return
		}
	}
	r.walk(ctx, block)
}
