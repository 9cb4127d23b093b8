// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// patchMetadata merges labels or annotations into an object that may be known by name only. The object is filled with
// what the API server answers, which saves reading it.
func (w *walker) patchMetadata(ctx context.Context, object client.Object, metadata map[string]any) error {
	patch, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return fmt.Errorf("encoding the patch: %w", err)
	}
	// A merge patch of metadata never conflicts by itself; the API server may be busy all the same.
	return retry.OnError(retry.DefaultBackoff, isBusy, func() error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return w.deps.Client.Patch(ctx, object, client.RawPatch(types.MergePatchType, patch))
	})
}

// isBusy says whether the same request may succeed in a moment.
func isBusy(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsTooManyRequests(err) || apierrors.IsServiceUnavailable(err) ||
		apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) || apierrors.IsInternalError(err)
}
