// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"context"
	"errors"
	"fmt"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/velero-clipper/clipper/internal/lab/scenario"
)

// measureFloor takes a snapshot of each claim without Velero, all at once, to know how fast the layers below can be. It
// removes them again before it returns.
func (r *run) measureFloor(ctx context.Context, _ *errgroup.Group) error {
	claims := r.floorClaims()
	if len(claims) == 0 {
		return nil
	}
	limited, cancel := context.WithTimeoutCause(ctx, r.scenario.Timeout.Duration(),
		errors.New("the snapshots did not come to their end within the scenario's timeout; with storage that hangs or fails, set floor: false"))
	defer cancel()
	begin := time.Now()
	snapshots, err := r.createFloor(limited, claims)
	if err != nil {
		return err
	}
	last, err := r.awaitFloor(limited, len(claims))
	if err != nil {
		return fmt.Errorf("waiting for %d snapshots without Velero: %w", len(claims), err)
	}
	r.floor = last.Sub(begin)
	r.say("the floor is %.2f s for %d volumes", r.floor.Seconds(), len(claims))
	if err := r.removeFloor(limited, snapshots); err != nil {
		return err
	}
	return r.resetDrivers()
}

// floorClaims are the bound claims whose driver has a VolumeSnapshotClass.
func (r *run) floorClaims() []scenario.WorkloadClaim {
	classes := map[string]bool{}
	for _, d := range r.scenario.Storage.Drivers {
		classes[d.Name] = *d.SnapshotClass
	}
	var claims []scenario.WorkloadClaim
	for _, claim := range r.workload.Claims {
		if classes[claim.Driver] && claim.Phase == string(corev1.ClaimBound) {
			claims = append(claims, claim)
		}
	}
	return claims
}

func (r *run) createFloor(ctx context.Context, claims []scenario.WorkloadClaim) ([]*snapshotv1.VolumeSnapshot, error) {
	snapshots := make([]*snapshotv1.VolumeSnapshot, len(claims))
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(inParallel)
	for i, claim := range claims {
		group.Go(func() error {
			vs := &snapshotv1.VolumeSnapshot{
				ObjectMeta: metav1.ObjectMeta{Namespace: claim.Namespace, Name: "floor-" + claim.Claim.Name},
				Spec: snapshotv1.VolumeSnapshotSpec{
					VolumeSnapshotClassName: ptr.To(claim.Driver),
					Source:                  snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: ptr.To(claim.Claim.Name)},
				},
			}
			if err := r.lab.cluster.Client().Create(groupCtx, vs); err != nil {
				return fmt.Errorf("creating a VolumeSnapshot of %s: %w", claim.Key(), err)
			}
			r.board.update(func(rec *recording) { rec.floorUIDs[vs.UID] = true })
			snapshots[i] = vs
			return nil
		})
	}
	return snapshots, group.Wait()
}

// awaitFloor returns when the last snapshot was cut.
func (r *run) awaitFloor(ctx context.Context, count int) (time.Time, error) {
	var last time.Time
	err := r.board.wait(ctx, func(rec *recording) bool {
		cuts := 0
		for _, content := range rec.contents {
			if rec.floorUIDs[content.snapshot] && !content.cut.IsZero() {
				cuts++
				if content.cut.After(last) {
					last = content.cut
				}
			}
		}
		return cuts == count
	})
	return last, err
}

func (r *run) removeFloor(ctx context.Context, snapshots []*snapshotv1.VolumeSnapshot) error {
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(inParallel)
	for _, vs := range snapshots {
		group.Go(func() error {
			if err := r.lab.cluster.Client().Delete(groupCtx, vs); err != nil {
				return fmt.Errorf("deleting VolumeSnapshot %s/%s: %w", vs.Namespace, vs.Name, err)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	err := r.board.wait(ctx, func(rec *recording) bool {
		for uid := range rec.floorUIDs {
			if s := rec.snapshots[uid]; s == nil || s.deleted.IsZero() {
				return false
			}
			if c := rec.contentOf(uid); c != nil && c.deleted.IsZero() {
				return false
			}
		}
		return true
	})
	if err != nil {
		return fmt.Errorf("waiting for the floor's snapshots to be gone: %w", err)
	}
	return r.removeEvents(ctx)
}

// removeEvents deletes the Events that the floor left, so that the backup does not hold them.
func (r *run) removeEvents(ctx context.Context) error {
	for _, namespace := range r.workload.Namespaces {
		err := r.lab.cluster.Client().DeleteAllOf(ctx, &corev1.Event{}, client.InNamespace(namespace.Namespace))
		if err != nil {
			return fmt.Errorf("deleting the events in namespace %s: %w", namespace.Namespace, err)
		}
	}
	return nil
}

// resetDrivers makes the counts of failures begin anew, which the floor has used up.
func (r *run) resetDrivers() error {
	for _, d := range r.scenario.Storage.Drivers {
		if err := r.lab.drivers[d.Name].SetBehaviours(driverBehaviours(d.Behaviour)); err != nil {
			return err
		}
	}
	return nil
}
