// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/velero-clipper/clipper/internal/lab/cluster"
	"github.com/velero-clipper/clipper/internal/lab/driver"
	"github.com/velero-clipper/clipper/internal/lab/kubelet"
	"github.com/velero-clipper/clipper/internal/lab/nodeagent"
	"github.com/velero-clipper/clipper/internal/lab/objectstore"
	"github.com/velero-clipper/clipper/internal/lab/scenario"
)

// storeGrace is how long the object store may take to answer its last requests.
const storeGrace = 5 * time.Second

// lab is the set of running parts apart from the Velero server.
type lab struct {
	cluster *cluster.Cluster
	drivers map[string]*driver.Driver
	// endpoints are where clusters find the drivers.
	endpoints []cluster.DriverEndpoint
	kubelet   *kubelet.Kubelet
	store     *objectstore.Store
	logs      []*os.File
}

// failed names a part that has ended by itself, to explain another error.
func (l *lab) failed() error {
	if l.cluster == nil {
		return nil
	}
	return l.cluster.Failed()
}

// startLab starts storage, kubelet stand-in, object store and cluster, and begins to watch.
func (r *run) startLab(ctx context.Context, group *errgroup.Group) error {
	if err := os.MkdirAll(r.logDir(), 0o755); err != nil {
		return err
	}
	var err error
	if r.lab.endpoints, err = r.startDrivers(ctx, group); err != nil {
		return err
	}
	if err := r.startKubelet(ctx, group); err != nil {
		return err
	}
	if r.lab.store, err = objectstore.Start(ctx, objectstore.Options{}); err != nil {
		return err
	}
	return r.startWatched(ctx, group)
}

// startWatched starts the cluster and begins to watch.
func (r *run) startWatched(ctx context.Context, group *errgroup.Group) error {
	if err := r.startCluster(ctx, r.lab.endpoints); err != nil {
		return err
	}
	config, err := r.lab.cluster.RESTConfig(cluster.UserAdmin)
	if err != nil {
		return err
	}
	if err := r.startNodeAgent(ctx, group); err != nil {
		return err
	}
	eyes := &observer{board: r.board, now: time.Now}
	return eyes.watch(ctx, group, config, *r.scenario.Cluster.SnapshotCRDs)
}

// startNodeAgent starts the stand-in for Velero's node agent, if the scenario has one.
func (r *run) startNodeAgent(ctx context.Context, group *errgroup.Group) error {
	spec := r.scenario.Cluster.NodeAgent
	if spec == nil {
		return nil
	}
	agent := nodeagent.New(nodeagent.Options{
		Client: r.lab.cluster.Client(), Namespace: cluster.VeleroNamespace, Takes: spec.Takes.Duration(), Fail: spec.Fail,
	})
	if err := agent.Install(ctx); err != nil {
		return err
	}
	group.Go(func() error {
		if err := agent.Run(ctx); ctx.Err() == nil {
			return err
		}
		return nil
	})
	return nil
}

func (r *run) logDir() string { return filepath.Join(r.opts.Dir, "logs") }

// startDrivers serves every driver and passes its changes on to the board.
func (r *run) startDrivers(ctx context.Context, group *errgroup.Group) ([]cluster.DriverEndpoint, error) {
	var endpoints []cluster.DriverEndpoint
	for i, spec := range r.scenario.Storage.Drivers {
		log, err := os.Create(filepath.Join(r.logDir(), "driver-"+spec.Name+".jsonl"))
		if err != nil {
			return nil, err
		}
		r.lab.logs = append(r.lab.logs, log)
		socket := filepath.Join(r.opts.Dir, fmt.Sprintf("csi-%d.sock", i))
		d, err := driver.New(driver.Config{
			Name: spec.Name, Socket: socket, Groups: spec.Groups, Behaviours: driverBehaviours(spec.Behaviour), Log: log,
		})
		if err != nil {
			return nil, err
		}
		if err := d.Listen(); err != nil {
			return nil, err
		}
		group.Go(func() error { return d.Serve(ctx) })
		r.followDriver(ctx, group, d)
		r.lab.drivers[spec.Name] = d
		// The class is made by the scenario's own terms in workload.go.
		endpoints = append(endpoints, cluster.DriverEndpoint{Name: spec.Name, Socket: socket, NoSnapshotClass: true})
	}
	return endpoints, nil
}

