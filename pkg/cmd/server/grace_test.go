// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
)

// A process whose parts hang ends when its time is over, and what runs in pods is cut off before that.
func TestTheEndIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		freshPrometheus(t)
		h, signal := newHalves(t)
		h.settings.grace = 25 * time.Second
		var limit context.Context
		h.first = func(_ context.Context, deps firstDeps) (*self, error) { limit = deps.limit; return nil, nil }
		hang := make(chan struct{})
		h.stock = func() { registerStock(); <-hang }
		h.second = func(context.Context, secondDeps) error { <-hang; return nil }
		var told, cut, ended time.Time
		h.exit = func(code int) {
			ended = time.Now()
			g.Expect(code).To(Equal(1))
			close(hang) // here it is an end in order that follows
		}
		var group errgroup.Group
		group.Go(func() error { return runHalves(t.Context(), *h) })
		synctest.Wait()
		stop := context.AfterFunc(limit, func() { cut = time.Now() })
		defer stop()
		<-time.After(time.Minute)
		told = time.Now()
		signal()
		g.Expect(group.Wait()).To(Succeed())
		synctest.Wait()
		g.Expect(cut.Sub(told)).To(Equal(20 * time.Second))
		g.Expect(ended.Sub(told)).To(Equal(25 * time.Second))
		g.Expect(context.Cause(limit)).To(MatchError(errGraceOver))
	})
}

func TestAnEndInTimeIsNotForced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		freshPrometheus(t)
		h, signal := newHalves(t)
		h.settings.grace = 25 * time.Second
		signalled := h.signals()
		h.stock = func() { registerStock(); <-signalled.Done(); <-time.After(24 * time.Second) }
		var group errgroup.Group
		group.Go(func() error { return runHalves(t.Context(), *h) })
		signal()
		g.Expect(group.Wait()).To(Succeed()) // the harness fails the test if it is forced
	})
}

func TestNeitherHalfIsStartedAfterTheSignal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		freshPrometheus(t)
		h, signal := newHalves(t)
		h.first = func(ctx context.Context, _ firstDeps) (*self, error) {
			signal()
			<-ctx.Done()
			return nil, nil
		}
		began := false
		h.stock = func() { began = true }
		g.Expect(runHalves(t.Context(), *h)).To(Succeed())
		g.Expect(began).To(BeFalse(), "it would mark backups as failed, without a reason")
	})
}

func TestAFirstStepThatFailsEndsTheStart(t *testing.T) {
	g := NewWithT(t)
	freshPrometheus(t)
	h, _ := newHalves(t)
	h.first = func(context.Context, firstDeps) (*self, error) { return nil, errBoom }
	h.stock = func() { t.Error("Velero's half was started") }
	g.Expect(runHalves(t.Context(), *h)).To(MatchError(errBoom))
}

func TestTheGraceIsChecked(t *testing.T) {
	g := NewWithT(t)
	g.Expect(checkGrace(defaultShutdownGrace)).To(Succeed())
	g.Expect(checkGrace(time.Second)).To(MatchError(ContainSubstring("--shutdown-grace: 1s is too short")))
}

func TestTheServersName(t *testing.T) {
	g := NewWithT(t)
	name, err := (&settings{}).serverName()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(name).NotTo(BeEmpty())
	g.Expect((&settings{name: "velero-0"}).serverName()).To(Equal("velero-0"))
	_, err = (&settings{name: "a_b"}).serverName()
	g.Expect(err).To(MatchError(ContainSubstring("--server-name")))
}
