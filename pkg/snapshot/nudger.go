// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// annStatusNudge is our mark on a VolumeSnapshot or content that a controller had forgotten; its value is the time.
const annStatusNudge = "velero.io/status-nudged-at"

const (
	// stalledAge is how long a content may be ready before its VolumeSnapshot says so, which takes the snapshot-controller a
	// moment. It is longer when that is busy, and then a nudge costs it one more look.
	stalledAge = 15 * time.Second
	// unaskedAge is how long a content may be cut and not ready before the sidecar is made to ask the driver once more. By itself it has
	// done so half a dozen times by then; a storage that needs hours gets one call more.
	unaskedAge = time.Minute
	// nudgeTimeout bounds the request. Who asks has more snapshots to ask for, and waits.
	nudgeTimeout = 2 * time.Second
)

// Nudger makes external-snapshotter look again at snapshots that it has forgotten, as 8.7 does now and then while it is busy or the API
// server is away: the sidecar doesn't ask a second time whether a snapshot is ready, when the answer to its first status update
// overtakes its own cache; the snapshot-controller loses the news that a content is ready. Both look at everything a quarter of an hour
// later. Methods may be called from any goroutine.
type Nudger struct {
	client  Client
	tracker *Tracker
	clock   clock.PassiveClock

	mu sync.Mutex
	// tried is when an object was last tried to be nudged, also in vain.
	tried map[types.UID]time.Time
}

// NewNudger makes a Nudger; the tracker must be running.
func NewNudger(client Client, tracker *Tracker, clk clock.PassiveClock) *Nudger {
	return &Nudger{client: client, tracker: tracker, clock: clk, tried: map[types.UID]time.Time{}}
}

// Nudge changes an annotation of a VolumeSnapshot whose content has been ready for some time while it isn't itself, and does so again
// when that had no effect for minutes; or one of a content that is cut and hasn't become ready, once. It returns whether it did; most
// calls cost no request. What can't be written is tried again minutes later, however often it is asked for.
func (n *Nudger) Nudge(ctx context.Context, namespace, name string) (bool, error) {
	key := types.NamespacedName{Namespace: namespace, Name: name}
	vs, content := n.tracker.look(key, "")
	if ctx.Err() != nil || vs == nil || vs.DeletionTimestamp != nil || isReady(vs, content) || handleOf(content) == "" {
		return false, nil
	}
	now := n.clock.Now()
	idle := now.Sub(n.tracker.historyOf(key).changed)
	if isContentReady(content) {
		if idle < stalledAge || now.Sub(nudgedAt(vs)) < nudgeAgain || n.hasTried(vs.UID, now) {
			return false, nil
		}
		return n.patch(ctx, vs, "VolumeSnapshot "+key.String(), func(ctx context.Context, body []byte) error {
			_, err := n.client.VolumeSnapshots(namespace).Patch(ctx, name, types.MergePatchType, body, metav1.PatchOptions{})
			return err
		})
	}
	if idle < unaskedAge || !nudgedAt(content).IsZero() || n.hasTried(content.UID, now) {
		return false, nil
	}
	return n.patch(ctx, content, "VolumeSnapshotContent "+content.Name, func(ctx context.Context, body []byte) error {
		_, err := n.client.VolumeSnapshotContents().Patch(ctx, content.Name, types.MergePatchType, body, metav1.PatchOptions{})
		return err
	})
}

// hasTried says whether an object was tried to be nudged in the last minutes, and notes that it is now, if it wasn't.
func (n *Nudger) hasTried(object types.UID, now time.Time) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	maps.DeleteFunc(n.tried, func(_ types.UID, at time.Time) bool { return now.Sub(at) >= nudgeAgain })
	if _, tried := n.tried[object]; tried {
		return true
	}
	n.tried[object] = now
	return false
}

// nudgedAt is when the object was nudged last; the zero time when it wasn't.
func nudgedAt(object metav1.Object) time.Time {
	at, err := time.Parse(time.RFC3339, object.GetAnnotations()[annStatusNudge])
	if err != nil {
		return time.Time{}
	}
	return at
}

// patch writes the mark. An object that is gone is no error.
func (n *Nudger) patch(ctx context.Context, object metav1.Object, what string, send func(context.Context, []byte) error) (bool, error) {
	body, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid": object.GetUID(), "annotations": map[string]string{annStatusNudge: n.clock.Now().UTC().Format(time.RFC3339)},
	}})
	if err != nil {
		return false, fmt.Errorf("writing the patch of %s: %w", what, err)
	}
	ctx, cancel := context.WithTimeout(ctx, nudgeTimeout)
	defer cancel()
	if err = send(ctx, body); err != nil && !apierrors.IsNotFound(err) {
		return false, fmt.Errorf("annotating %s, so that external-snapshotter looks at it again: %w", what, err)
	}
	return err == nil, nil
}
