// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
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
		if last != nil && isPassing(last) {
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

// isPassing says whether the same request may succeed in a moment. A merge patch of metadata never conflicts by itself,
// but the API server says so when it gives up repeating it. A request that got no answer at all comes as a url.Error, whatever went
// wrong on the way: the connection, or a stream that a load balancer reset when the API server behind it went away.
func isPassing(err error) bool {
	if unanswered := new(url.Error); errors.As(err, &unanswered) {
		return !errors.Is(err, context.Canceled)
	}
	return apierrors.IsConflict(err) || apierrors.IsTooManyRequests(err) || apierrors.IsServiceUnavailable(err) ||
		apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) || apierrors.IsInternalError(err) ||
		utilnet.IsConnectionRefused(err) || utilnet.IsConnectionReset(err) || utilnet.IsProbableEOF(err) || utilnet.IsTimeout(err)
}
