// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/velero-clipper/clipper/pkg/backup/collect"
	"github.com/velero-clipper/clipper/pkg/backup/itemblock"
	"github.com/velero-clipper/clipper/pkg/hook"
	"github.com/velero-clipper/clipper/pkg/snapshot"
)

// checkWindows fails those claims of a block whose snapshot says that it was made while its pod wasn't frozen: such a snapshot
// isn't what the hooks were run for. A driver that took it too late, or handed out an older one, would go unnoticed.
func (r *run) checkWindows(ctx context.Context, block *itemblock.Block) {
	if r.deps.FreezeLimits.Tolerance == 0 {
		return
	}
	windows := map[types.NamespacedName]hook.Window{}
	for _, w := range r.runner.Windows() {
		windows[types.NamespacedName{Namespace: w.Namespace, Name: w.Pod}] = w
	}
	for _, item := range block.Pods() {
		if w, frozen := windows[item.NamespacedName()]; frozen {
			r.checkWindow(ctx, item, w)
		}
	}
}

func (r *run) checkWindow(ctx context.Context, item collect.Item, w hook.Window) {
	pod := new(corev1.Pod)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(item.Object().Object, pod); err != nil {
		return // it fails its item, too, and says so there
	}
	for _, v := range pod.Spec.Volumes {
		if v.PersistentVolumeClaim == nil {
			continue
		}
		name := types.NamespacedName{Namespace: pod.Namespace, Name: v.PersistentVolumeClaim.ClaimName}
		ref, err := r.claims.outside(name, w, r.deps.FreezeLimits.Tolerance)
		if err == nil {
			continue
		}
		log := r.log.WithField("namespace", name.Namespace).WithField("name", name.Name).WithField("volumeSnapshot", ref.Name)
		log.WithError(err).Warn("The snapshot is removed")
		if err := r.deps.Settler.Remove(ctx, ref); err != nil {
			log.WithError(err).Warn("The snapshot can't be removed now; it is looked for again later")
		}
	}
}

// outside gives a claim's snapshot up when it says that it was made outside of a freeze window, and returns why. Snapshots whose
// driver doesn't tell when they were made, for which external-snapshotter writes the year 1970, pass.
func (c *claims) outside(name types.NamespacedName, w hook.Window, tolerance time.Duration) (snapshot.Ref, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	claim := c.byName[name]
	if claim == nil || claim.snapshot == nil || claim.spoiled != nil {
		return snapshot.Ref{}, nil
	}
	outcome := claim.snapshot.Outcome()
	if outcome.Phase != snapshot.Cut || outcome.Content == nil || outcome.Content.Status == nil || ptr.Deref(outcome.Content.Status.CreationTime, 0) <= 0 {
		return snapshot.Ref{}, nil
	}
	made := time.Unix(0, *outcome.Content.Status.CreationTime)
	if !made.Before(w.Start.Add(-tolerance)) && !made.After(w.End.Add(tolerance)) {
		return snapshot.Ref{}, nil
	}
	claim.discarded = true
	claim.spoiled = fmt.Errorf("the snapshot of claim %s was made at %s, while its pod %s was frozen from %s to %s only: it may not be consistent; "+
		"look at the storage driver, and, if its clock differs, raise --freeze-window-tolerance (now %s)",
		name, made.UTC().Format(time.RFC3339Nano), w.Pod, w.Start.UTC().Format(time.RFC3339Nano), w.End.UTC().Format(time.RFC3339Nano), tolerance)
	return refTo(outcome), claim.spoiled
}

// unfit says why a claim's snapshot, which is cut, is of no use; nil when it is.
func (c *claims) unfit(claim *claim) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return claim.spoiled
}
