// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/velero-clipper/clipper/internal/apiretry"
)

// patchMetadata merges labels or annotations into an object that may be known by name only. The object is filled with
// what the API server answers, which saves reading it.
func (w *walker) patchMetadata(ctx context.Context, object client.Object, metadata map[string]any) error {
	patch, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return fmt.Errorf("encoding the patch: %w", err)
	}
	return untilAnswered(ctx, func() error {
		return w.deps.Client.Patch(ctx, object, client.RawPatch(types.MergePatchType, patch))
	})
}

// patience is how a request is repeated: for about 12 seconds, which an API server that restarts needs.
var patience = wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.1, Steps: 8}

// untilAnswered repeats a request while the API server is busy or away (365), and returns its last error.
func untilAnswered(ctx context.Context, request func() error) error {
	var last error
	err := wait.ExponentialBackoffWithContext(ctx, patience, func(context.Context) (bool, error) {
		last = request()
		if apiretry.MayPass(last) {
			return false, nil
		}
		return true, last
	})
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	default:
		return last
	}
}
