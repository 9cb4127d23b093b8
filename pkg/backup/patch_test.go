// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"
	"errors"
	"net/url"
	"testing"
	"testing/synctest"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

func TestARequestIsRepeatedWhileTheAPIServerIsAway(t *testing.T) {
	unanswered := func(err error) error { return &url.Error{Op: "Get", URL: "https://127.0.0.1/apis", Err: err} }
	cases := map[string]struct {
		err   error
		tries int
	}{
		"busy":                  {err: apierrors.NewTooManyRequests("slow down", 1), tries: patience.Steps},
		"a stream that is cut":  {err: unanswered(errors.New("stream error: stream ID 4759; INTERNAL_ERROR; received from peer")), tries: patience.Steps},
		"a connection lost":     {err: unanswered(errors.New("http2: client connection lost")), tries: patience.Steps},
		"given up by the asker": {err: unanswered(context.Canceled), tries: 1},
		"an answer":             {err: apierrors.NewNotFound(snapshotv1.Resource("volumesnapshotcontents"), "a"), tries: 1},
		"an error of our own":   {err: errors.New("no such kind"), tries: 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := NewWithT(t)
				tries := 0
				g.Expect(untilAnswered(t.Context(), func() error { tries++; return tc.err })).To(MatchError(tc.err))
				g.Expect(tries).To(Equal(tc.tries))

				tries = 0
				g.Expect(untilAnswered(t.Context(), func() error {
					if tries++; tries < 3 {
						return apierrors.NewServiceUnavailable("restarting")
					}
					return nil
				})).To(Succeed())
			})
		})
	}
}
