// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package driver

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"sync"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc"
)

const (
	// createSnapshot is the RPC whose calls in flight are the driver's load.
	createSnapshot = "CreateSnapshot"

	defaultSize = 1 << 30
)

// Config is what a Driver is made of.
type Config struct {
	// Name is the driver's CSI name, as in lab.csi.clipper.dev. Required.
	Name string
	// Socket is the path of the unix socket to serve on. Required. A socket left there by an earlier run is replaced.
	Socket string
	// Groups has the driver take snapshots of several volumes as a group, too.
	Groups bool
	// Behaviours is how the storage treats volumes. Default: everything is cut and ready at once.
	Behaviours []Behaviour
	// Seed makes the jitter the same in every run. Default: 0.
	Seed uint64
	// Size is the size in bytes that snapshots are said to have. Default: 1 GiB.
	Size int64
	// Log gets a JSON line for each start and end of a call, and for each cut. Default: none.
	Log io.Writer
}

// Driver is a CSI driver with a storage of its own. All methods may be called at any time, from many goroutines.
type Driver struct {
	config   Config
	storage  *storage
	recorder *recorder

	mu       sync.Mutex
	listener net.Listener
}

// New makes a driver. It fails when a name is missing or a behaviour can't be used.
func New(config Config) (*Driver, error) {
	if config.Name == "" || config.Socket == "" {
		return nil, errors.New("a CSI driver needs a name and a socket")
	}
	if err := Validate(config.Behaviours); err != nil {
		return nil, fmt.Errorf("CSI driver %s: %w", config.Name, err)
	}
	if config.Size == 0 {
		config.Size = defaultSize
	}
	recorder := newRecorder(config.Name, config.Log)
	return &Driver{
		config:   config,
		recorder: recorder,
		storage:  newStorage(config.Seed, config.Behaviours, recorder.cut),
	}, nil
}

// Listen opens the socket, so that clients can connect from now on. Serve does it when it hasn't been done.
func (d *Driver) Listen() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.listener != nil {
		return nil
	}
	if info, err := os.Stat(d.config.Socket); err == nil && info.Mode()&fs.ModeSocket != 0 {
		if err := os.Remove(d.config.Socket); err != nil {
			return fmt.Errorf("CSI driver %s: replacing an old socket: %w", d.config.Name, err)
		}
	}
	listener, err := net.Listen("unix", d.config.Socket)
	if err != nil {
		return fmt.Errorf("CSI driver %s: %w", d.config.Name, err)
	}
	d.listener = listener
	return nil
}

// Serve answers calls until ctx ends, and returns when every call has returned. The calls under way are cancelled then,
// and cuts under way are dropped; the snapshots stay, so that Serve may be called again for a driver that restarts.
func (d *Driver) Serve(ctx context.Context) error {
	if err := d.Listen(); err != nil {
		return err
	}
	d.mu.Lock()
	listener := d.listener
	d.listener = nil
	d.mu.Unlock()

	server := grpc.NewServer(grpc.UnaryInterceptor(d.recorder.intercept), grpc.WaitForHandlers(true))
	csi.RegisterIdentityServer(server, &identity{name: d.config.Name, groups: d.config.Groups})
	service := &controller{storage: d.storage, size: d.config.Size}
	csi.RegisterControllerServer(server, service)
	if d.config.Groups {
		csi.RegisterGroupControllerServer(server, &groupController{controller: service})
	}

	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error {
		// A server that is stopped before it began says so; that is no failure.
		if err := server.Serve(listener); err != nil && !errors.Is(err, grpc.ErrServerStopped) {
			return fmt.Errorf("CSI driver %s: serving: %w", d.config.Name, err)
		}
		return nil
	})
	group.Go(func() error {
		<-groupCtx.Done()
		server.Stop()
		return nil
	})
	err := group.Wait()
	d.storage.forget()
	return errors.Join(err, d.recorder.err())
}

// SetBehaviours replaces all behaviours, for calls that are waiting, too: a hanging call is answered when its volume
// hangs no more. The counts of Fail.Times begin anew.
func (d *Driver) SetBehaviours(behaviours []Behaviour) error {
	if err := Validate(behaviours); err != nil {
		return fmt.Errorf("CSI driver %s: %w", d.config.Name, err)
	}
	d.storage.setBehaviours(behaviours)
	return nil
}

// Name returns the driver's CSI name.
func (d *Driver) Name() string { return d.config.Name }

// Calls returns every call so far, in the order of their start.
func (d *Driver) Calls() []Call { return d.recorder.listFrom(0) }

// CallsFrom returns the calls after the first n ones, for those who have seen these.
func (d *Driver) CallsFrom(n int) []Call { return d.recorder.listFrom(n) }

// Snapshots returns the snapshots that exist, in the order of their cut.
func (d *Driver) Snapshots() []Snapshot { return d.storage.list() }

// PeakInFlight returns the largest number of CreateSnapshot calls that were under way at the same time.
func (d *Driver) PeakInFlight() int { return d.recorder.peakInFlight() }

// Cuts returns how many snapshots were cut so far, deleted ones included.
func (d *Driver) Cuts() int { return d.storage.cutCount() }

// Changed returns a channel that is closed when a call starts or ends or a snapshot is cut after Changed was called. To
// wait without missing anything, take the channel first and look at the state second, as Await does.
func (d *Driver) Changed() <-chan struct{} { return d.recorder.next() }

// Await returns when the condition is true, looking at it after every change, or with an error when ctx has ended. The
// condition may call any method of the Driver.
func (d *Driver) Await(ctx context.Context, condition func() bool) error {
	for {
		changed := d.Changed()
		if condition() {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("waiting for CSI driver %s: %w", d.config.Name, context.Cause(ctx))
		}
	}
}
