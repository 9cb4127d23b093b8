// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"
	"sync"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/velero-clipper/clipper/pkg/backup/itemblock"
	"github.com/velero-clipper/clipper/pkg/backup/volume"
	"github.com/velero-clipper/clipper/pkg/snapshot"
)

// claims holds the plan and the snapshot of each claim of a backup, whoever asks for them and how often: a claim gets one
// snapshot per backup. It is safe for concurrent use.
type claims struct {
	planner *volume.Planner
	taker   Taker

	mu     sync.Mutex
	byName map[types.NamespacedName]*claim
	// bySnapshot finds the claims whose snapshots are cut by their VolumeSnapshots.
	bySnapshot map[types.NamespacedName]*claim
	order      []*claim
	// inTarball has the snapshots whose objects were written.
	inTarball []describedSnapshot
}

// claim is one PersistentVolumeClaim. Its fields are set under the lock of claims; plan and err before it can be found.
type claim struct {
	plan volume.Plan
	err  error
	// snapshot is nil until it is taken.
	snapshot *snapshot.Snapshot
	// discarded: the snapshot was cut and is removed all the same.
	discarded bool
	// spoiled is why a snapshot that was cut is of no use.
	spoiled error
}

func newClaims(planner *volume.Planner, taker Taker) *claims {
	return &claims{planner: planner, taker: taker, byName: map[types.NamespacedName]*claim{}, bySnapshot: map[types.NamespacedName]*claim{}}
}

// plan decides about a claim unless that has been done.
func (c *claims) plan(ctx context.Context, object *unstructured.Unstructured) *claim {
	key := nameOf(object)
	c.mu.Lock()
	known := c.byName[key]
	c.mu.Unlock()
	if known != nil {
		return known
	}
	plan, err := c.planner.Plan(ctx, object)
	c.mu.Lock()
	defer c.mu.Unlock()
	if known := c.byName[key]; known != nil {
		return known
	}
	made := &claim{plan: plan, err: err}
	c.byName[key] = made
	c.order = append(c.order, made)
	return made
}

// owner sets the owner of all requests, for claims planned before and after.
func (c *claims) owner(owner snapshot.Owner) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.planner.Owner = owner
	for _, claim := range c.order {
		claim.plan.Request.Owner = owner
	}
}

// take asks for the snapshots of the given claims that have none yet, in one call, and returns the futures of all.
func (c *claims) take(ctx context.Context, priority snapshot.Priority, wanted ...*claim) []*snapshot.Snapshot {
	c.mu.Lock()
	defer c.mu.Unlock()
	var missing []*claim
	var requests []snapshot.Request
	for _, claim := range wanted {
		if claim.plan.Method == volume.CSISnapshot && claim.err == nil && claim.snapshot == nil {
			request := claim.plan.Request
			request.Priority = priority
			missing, requests = append(missing, claim), append(requests, request)
		}
	}
	if len(requests) == 0 {
		return futures(wanted)
	}
	for i, taken := range c.taker.Take(ctx, requests...) {
		missing[i].snapshot = taken
	}
	return futures(wanted)
}

// named notes which VolumeSnapshot is a claim's. That of a group's member has its name from the snapshot-controller.
func (c *claims) named(vs *snapshotv1.VolumeSnapshot, claim *claim) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bySnapshot[types.NamespacedName{Namespace: vs.Namespace, Name: vs.Name}] = claim
}

// wanted returns the requests of a block's claims that no snapshot was asked for yet.
func (c *claims) wanted(block *itemblock.Block) []snapshot.Request {
	of := c.of(block)
	c.mu.Lock()
	defer c.mu.Unlock()
	var requests []snapshot.Request
	for _, claim := range of {
		if claim.plan.Method == volume.CSISnapshot && claim.err == nil && claim.snapshot == nil {
			requests = append(requests, claim.plan.Request)
		}
	}
	return requests
}

// futures returns the snapshots of those claims that have one. The lock is held.
func futures(of []*claim) []*snapshot.Snapshot {
	var all []*snapshot.Snapshot
	for _, claim := range of {
		if claim.snapshot != nil {
			all = append(all, claim.snapshot)
		}
	}
	return all
}

// of returns the claims of a block that were planned, in block order.
func (c *claims) of(block *itemblock.Block) []*claim {
	c.mu.Lock()
	defer c.mu.Unlock()
	var found []*claim
	seen := map[*claim]bool{}
	for _, item := range block.PVCs() {
		claim := c.byName[item.NamespacedName()]
		if claim != nil && !seen[claim] {
			seen[claim] = true
			found = append(found, claim)
		}
	}
	return found
}

// snapshots counts the claims that are protected by a CSI snapshot.
func (c *claims) snapshots() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	count := 0
	for _, claim := range c.order {
		if claim.err == nil && claim.plan.Method == volume.CSISnapshot {
			count++
		}
	}
	return count
}

// taken returns the futures of all snapshots that were asked for, in the order in which their claims were planned.
func (c *claims) taken() []*snapshot.Snapshot {
	c.mu.Lock()
	defer c.mu.Unlock()
	return futures(c.order)
}

// contentOf returns the name of the content of a snapshot that was taken for this backup; empty for any other.
func (c *claims) contentOf(vs types.NamespacedName) string {
	c.mu.Lock()
	claim := c.bySnapshot[vs]
	c.mu.Unlock()
	if claim == nil {
		return ""
	}
	if content := claim.snapshot.Outcome().Content; content != nil {
		return content.Name
	}
	return ""
}
