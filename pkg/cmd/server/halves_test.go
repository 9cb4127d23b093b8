// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"
)

// newHalves returns halves whose parts do nothing. The returned function is the signal to stop.
func newHalves(t testing.TB) (*halves, func()) {
	t.Helper()
	signalled, signal := context.WithCancel(t.Context())
	settings := follow(newStock().server)
	settings.grace = time.Hour
	return &halves{
		settings: settings,
		exit:     func(int) { t.Error("the process was ended by force") },
		stock:    func() {},
		disable:  func([]string) error { return nil },
		second:   func(context.Context, secondDeps) error { return nil },
		signals:  func() context.Context { return signalled },
		stop:     func() error { return nil },
		onFatal:  func(func()) {},
	}, signal
}

func TestSecondHalfWaitsForVeleros(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		freshPrometheus(t)
		h, _ := newHalves(t)
		var disabled []string
		var got secondDeps
		var began, ended, tooEarly, inTime bool
		h.disable = func(names []string) error { disabled = names; return nil }
		h.second = func(ctx context.Context, deps secondDeps) error {
			began, got = true, deps
			<-ctx.Done()
			ended = true
			return nil
		}
		h.stock = func() {
			synctest.Wait()
			tooEarly = began || len(disabled) == 0
			registerStock()
			synctest.Wait()
			inTime = began
		}
		g.Expect(runHalves(t.Context(), *h)).To(Succeed())

		g.Expect(tooEarly).To(BeFalse(), "Velero marks running backups as failed when it starts")
		g.Expect(inTime).To(BeTrue())
		g.Expect(ended).To(BeTrue(), "it can't go on alone")
		g.Expect(disabled).To(Equal(backupControllers))
		g.Expect(got.names).To(Equal(backupControllers))
		g.Expect(got.settings).To(BeIdenticalTo(h.settings))
		g.Expect(got.log).NotTo(BeNil())
		g.Expect(got.metrics.server).NotTo(BeNil())
	})
}

func TestSecondHalfIsNotStartedWithoutVeleros(t *testing.T) {
	for name, end := range map[string]func(stock *func(), signal func(), signalled context.Context){
		"it ended": func(stock *func(), _ func(), _ context.Context) { *stock = func() {} },
		"told to stop": func(stock *func(), signal func(), signalled context.Context) {
			*stock = func() { signal(); <-signalled.Done(); synctest.Wait() }
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := NewWithT(t)
				freshPrometheus(t)
				h, signal := newHalves(t)
				began := false
				h.second = func(context.Context, secondDeps) error { began = true; return nil }
				end(&h.stock, signal, h.signals())
				g.Expect(runHalves(t.Context(), *h)).To(Succeed())
				g.Expect(began).To(BeFalse())
			})
		})
	}
}

func TestSignalEndsBothHalves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		freshPrometheus(t)
		h, signal := newHalves(t)
		signalled := h.signals()
		var stopped bool
		var ended []string
		h.stop = func() error { stopped = true; return nil }
		finish := make(chan struct{})
		h.stock = func() {
			registerStock()
			<-signalled.Done()
			<-finish // Velero's half takes longer
			ended = append(ended, "stock")
		}
		h.second = func(ctx context.Context, _ secondDeps) error {
			<-ctx.Done()
			ended = append(ended, "second")
			return nil
		}
		var group errgroup.Group
		returned := false
		group.Go(func() error { defer func() { returned = true }(); return runHalves(t.Context(), *h) })
		synctest.Wait()
		g.Expect(ended).To(BeEmpty())
		signal()
		synctest.Wait()
		g.Expect(ended).To(Equal([]string{"second"}))
		g.Expect(returned).To(BeFalse(), "it waits for both")
		close(finish)
		g.Expect(group.Wait()).To(Succeed())
		g.Expect(ended).To(Equal([]string{"second", "stock"}))
		g.Expect(stopped).To(BeFalse(), "the process is being stopped already")
	})
}

func TestFatalEndOfVelerosHalfWaitsForTheSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		freshPrometheus(t)
		h, _ := newHalves(t)
		var beforeExit func()
		h.onFatal = func(handler func()) { beforeExit = handler }
		var ended []string
		began, finish := make(chan struct{}), make(chan struct{})
		h.stock = func() {
			registerStock()
			<-began
			beforeExit()
			ended = append(ended, "process")
		}
		h.second = func(ctx context.Context, _ secondDeps) error {
			close(began)
			<-ctx.Done()
			<-finish // it thaws a pod
			ended = append(ended, "second")
			return nil
		}
		var group errgroup.Group
		group.Go(func() error { return runHalves(t.Context(), *h) })
		synctest.Wait()
		g.Expect(ended).To(BeEmpty())
		close(finish)
		g.Expect(group.Wait()).To(Succeed())
		g.Expect(ended).To(Equal([]string{"second", "process"}))
	})
}

func TestFatalEndBeforeTheSecondHalfIsStarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		freshPrometheus(t)
		h, _ := newHalves(t)
		began := false
		var beforeExit func()
		h.onFatal = func(handler func()) { beforeExit = handler }
		h.stock = func() { beforeExit() } // a bad flag, for example
		h.second = func(context.Context, secondDeps) error { began = true; return nil }
		g.Expect(runHalves(t.Context(), *h)).To(Succeed())
		g.Expect(began).To(BeFalse())
	})
}

func TestFailureOfTheSecondHalfStopsTheServer(t *testing.T) {
	errStop := errors.New("no such process")
	for name, stopErr := range map[string]error{"stops": nil, "can't be stopped": errStop} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := NewWithT(t)
				freshPrometheus(t)
				h, _ := newHalves(t)
				stop := make(chan struct{})
				h.stock = func() { registerStock(); <-stop }
				h.second = func(context.Context, secondDeps) error { return errBoom }
				h.stop = func() error { close(stop); return stopErr }
				err := runHalves(t.Context(), *h)
				g.Expect(err).To(MatchError(errBoom))
				g.Expect(errors.Is(err, errStop)).To(Equal(stopErr != nil))
			})
		})
	}
}

func TestFailureWhileTheServerStopsIsNoSecondSignal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		freshPrometheus(t)
		h, signal := newHalves(t)
		signalled := h.signals()
		stopped := false
		h.stop = func() error { stopped = true; return nil }
		h.stock = func() { registerStock(); synctest.Wait(); signal(); <-signalled.Done(); synctest.Wait() }
		h.second = func(ctx context.Context, _ secondDeps) error { <-ctx.Done(); return errBoom }
		g.Expect(runHalves(t.Context(), *h)).To(MatchError(errBoom))
		g.Expect(stopped).To(BeFalse(), "the second signal ends a process at once, with all that it is still doing")
	})
}

func TestNothingIsStartedWhenControllersCantBeSwitchedOff(t *testing.T) {
	g := NewWithT(t)
	registry := freshPrometheus(t)
	h, _ := newHalves(t)
	ran := false
	h.stock = func() { ran = true }
	h.disable = func([]string) error { return errBoom }
	g.Expect(runHalves(t.Context(), *h)).To(MatchError(errBoom))
	g.Expect(ran).To(BeFalse(), "two backup controllers would run the same backups")
	g.Expect(prometheus.DefaultGatherer).To(BeIdenticalTo(registry))
}
