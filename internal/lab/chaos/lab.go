// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/velero-clipper/clipper/internal/lab/cluster"
	"github.com/velero-clipper/clipper/internal/lab/driver"
	"github.com/velero-clipper/clipper/internal/lab/kubelet"
	"github.com/velero-clipper/clipper/internal/lab/objectstore"
	"github.com/velero-clipper/clipper/internal/lab/server"
	"github.com/velero-clipper/clipper/internal/lab/toolchain"
)

const (
	// cutTakes, cutJitter and readyAfter are the driver's; hookTakes is how long each hook runs. A snapshot that is ready some time after its
	// cut makes backups wait for operations.
	cutTakes   = 300 * time.Millisecond
	cutJitter  = 400 * time.Millisecond
	readyAfter = time.Second
	hookTakes  = 100 * time.Millisecond
	// stopGrace bounds the end of the object store.
	stopGrace = 5 * time.Second
)

// Options of a lab.
type Options struct {
	// Velero is the binary. Required.
	Velero string
	// Programs and SnapshotCRDs are what toolchain.Ensure and toolchain.SnapshotCRDs returned. Required.
	Programs     toolchain.Paths
	SnapshotCRDs string
	// Size of the workload. Default: Full.
	Size Size
	// Dir gets state and logs; it must be empty and its path short. Required.
	Dir string
	// Progress gets a line for each step. Default: discarded.
	Progress io.Writer
}

// Lab is one cluster with one server. Its methods are called one at a time.
type Lab struct {
	opts    Options
	plugins string
	cluster *cluster.Cluster
	driver  *driver.Driver
	kubelet *kubelet.Kubelet
	store   *objectstore.Store
	state   *state
	// firstExec and firstCall are where the records of this point begin. The state's lock guards them.
	firstExec, firstCall int

	group *errgroup.Group
	stop  context.CancelFunc
	log   *os.File

	mu     sync.Mutex
	server *server.Server
}

// Start starts cluster, workload and server. The lab ends with Stop, not with the context.
func Start(ctx context.Context, opts Options) (*Lab, error) {
	if opts.Progress == nil {
		opts.Progress = io.Discard
	}
	if opts.Size == (Size{}) {
		opts.Size = Full
	}
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	group, work := errgroup.WithContext(work)
	l := &Lab{opts: opts, plugins: filepath.Join(opts.Dir, "plugins"), state: newState(), group: group, stop: stop}
	if err := l.start(ctx, work); err != nil {
		return nil, errors.Join(fmt.Errorf("starting the chaos lab: %w", err), l.Stop())
	}
	return l, nil
}

// start is the list of steps.
func (l *Lab) start(ctx, work context.Context) error {
	for _, step := range []func(ctx, work context.Context) error{
		l.startParts, l.startCluster, l.watch,
		func(ctx, _ context.Context) error { return l.populate(ctx) },
		func(ctx, _ context.Context) error { return l.startServer(ctx) },
	} {
		if err := step(ctx, work); err != nil {
			return err
		}
	}
	return nil
}

// startParts starts all that is no cluster: storage, kubelet stand-in, object store.
func (l *Lab) startParts(ctx, work context.Context) error {
	err := server.CopyPlugin(l.opts.Programs[toolchain.AWSPlugin], l.plugins)
	if err != nil {
		return err
	}
	if l.log, err = os.Create(filepath.Join(l.opts.Dir, "lab.log")); err != nil {
		return err
	}
	l.kubelet, err = kubelet.New(kubelet.Config{ErrorLog: l.log, Run: func(context.Context, kubelet.ExecCall) kubelet.Result {
		return kubelet.Result{Takes: hookTakes}
	}})
	if err != nil {
		return err
	}
	l.driver, err = driver.New(driver.Config{
		Name: driverName, Socket: filepath.Join(l.opts.Dir, "csi.sock"), Log: l.log,
		Behaviours: []driver.Behaviour{{
			Match: "*", Cut: metav1.Duration{Duration: cutTakes}, Jitter: metav1.Duration{Duration: cutJitter}, Ready: metav1.Duration{Duration: readyAfter},
		}},
	})
	if err != nil {
		return err
	}
	if err := l.driver.Listen(); err != nil {
		return err
	}
	if _, _, err := l.kubelet.Listen(); err != nil {
		return err
	}
	l.state.look = l.look
	l.group.Go(func() error { return l.driver.Serve(work) })
	l.group.Go(func() error { return l.kubelet.Serve(work) })
	l.follow(work, l.driver.Changed)
	l.follow(work, l.kubelet.Changed)
	l.store, err = objectstore.Start(ctx, objectstore.Options{Log: storeLog{l.state}})
	return err
}

func (l *Lab) startCluster(ctx, _ context.Context) error {
	host, port, err := l.kubelet.Listen()
	if err != nil {
		return err
	}
	l.cluster, err = cluster.Start(ctx, cluster.Options{
		Dir: filepath.Join(l.opts.Dir, "cluster"), Programs: l.opts.Programs, SnapshotCRDs: l.opts.SnapshotCRDs,
		Velero: l.opts.Velero, Kubelet: cluster.Endpoint{Host: host, Port: port},
		Drivers: []cluster.DriverEndpoint{{Name: driverName, Socket: filepath.Join(l.opts.Dir, "csi.sock")}},
		// A failed call is tried again soon, so that harm costs no minute.
		Snapshotter: cluster.Snapshotter{RetryStart: 200 * time.Millisecond, RetryMax: time.Second},
		Proxied:     []cluster.User{cluster.UserVelero},
	})
	return err
}

// follow wakes those who wait whenever something happens at a part.
func (l *Lab) follow(work context.Context, next func() <-chan struct{}) {
	l.group.Go(func() error {
		for {
			changed := next()
			l.state.wake()
			select {
			case <-changed:
			case <-work.Done():
				return nil
			}
		}
	})
}

// look reads the records of kubelet stand-in and driver since the point began.
func (l *Lab) look(s *seen) {
	s.execs, s.calls, s.busy = l.kubelet.CallsFrom(l.firstExec), s.calls[:0], false
	for _, call := range l.driver.CallsFrom(l.firstCall) {
		s.busy = s.busy || call.End.IsZero()
		if call.Method == "CreateSnapshot" {
			s.calls = append(s.calls, call)
		}
	}
}

// begin begins a point. Nothing must be under way.
func (l *Lab) begin() {
	l.state.update(func(*seen) { l.firstExec, l.firstCall = len(l.kubelet.Calls()), len(l.driver.Calls()) })
	l.state.begin()
}

// Stop ends everything that was started.
func (l *Lab) Stop() error {
	l.kill()
	if l.cluster != nil {
		l.cluster.Stop()
	}
	l.stop()
	var errs []error
	if l.store != nil {
		ctx, cancel := context.WithTimeout(context.Background(), stopGrace)
		defer cancel()
		errs = append(errs, l.store.Stop(ctx))
	}
	if err := l.group.Wait(); !errors.Is(err, context.Canceled) {
		errs = append(errs, err)
	}
	if l.log != nil {
		errs = append(errs, l.log.Close())
	}
	return errors.Join(errs...)
}

// Dir is where the logs are.
func (l *Lab) Dir() string { return l.opts.Dir }

func (l *Lab) say(format string, args ...any) {
	fmt.Fprintf(l.opts.Progress, time.Now().UTC().Format("15:04:05.000 ")+format+"\n", args...)
}