func driverBehaviours(rules []scenario.Behaviour) []driver.Behaviour {
	out := make([]driver.Behaviour, 0, len(rules))
	for _, rule := range rules {
		b := driver.Behaviour{
			Match: rule.Match, Cut: apiDuration(rule.Cut), Ready: apiDuration(rule.Ready), Jitter: apiDuration(rule.Jitter),
			Capacity: rule.Capacity, Hang: rule.Hang, HangFor: apiDuration(rule.HangFor), LateCut: rule.LateCut,
			AppendRequestID: rule.AppendRequestID,
		}
		if rule.Fail != nil {
			b.Fail = &driver.Fail{Code: rule.Fail.Code, Message: rule.Fail.Message, Times: rule.Fail.Times}
		}
		if rule.Throttle != nil {
			b.Throttle = &driver.Throttle{PerSecond: rule.Throttle.PerSecond, Code: rule.Throttle.Code, Message: rule.Throttle.Message}
		}
		out = append(out, b)
	}
	return out
}

func apiDuration(d scenario.Duration) metav1.Duration { return metav1.Duration{Duration: d.Duration()} }

func (r *run) startCluster(ctx context.Context, endpoints []cluster.DriverEndpoint) error {
	spec := r.scenario.Cluster
	crds := r.opts.SnapshotCRDs
	if !*spec.SnapshotCRDs {
		crds, endpoints = "", nil
	}
	node, err := r.kubeletEndpoint()
	if err != nil {
		return err
	}
	r.lab.cluster, err = cluster.Start(ctx, cluster.Options{
		Dir: filepath.Join(r.opts.Dir, "cluster"), Programs: r.opts.Programs, SnapshotCRDs: crds, Velero: r.opts.Velero,
		Authorization: cluster.Authorization(spec.Authorization), Kubelet: node, Drivers: endpoints,
		Proxied: proxied(r.scenario),
		Snapshotter: cluster.Snapshotter{
			Workers: spec.Snapshotter.Workers, QPS: float64(spec.Snapshotter.QPS), Burst: spec.Snapshotter.Burst,
			Timeout: spec.Snapshotter.Timeout.Duration(),
		},
	})
	return err
}

// apiUsers are the clients that the API can be made to misbehave for.
var apiUsers = map[string]cluster.User{
	scenario.TargetServer:             cluster.UserVelero,
	scenario.TargetSnapshotController: cluster.UserSnapshotController,
}

// proxied lists the users that need a proxy. The others have none, so that it costs no time where it isn't used.
func proxied(s *scenario.Scenario) []cluster.User {
	var users []cluster.User
	for _, action := range s.Actions() {
		if action.API == nil {
			continue
		}
		if user := apiUsers[action.API.Of]; !slices.Contains(users, user) {
			users = append(users, user)
		}
	}
	return users
}

// stop ends everything that is not bound to the context.
func (r *run) stop() {
	if r.second != nil {
		r.second.stopCluster()
	}
	r.stopCluster()
	if r.lab.store == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), storeGrace)
	defer cancel()
	if err := r.lab.store.Stop(ctx); err != nil {
		r.say("stopping: %v", err)
	}
}

// stopCluster ends the server and its cluster.
func (r *run) stopCluster() {
	if r.server != nil {
		r.server.kill()
	}
	if r.lab.cluster != nil {
		r.lab.cluster.Stop()
	}
}

// closeLogs is for the end, when no driver writes any more.
func (l *lab) closeLogs() {
	for _, log := range l.logs {
		_ = log.Close() // everything was written without a buffer
	}
}
