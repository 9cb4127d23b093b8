// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"
	"time"

	"github.com/velero-clipper/clipper/pkg/snapshot"
)

const (
	// readyGrace is how long a walk that is over waits for snapshots that are cut to become ready. Most drivers are
	// ready at the cut, and what is missing then is only the controllers' last status update: waiting for it here saves
	// the backup a round of the operations controller, which looks every 10 s (366).
	readyGrace = 2 * time.Second
	// removalGrace is how long it waits for failed snapshots to be gone before it names them.
	removalGrace = time.Second
)

// settle has a last look at the snapshots: the taken ones may become ready, the failed ones should be gone.
func (r *run) settle(ctx context.Context) error {
	cut, removed := r.claims.ends()
	if r.mover == nil { // a data mover waits for that itself, and the backup waits for the data mover
		r.awaitReady(ctx, cut)
	}
	if ctx.Err() == nil { // else nameLeftovers is next, and gives the removal its time
		r.awaitRemoval(ctx, removed)
	}
	return context.Cause(ctx)
}

// nameLeftovers is settle for a run that has failed: what was given up should be gone, and what is left of it must be
// known (359).
func (r *run) nameLeftovers(ctx context.Context) {
	if r.claims == nil {
		return
	}
	r.cancelUploads(context.WithoutCancel(ctx))
	_, removed := r.claims.ends()
	r.awaitRemoval(context.WithoutCancel(ctx), removed)
}

// ends returns the snapshots that are cut, and those that were created and failed, or were of no use, which are being removed.
func (c *claims) ends() (cut []*snapshot.Snapshot, removed []snapshot.Ref) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, claim := range c.order {
		if claim.snapshot == nil {
			continue
		}
		outcome := claim.snapshot.Outcome()
		switch {
		case outcome.Phase == snapshot.Cut && !claim.discarded:
			cut = append(cut, claim.snapshot)
		case outcome.VolumeSnapshot != nil:
			removed = append(removed, refTo(outcome))
		}
	}
	return cut, removed
}

func (r *run) awaitReady(ctx context.Context, cut []*snapshot.Snapshot) {
	ctx, cancel := context.WithTimeout(ctx, readyGrace)
	defer cancel()
	ready := 0
	for _, s := range cut {
		select {
		case <-s.Ready():
			ready++
		case <-ctx.Done():
		}
	}
	if len(cut) > 0 {
		r.log.Infof("%d of %d CSI snapshots are ready for use", ready, len(cut))
	}
}

// awaitRemoval names what is left of failed snapshots. It is a warning: whoever deletes the rest, the storage driver or
// an administrator, should know (359).
func (r *run) awaitRemoval(ctx context.Context, removed []snapshot.Ref) {
	if len(removed) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, removalGrace)
	defer cancel()
	for _, left := range r.deps.Settler.Settle(ctx, removed...) {
		r.log.WithField("namespace", left.Namespace).WithField("name", left.Name).
			Warnf("The failed snapshot is not gone yet: %s", left.Reason)
	}
}

func refTo(outcome snapshot.Outcome) snapshot.Ref {
	ref := snapshot.Ref{Namespace: outcome.VolumeSnapshot.Namespace, Name: outcome.VolumeSnapshot.Name, UID: outcome.VolumeSnapshot.UID}
	if outcome.Content != nil {
		ref.ContentName = outcome.Content.Name
	}
	return ref
}
