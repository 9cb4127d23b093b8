// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package podexec

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/velero-clipper/clipper/pkg/hook"
)

// failsFor returns an Executor whose looks fail with err until outage is over, and a count of them. The pod is app/a.
func failsFor(outage time.Duration, err error) (*Executor, *int) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "app", Name: "a", UID: "uid-a"}}
	client, begun, looks := fake.NewClientset(pod), time.Now(), 0
	client.PrependReactor("get", "pods", func(clienttesting.Action) (bool, runtime.Object, error) {
		looks++
		return time.Since(begun) < outage, nil, err
	})
	return &Executor{client: client, pauses: pauses}, &looks
}

func TestACheckOutlivesAnOutage(t *testing.T) {
	pods := corev1.Resource("pods")
	away := apierrors.NewServiceUnavailable("the API server restarts")
	const forGood = time.Hour
	for name, test := range map[string]struct {
		outage time.Duration
		err    error
		takes  time.Duration // at most
		want   string        // in the error
	}{
		"a blip":                     {outage: time.Nanosecond, err: away, takes: time.Second},
		"too many requests":          {outage: 5 * time.Second, err: apierrors.NewTooManyRequests("", 1), takes: 8 * time.Second},
		"as long as a restart takes": {outage: 17 * time.Second, err: away, takes: checkFor},
		"no answer":                  {outage: 15 * time.Second, err: context.DeadlineExceeded, takes: checkFor},
		"too long":                   {outage: forGood, err: away, takes: checkFor, want: "the API server restarts (it was tried for 20s)"},
		"a refusal":                  {outage: forGood, err: apierrors.NewBadRequest("no"), want: "looking at pod app/a: no"},
		"pods may not be read":       {outage: forGood, err: apierrors.NewForbidden(pods, "a", nil)},
		"the pod is gone":            {outage: forGood, err: apierrors.NewNotFound(pods, "a"), want: "isn't there any more"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := NewWithT(t)
				e, looks := failsFor(test.outage, test.err)
				begun := time.Now()
				err := e.Check(t.Context(), freeze())
				if test.want == "" {
					g.Expect(err).NotTo(HaveOccurred())
				} else {
					g.Expect(err).To(MatchError(ContainSubstring(test.want)))
				}
				g.Expect(time.Since(begun)).To(BeNumerically("<=", test.takes))
				g.Expect(*looks).To(BeNumerically("<=", 15), "it pauses in between")
			})
		})
	}
}

func TestACheckEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		e, _ := failsFor(time.Hour, apierrors.NewServiceUnavailable("the API server restarts"))
		ctx, cancel := context.WithTimeoutCause(t.Context(), 3*time.Second, errors.New("the backup is cancelled"))
		defer cancel()
		begun := time.Now()
		g.Expect(e.Check(ctx, freeze())).To(MatchError(ContainSubstring("the backup is cancelled")))
		g.Expect(time.Since(begun)).To(Equal(3 * time.Second))
	})
}

// An API server that is slow to say how the pod is takes nothing away from its thaw.
func TestTheLookOfAThawIsNotInItsTimeout(t *testing.T) {
	g := NewWithT(t)
	c := newCluster(t)
	c.pod = nil
	command := thaw()
	command.Timeout = time.Nanosecond
	log, _ := newLog()
	err := c.executor(t, Options{InsistFor: patience}).Run(t.Context(), log, command)
	var notRun *hook.NotRunError
	g.Expect(errors.As(err, &notRun) && notRun.PodGone).To(BeTrue(), "it had no time to look: %v", err)
}
