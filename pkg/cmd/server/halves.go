// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/sirupsen/logrus"
	"github.com/vmware-tanzu/velero/pkg/client"
	"github.com/vmware-tanzu/velero/pkg/util/logging"
	"golang.org/x/sync/errgroup"
)

// halves is what both halves of the server are started from.
type halves struct {
	settings *settings
	factory  client.Factory
	// first makes what the process is to others. Before either half is started it recovers what a server that died left behind.
	// Default: none of that is done.
	first func(context.Context, firstDeps) (*self, error)
	// stock runs Velero's server; it ends by itself when the process is told to stop.
	stock func()
	// disable switches controllers of Velero's server off; it is called before stock.
	disable func(names []string) error
	// second runs our half until its context ends.
	second func(context.Context, secondDeps) error
	// signals returns a context that ends when the process is told to stop; it is called once.
	signals func() context.Context
	// stop makes stock end.
	stop func() error
	// onFatal registers what is done before a fatal log entry ends the process. Velero's half ends that way when anything of
	// it, such as a restore, takes longer than half a minute to stop.
	onFatal func(handler func())
	// exit ends the process when its time is over.
	exit func(code int)
}

// runHalves runs Velero's server and ours until the process is told to stop, and returns when both have ended.
func runHalves(ctx context.Context, h halves) error {
	if ctx == nil {
		ctx = context.Background()
	}
	log := logging.DefaultLogger(h.settings.config.LogLevel.Parse(), h.settings.config.LogFormat.Parse())
	names := h.settings.ours()
	if err := h.disable(names); err != nil {
		return err
	}
	shared := shareMetrics()

	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(h.signals(), cancel)()
	limit, cut := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cut(nil)
	defer h.bound(ctx, log, cut)()

	own, err := h.recover(ctx, firstDeps{settings: h.settings, factory: h.factory, log: log, names: names, limit: limit, stop: h.stop})
	if err != nil {
		return err
	}
	defer own.release()
	if ctx.Err() != nil {
		return own.whyLost() // told to stop meanwhile
	}

	var group errgroup.Group
	stockEnded, secondEnded := make(chan struct{}), make(chan struct{})
	h.onFatal(func() {
		cancel()
		<-secondEnded // pods that are frozen are thawed first
	})
	group.Go(func() error {
		defer close(stockEnded)
		h.stock()
		cancel() // whatever ended Velero's half, the other can't go on alone
		return nil
	})
	group.Go(func() error {
		defer close(secondEnded)
		// Velero marks backups as failed that it finds in progress when it starts. Ours must not start one before that.
		select {
		case <-shared.stockIsUp:
		case <-stockEnded:
			return nil
		case <-ctx.Done():
			return nil
		}
		err := h.second(ctx, secondDeps{settings: h.settings, factory: h.factory, metrics: shared, log: log, names: names, self: own.self})
		if err == nil {
			return nil
		}
		log.WithError(err).Error("The backup controllers ended; the server is stopping")
		if ctx.Err() != nil {
			return err // the process is being stopped already; a second signal would end Velero's half in the middle
		}
		return errors.Join(err, h.stop())
	})
	return errors.Join(group.Wait(), own.whyLost())
}

// bound bounds the end of the process, from the end of stopping to the call of the function it returns.
func (h halves) bound(stopping context.Context, log *logrus.Logger, cut context.CancelCauseFunc) (ended func()) {
	done := make(chan struct{})
	var group errgroup.Group
	group.Go(func() error {
		bounded{grace: h.settings.grace, log: log, exit: h.exit}.watch(stopping, done, cut)
		return nil
	})
	return func() {
		close(done)
		_ = group.Wait() // it returns no error
	}
}

// owned is this process's Lease in keeping.
type owned struct {
	self    *self
	release func()
}

// whyLost is the error of a process that has lost its Lease.
func (o owned) whyLost() error {
	if o.self == nil || o.self.lost == nil {
		return nil
	}
	if cause := context.Cause(o.self.lost); cause != nil {
		return fmt.Errorf("the server has ended: %w", cause)
	}
	return nil
}

// recover does what comes before both halves, and keeps the process's Lease until release is called.
func (h halves) recover(ctx context.Context, deps firstDeps) (owned, error) {
	none := owned{release: func() {}}
	if h.first == nil {
		return none, nil
	}
	s, err := h.first(ctx, deps)
	if err != nil || s == nil {
		return none, err
	}
	keeping, stop := context.WithCancel(context.WithoutCancel(ctx))
	var group errgroup.Group
	group.Go(func() error { s.keep(keeping); return nil })
	s.recoverAtStart(ctx)
	return owned{self: s, release: func() {
		stop()
		_ = group.Wait() // it returns no error
	}}, nil
}

// stopProcess tells Velero's half to stop: it listens to signals only.
func stopProcess() error {
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		return fmt.Errorf("finding the own process: %w", err)
	}
	return self.Signal(syscall.SIGTERM)
}
