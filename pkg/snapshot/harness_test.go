// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"fmt"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	"github.com/sirupsen/logrus"
	"go.uber.org/goleak"
	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

// harness is a Taker with its Tracker on an API in memory. It lives in a synctest bubble: time is fake, and passes only
// when everything waits.
type harness struct {
	*WithT
	api     *api
	tracker *Tracker
	taker   *Taker
	ctx     context.Context
	stop    context.CancelFunc
	stopped chan struct{}

	mu     sync.Mutex
	events []Event
}

// inBubble runs a test with a started Taker. Everything must have ended when it is over.
func inBubble(t *testing.T, opts TakerOptions, prepare func(*api), test func(*harness)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		h := newHarness(t, opts, prepare)
		h.start()
		synctest.Wait()
		test(h)
		h.end()
	})
}

func newHarness(t *testing.T, opts TakerOptions, prepare func(*api)) *harness {
	h := &harness{WithT: NewWithT(t), api: newAPI(), stopped: make(chan struct{})}
	h.api.collect()
	if prepare != nil {
		prepare(h.api)
	}
	quiet := logrus.New()
	quiet.SetOutput(io.Discard)
	opts.Logger = quiet
	opts.Observe = func(e Event) {
		h.mu.Lock()
		defer h.mu.Unlock()
		h.events = append(h.events, e)
	}
	h.tracker = NewTracker(h.api, TrackerOptions{Logger: quiet})
	h.taker = NewTaker(h.api, h.tracker, opts)
	h.ctx, h.stop = context.WithCancel(t.Context())
	return h
}

// start runs both as a manager would; the group's end is awaited by end.
func (h *harness) start() {
	var group errgroup.Group
	group.Go(func() error { return h.tracker.Start(h.ctx) })
	group.Go(func() error { return h.taker.Start(h.ctx) })
	go func() {
		_ = group.Wait()
		close(h.stopped)
	}()
}

func (h *harness) end() {
	h.stop()
	<-h.stopped
	// A watch's poller and client-go's own goroutines end with it; synctest fails the test when one doesn't.
}

// pass lets time go by and everything settle.
func (h *harness) pass(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

func (h *harness) decided(s *Snapshot) bool {
	select {
	case <-s.Decided():
		return true
	default:
		return false
	}
}

func (h *harness) ready(s *Snapshot) bool {
	select {
	case <-s.Ready():
		return true
	default:
		return false
	}
}

// reasons counts the outcomes: "Cut", or the reason of the failure.
func reasons(snaps []*Snapshot) map[string]int {
	found := map[string]int{}
	for _, s := range snaps {
		o := s.Outcome()
		if o.Phase == Failed {
			found[string(o.Reason)]++
		} else {
			found[string(o.Phase)]++
		}
	}
	return found
}

func (h *harness) seen(kind EventKind) []Event {
	h.mu.Lock()
	defer h.mu.Unlock()
	var found []Event
	for _, e := range h.events {
		if e.Kind == kind {
			found = append(found, e)
		}
	}
	return found
}

const testTimeout = 10 * time.Minute

// request is a valid one; change alters it.
func request(n int, change ...func(*Request)) Request {
	r := Request{
		Owner:     Owner{Name: "backup", UID: "backup-uid"},
		Namespace: "app", PVC: fmt.Sprintf("data-%d", n), PVCUID: types.UID(fmt.Sprintf("pvc-%d", n)),
		Driver: "driver", Class: "class", Timeout: testTimeout,
	}
	for _, f := range change {
		f(&r)
	}
	return r
}

func requests(count int, change ...func(*Request)) []Request {
	list := make([]Request, count)
	for i := range list {
		list[i] = request(i, change...)
	}
	return list
}

func ofOwner(uid types.UID) func(*Request) {
	return func(r *Request) { r.Owner = Owner{Name: string(uid), UID: uid} }
}

func frozen(r *Request) { r.Priority = Frozen }

func ofDriver(name string) func(*Request) {
	return func(r *Request) { r.Driver = name }
}

func keyOf(r Request) types.NamespacedName {
	return types.NamespacedName{Namespace: r.Namespace, Name: Name(r.Owner.UID, r.PVCUID)}
}

func parallelism(text string) TakerOptions {
	p, err := ParseParallelism(text)
	if err != nil {
		panic(err)
	}
	return TakerOptions{Parallelism: p}
}
