// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package podexec

import (
	"errors"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// isFinal says whether the API server's answer means that asking again changes nothing. The pod is there all the same: somebody
// has to change something, such as the server's permissions.
func isFinal(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	switch code := status.Status().Code; code {
	case http.StatusUnauthorized, http.StatusRequestTimeout, http.StatusConflict, http.StatusTooManyRequests:
		return false // credentials are renewed, and the others say "later"
	default:
		return code >= http.StatusBadRequest && code < http.StatusInternalServerError
	}
}
