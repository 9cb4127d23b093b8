// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package freezerecord

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/velero-clipper/clipper/internal/apiretry"
)

const (
	// oneTry bounds one request.
	oneTry = 10 * time.Second
	// allTries bounds a write with its repetitions. A pod waits to be frozen meanwhile, which harms nobody.
	allTries = 20 * time.Second
)

// pauses between the tries of a write.
var pauses = wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 0.1, Steps: 20, Cap: 5 * time.Second}

// insist repeats a request that failed for a reason that may pass, at most for allTries.
func insist(ctx context.Context, request func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, allTries)
	defer cancel()
	pause := pauses
	for {
		err := once(ctx, request)
		if err == nil || !apiretry.MayPass(err) {
			return err
		}
		timer := time.NewTimer(pause.Step())
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("%w (%w)", err, context.Cause(ctx))
		}
	}
}

func once(ctx context.Context, request func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, oneTry)
	defer cancel()
	return request(ctx)
}

// setEntries changes keys of a ConfigMap; a nil value removes one. No other writer is disturbed.
func setEntries(ctx context.Context, c client.Client, part types.NamespacedName, entries map[string]*string) error {
	return patch(ctx, c, part, map[string]any{"data": entries})
}

func patch(ctx context.Context, c client.Client, part types.NamespacedName, change map[string]any) error {
	patch, err := json.Marshal(change)
	if err != nil {
		return err
	}
	object := new(corev1.ConfigMap)
	object.Namespace, object.Name = part.Namespace, part.Name
	return c.Patch(ctx, object, client.RawPatch(types.MergePatchType, patch))
}

// remove takes a ConfigMap away with its finalizer. One that is gone is removed. refuse, if not nil, has a last look at it; what changes
// after that look isn't removed either.
func remove(ctx context.Context, c client.Client, part types.NamespacedName, refuse func(*corev1.ConfigMap) error) error {
	return insist(ctx, func(ctx context.Context) error {
		object := new(corev1.ConfigMap)
		if err := c.Get(ctx, part, object); err != nil {
			return client.IgnoreNotFound(err)
		}
		if refuse != nil {
			if err := refuse(object); err != nil {
				return err
			}
		}
		before := object.DeepCopy()
		object.Finalizers = without(object.Finalizers, Finalizer)
		if len(object.Finalizers) != len(before.Finalizers) {
			err := c.Patch(ctx, object, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
			if err != nil || object.DeletionTimestamp != nil {
				return client.IgnoreNotFound(err)
			}
		}
		return client.IgnoreNotFound(c.Delete(ctx, object, client.Preconditions{UID: &object.UID, ResourceVersion: &object.ResourceVersion}))
	})
}

func without(list []string, name string) []string {
	var rest []string
	for _, s := range list {
		if s != name {
			rest = append(rest, s)
		}
	}
	return rest
}
