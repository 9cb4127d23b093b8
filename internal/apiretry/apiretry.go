// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

// Package apiretry knows which failures of requests to the API server may pass.
package apiretry

import (
	"context"
	"errors"
	"net"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
)

// MayPass says whether the same request may succeed in a moment: the API server is busy, starting or away, its answer was lost, or another
// writer was faster. A request that got no answer at all comes as a url.Error, which is a net.Error, whatever went wrong on
// the way: the connection, or a stream that a load balancer reset when the API server behind it went away. One that was
// cancelled doesn't pass.
func MayPass(err error) bool {
	if err == nil || errors.Is(err, context.Canceled) {
		return false
	}
	var unanswered net.Error
	if errors.As(err, &unanswered) || errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	return apierrors.IsConflict(err) || apierrors.IsTooManyRequests(err) || apierrors.IsServiceUnavailable(err) ||
		apierrors.IsServerTimeout(err) || apierrors.IsTimeout(err) || apierrors.IsInternalError(err) || apierrors.IsUnexpectedServerError(err) ||
		utilnet.IsConnectionRefused(err) || utilnet.IsConnectionReset(err) || utilnet.IsHTTP2ConnectionLost(err) || utilnet.IsProbableEOF(err)
}
