// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/velero-clipper/clipper/internal/lab/apiproxy"
	"github.com/velero-clipper/clipper/internal/lab/process"
)

// Cluster is a running control plane. Its methods may be called concurrently,
// those that start and stop the API server excepted.
type Cluster struct {
	opts     Options
	ports    ports
	pki      *pki
	accounts *accounts
	proxies  map[User]*apiproxy.Proxy

	mu        sync.Mutex
	processes map[string]*process.Process
	stopped   bool
	admin     client.WithWatch
}

// Start starts a cluster and returns when it is ready for work: the API serves, the
// CRDs are established, node and classes exist, and the snapshot controllers run. On an error nothing
// is left running; the logs stay in Options.Dir.
func Start(ctx context.Context, opts Options) (*Cluster, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("starting the cluster: %w", err)
	}
	c := &Cluster{opts: opts, processes: map[string]*process.Process{}}
	if err := c.start(ctx); err != nil {
		c.Stop()
		return nil, fmt.Errorf("starting the cluster: %w", err)
	}
	return c, nil
}

// start lists the steps. The CRDs are read while the API server starts.
func (c *Cluster) start(ctx context.Context) error {
	if err := c.prepare(); err != nil {
		return err
	}
	crds := &crdSet{}
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() error { return c.readCRDs(groupCtx, crds) })
	group.Go(func() error {
		if err := c.startEtcd(groupCtx); err != nil {
			return err
		}
		return c.StartAPIServer(groupCtx)
	})
	if err := group.Wait(); err != nil {
		return err
	}
	if err := c.installCRDs(ctx, crds); err != nil {
		return err
	}
	group, groupCtx = errgroup.WithContext(ctx)
	group.Go(func() error { return c.createObjects(groupCtx) })
	group.Go(func() error { return c.startSnapshotters(groupCtx) })
	return group.Wait()
}

// prepare makes folders, ports and credentials.
func (c *Cluster) prepare() error {
	var err error
	if c.opts.Dir, err = filepath.Abs(c.opts.Dir); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(c.opts.Dir, "logs"), 0o755); err != nil {
		return err
	}
	free, err := process.FreePorts(3)
	if err != nil {
		return err
	}
	c.ports = ports{etcdClient: free[0], etcdPeer: free[1], api: free[2]}
	if c.pki, err = newPKI(c.opts.Dir); err != nil {
		return err
	}
	users := []User{UserAdmin, UserVelero, UserKubelet, UserSnapshotController}
	for _, driver := range c.opts.Drivers {
		users = append(users, UserSidecar(driver.Name))
	}
	if c.accounts, err = newAccounts(c.opts.Dir, "https://"+loopback(c.ports.api), c.pki.caPEM, users); err != nil {
		return err
	}
	if err := c.startProxies(); err != nil {
		return err
	}
	config, err := c.RESTConfig(UserAdmin)
	if err != nil {
		return err
	}
	// The mapper asks the server only when it is first used.
	if c.admin, err = client.NewWithWatch(config, client.Options{Scheme: Scheme()}); err != nil {
		return err
	}
	return c.writeAuditPolicy()
}

// launch starts a child and remembers it under its name for Stop.
func (c *Cluster) launch(name string, spec process.Spec) (*process.Process, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stopped {
		return nil, errors.New("the cluster has been stopped")
	}
	spec.Name = name
	child, err := process.Start(spec)
	if err == nil {
		c.processes[name] = child
	}
	return child, err
}

func (c *Cluster) startEtcd(ctx context.Context) error {
	etcd, err := c.launch("etcd", c.etcdSpec())
	if err != nil {
		return err
	}
	return waitReady(ctx, etcd)
}

// waitReady bounds the wait for a component.
func waitReady(ctx context.Context, child *process.Process) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startLimit, fmt.Errorf("not ready within %s", startLimit))
	defer cancel()
	return child.WaitReady(ctx)
}

// StartAPIServer starts the API server, on the same port as before, and waits until it is ready.
func (c *Cluster) StartAPIServer(ctx context.Context) error {
	server, err := c.launch(apiServerName, c.apiServerSpec())
	if err != nil {
		return err
	}
	return c.waitAPIServer(ctx, server)
}

// KillAPIServer ends the API server by SIGKILL; etcd keeps what was stored.
func (c *Cluster) KillAPIServer() {
	if server := c.process(apiServerName); server != nil {
		server.Kill()
	}
}

// RestartAPIServer kills the API server, starts it again and waits until it is ready.
func (c *Cluster) RestartAPIServer(ctx context.Context) error {
	c.KillAPIServer()
	return c.StartAPIServer(ctx)
}

// KillEtcd ends etcd by SIGKILL; what was stored is in its files.
func (c *Cluster) KillEtcd() error { return c.stopProcess("etcd") }

// StartEtcd starts etcd again, on the same ports and files, and waits until it serves.
func (c *Cluster) StartEtcd(ctx context.Context) error { return c.startEtcd(ctx) }

const apiServerName = "kube-apiserver"

func (c *Cluster) process(name string) *process.Process {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.processes[name]
}

// Stop kills every process of the cluster, stops its proxies, and returns when they are gone. It may be called
// more than once.
func (c *Cluster) Stop() {
	c.mu.Lock()
	c.stopped = true
	children := make([]*process.Process, 0, len(c.processes))
	for _, child := range c.processes {
		children = append(children, child)
	}
	c.mu.Unlock()
	var all sync.WaitGroup
	for _, child := range children {
		all.Go(func() { child.Kill() })
	}
	for _, proxy := range c.proxies {
		all.Go(proxy.Stop)
	}
	all.Wait()
}

// Failed returns an error that names a component which has ended although nobody asked it
// to, or nil. It is for a last look when a wait has failed.
func (c *Cluster) Failed() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var errs []error
	for _, child := range c.processes {
		if status, ended := child.Status(); ended && !status.Requested {
			errs = append(errs, child.EndedError())
		}
	}
	return errors.Join(errs...)
}

// RESTConfig returns the client configuration of a user, without client-side rate limits.
func (c *Cluster) RESTConfig(user User) (*rest.Config, error) { return c.accounts.restConfig(user) }

// Kubeconfig returns the path of a user's kubeconfig file.
func (c *Cluster) Kubeconfig(user User) string { return c.accounts.kubeconfig(user) }

// Client returns the lab's own client, with the rights of UserAdmin and the types of Scheme.
func (c *Cluster) Client() client.WithWatch { return c.admin }

// URL of the API server.
func (c *Cluster) URL() string { return c.accounts.url }

// AuditLog returns the path of the audit log: JSON lines, one per request of
// UserVelero. A restarted API server appends.
func (c *Cluster) AuditLog() string { return filepath.Join(c.opts.Dir, "logs", "audit.jsonl") }

// NodeName is the name of the only node.
func (c *Cluster) NodeName() string { return c.opts.NodeName }

// LogDir is the folder of the components' logs.
func (c *Cluster) LogDir() string { return filepath.Join(c.opts.Dir, "logs") }

func (c *Cluster) logPath(name string) string { return filepath.Join(c.LogDir(), name+".log") }
