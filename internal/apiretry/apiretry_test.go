// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package apiretry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"syscall"
	"testing"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestMayPass(t *testing.T) {
	things := schema.GroupResource{Resource: "things"}
	unanswered := func(err error) error { return &url.Error{Op: "Patch", URL: "https://api", Err: err} }
	for name, test := range map[string]struct {
		err  error
		want bool
	}{
		"none":                  {nil, false},
		"too many requests":     {apierrors.NewTooManyRequests("", 1), true},
		"conflict":              {apierrors.NewConflict(things, "a", nil), true},
		"service unavailable":   {apierrors.NewServiceUnavailable(""), true},
		"server timeout":        {apierrors.NewServerTimeout(things, "get", 1), true},
		"internal error":        {apierrors.NewInternalError(errors.New("etcd")), true},
		"wrapped":               {fmt.Errorf("patching: %w", apierrors.NewTooManyRequests("", 1)), true},
		"a stream that was cut": {unanswered(errors.New("stream error: stream ID 7; INTERNAL_ERROR")), true},
		"no connection":         {unanswered(syscall.ECONNREFUSED), true},
		"a lost connection":     {io.ErrUnexpectedEOF, true},
		"out of time":           {context.DeadlineExceeded, true},
		"cancelled":             {context.Canceled, false},
		"cancelled on the way":  {unanswered(context.Canceled), false},
		"forbidden":             {apierrors.NewForbidden(things, "a", nil), false},
		"not found":             {apierrors.NewNotFound(things, "a"), false},
		"already there":         {apierrors.NewAlreadyExists(things, "a"), false},
		"invalid":               {apierrors.NewBadRequest("no"), false},
		"something else":        {errors.New("no"), false},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(MayPass(test.err)).To(Equal(test.want))
		})
	}
}
