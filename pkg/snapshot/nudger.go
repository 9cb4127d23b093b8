// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// annStatusNudge is our mark on a VolumeSnapshot that the snapshot-controller had forgotten; its value is the time.
const annStatusNudge = "velero.io/status-nudged-at"

const (
	// stalledAge is how long a content may be ready before its VolumeSnapshot says so, which takes the snapshot-controller a
	// moment. It is longer when that is busy, and then a nudge costs it one more look.
	stalledAge = 15 * time.Second
	// nudgeTimeout bounds the request.
	nudgeTimeout = 15 * time.Second
)

// Nudger makes the snapshot-controller look again at VolumeSnapshots that it has forgotten. external-snapshotter 8.7 loses the news of
// a content now and then when the API server was away: it logs that it can't parse a resource version, and the VolumeSnapshot isn't
// ready before its next look at everything, a quarter of an hour later. Methods may be called from any goroutine.
type Nudger struct {
	client  Client
	tracker *Tracker
	clock   clock.PassiveClock
}

// NewNudger makes a Nudger; the tracker must be running.
func NewNudger(client Client, tracker *Tracker, clk clock.PassiveClock) *Nudger {
	return &Nudger{client: client, tracker: tracker, clock: clk}
}

// Nudge changes an annotation of a VolumeSnapshot whose content has been ready for some time while it isn't itself, and does so again
// when that had no effect for minutes. It returns whether it did; most calls cost no request.
func (n *Nudger) Nudge(ctx context.Context, namespace, name string) (bool, error) {
	key := types.NamespacedName{Namespace: namespace, Name: name}
	vs, content := n.tracker.look(key, "")
	if vs == nil || vs.DeletionTimestamp != nil || isReady(vs, content) || !isContentReady(content) {
		return false, nil
	}
	now := n.clock.Now()
	if now.Sub(n.tracker.historyOf(key).changed) < stalledAge {
		return false, nil
	}
	if last, err := time.Parse(time.RFC3339, vs.Annotations[annStatusNudge]); err == nil && now.Sub(last) < nudgeAgain {
		return false, nil
	}
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": vs.UID, "annotations": map[string]string{annStatusNudge: now.UTC().Format(time.RFC3339)},
	}})
	if err != nil {
		return false, fmt.Errorf("writing the patch of VolumeSnapshot %s: %w", key, err)
	}
	ctx, cancel := context.WithTimeout(ctx, nudgeTimeout)
	defer cancel()
	_, err = n.client.VolumeSnapshots(namespace).Patch(ctx, name, types.MergePatchType, body, metav1.PatchOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return false, fmt.Errorf("annotating VolumeSnapshot %s, which isn't ready while its content is: %w", key, err)
	}
	return err == nil, nil
}
