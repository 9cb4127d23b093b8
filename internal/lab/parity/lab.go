// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package parity

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
	"k8s.io/client-go/kubernetes"

	"github.com/velero-clipper/clipper/internal/lab/cluster"
	"github.com/velero-clipper/clipper/internal/lab/driver"
	"github.com/velero-clipper/clipper/internal/lab/kubelet"
	"github.com/velero-clipper/clipper/internal/lab/objectstore"
	"github.com/velero-clipper/clipper/internal/lab/toolchain"
)

// DriverName is the CSI driver of the lab, its StorageClass and its VolumeSnapshotClass; SecondDriver is another one.
const (
	DriverName   = "lab.csi.clipper.dev"
	SecondDriver = "second.csi.clipper.dev"
)

// stopGrace bounds the end of the object store.
const stopGrace = 5 * time.Second

// Options of a lab.
type Options struct {
	// Velero and Recorder are the two binaries. Required.
	Velero, Recorder string
	// Programs and SnapshotCRDs are what toolchain.Ensure and toolchain.SnapshotCRDs returned. Required.
	Programs     toolchain.Paths
	SnapshotCRDs string
	// Dir gets state and logs; it must be empty and its path short. Required.
	Dir string
	// Workers is --item-block-worker-count of our server; stock always has 1, with which all is defined. Default: 1.
	Workers int
	// Progress gets a line for each step. Default: discarded.
	Progress io.Writer
}

// Lab is one cluster with both servers. Its methods are called one at a time.
type Lab struct {
	opts      Options
	cluster   *cluster.Cluster
	clientset kubernetes.Interface
	drivers   []*driver.Driver
	kubelet   *kubelet.Kubelet
	store     *objectstore.Store
	engines   map[string]*engine
	names     *names

	group *errgroup.Group
	stop  context.CancelFunc
	log   *os.File

	mu       sync.Mutex
	commands []Command
}

// Start starts the cluster; the servers are started by the first case that needs them. The lab ends with Stop, not with the context.
func Start(ctx context.Context, opts Options) (*Lab, error) {
	if opts.Progress == nil {
		opts.Progress = io.Discard
	}
	if opts.Workers == 0 {
		opts.Workers = 1
	}
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	group, work := errgroup.WithContext(work)
	l := &Lab{opts: opts, group: group, stop: stop, engines: map[string]*engine{}, names: newNames()}
	if err := l.start(ctx, work); err != nil {
		return nil, errors.Join(fmt.Errorf("starting the parity lab: %w", err), l.Stop())
	}
	return l, nil
}

func (l *Lab) start(ctx, work context.Context) error {
	if err := os.MkdirAll(l.opts.Dir, 0o755); err != nil {
		return err
	}
	var err error
	if l.log, err = os.Create(filepath.Join(l.opts.Dir, "lab.log")); err != nil {
		return err
	}
	if err := l.startKubelet(work); err != nil {
		return err
	}
	endpoints, err := l.startDrivers(work)
	if err != nil {
		return err
	}
	if l.store, err = objectstore.Start(ctx, objectstore.Options{}); err != nil {
		return err
	}
	host, port, err := l.kubelet.Listen()
	if err != nil {
		return err
	}
	l.cluster, err = cluster.Start(ctx, cluster.Options{
		Dir: filepath.Join(l.opts.Dir, "cluster"), Programs: l.opts.Programs, SnapshotCRDs: l.opts.SnapshotCRDs,
		Velero: l.opts.Velero, Kubelet: cluster.Endpoint{Host: host, Port: port}, Drivers: endpoints,
		// A failed call is tried again soon, so that a case with errors needs no minute.
		Snapshotter: cluster.Snapshotter{RetryStart: 200 * time.Millisecond, RetryMax: time.Second},
	})
	if err != nil {
		return err
	}
	if err := installCRDs(ctx, l.cluster); err != nil {
		return err
	}
	config, err := l.cluster.RESTConfig(cluster.UserAdmin)
	if err != nil {
		return err
	}
	if l.clientset, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	l.names.watch(work, l.group, l.cluster.Client())
	return l.prepareEngines(ctx, work)
}

func (l *Lab) startKubelet(work context.Context) error {
	var err error
	l.kubelet, err = kubelet.New(kubelet.Config{ErrorLog: l.log, Run: l.execute})
	if err == nil {
		_, _, err = l.kubelet.Listen()
	}
	if err == nil {
		l.group.Go(func() error { return l.kubelet.Serve(work) })
	}
	return err
}

// execute does what the case says of a command.
func (l *Lab) execute(_ context.Context, call kubelet.ExecCall) kubelet.Result {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, command := range l.commands {
		if command.Command == call.Command[0] {
			return kubelet.Result{Takes: time.Duration(command.Takes), ExitCode: command.Exit}
		}
	}
	return kubelet.Result{Stdout: "done\n"}
}

func (l *Lab) startDrivers(work context.Context) ([]cluster.DriverEndpoint, error) {
	var endpoints []cluster.DriverEndpoint
	for i, name := range []string{DriverName, SecondDriver} {
		socket := filepath.Join(l.opts.Dir, fmt.Sprintf("csi-%d.sock", i))
		d, err := driver.New(driver.Config{Name: name, Socket: socket, Log: l.log})
		if err != nil {
			return nil, err
		}
		if err := d.Listen(); err != nil {
			return nil, err
		}
		l.group.Go(func() error { return d.Serve(work) })
		l.drivers = append(l.drivers, d)
		endpoints = append(endpoints, cluster.DriverEndpoint{Name: name, Socket: socket})
	}
	return endpoints, nil
}

// Stop ends everything that was started.
func (l *Lab) Stop() error {
	for _, e := range l.engines {
		e.stop()
	}
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

func (l *Lab) say(format string, args ...any) { fmt.Fprintf(l.opts.Progress, format+"\n", args...) }
