// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"

	"golang.org/x/sync/errgroup"

	"github.com/velero-clipper/clipper/internal/lab/driver"
	"github.com/velero-clipper/clipper/internal/lab/result"
)

// secondCluster returns the run of the second cluster, and starts that when it is asked for the first time: a control plane and
// a server of its own, beside the object store, the drivers and the kubelet stand-in of the first.
func (r *run) secondCluster(ctx context.Context, group *errgroup.Group) (*run, error) {
	if r.second != nil {
		return r.second, nil
	}
	r.say("starting the second cluster")
	s := *r.scenario
	s.Server, s.Workload, s.Manifests, s.Cluster.OldSnapshots = s.Second.Server, nil, nil, 0
	second := &run{
		opts: r.opts, scenario: &s, workload: s.Expand(), hooks: r.hooks, board: newBoard(), first: r,
		lab:      &lab{drivers: r.lab.drivers, endpoints: r.lab.endpoints, kubelet: r.lab.kubelet, store: r.lab.store},
		restores: r.restores, deletions: r.deletions, commands: r.commands, artifacts: map[string]*artifacts{},
	}
	second.opts.Dir = filepath.Join(r.opts.Dir, "second")
	r.board.view(func(rec *recording) { second.board.rec.origin = rec.origin })
	if err := os.MkdirAll(second.logDir(), 0o755); err != nil {
		return nil, err
	}
	// From here on it has to be stopped.
	r.second = second
	for _, d := range r.lab.drivers {
		second.followDriver(ctx, group, d)
	}
	for _, do := range []func(context.Context, *errgroup.Group) error{second.startWatched, second.createWorkload, second.startServer} {
		if err := do(ctx, group); err != nil {
			return nil, fmt.Errorf("starting the second cluster: %w", err)
		}
	}
	return second, nil
}

// followDriver passes the changes of a driver on to the board.
func (r *run) followDriver(ctx context.Context, group *errgroup.Group, d *driver.Driver) {
	group.Go(func() error {
		r.follow(ctx, d.Changed)
		return nil
	})
}

// collectSecond is what the second cluster adds to the result.
func (r *run) collectSecond(out *result.Result) {
	out.Second.Backups = map[string]*result.Backup{}
	if r.second == nil {
		return
	}
	var seen *result.Result
	r.second.board.view(func(rec *recording) {
		seen = analyse(rec, r.second.scenario)
		vs, vsc := rec.leftovers()
		out.Second.VS, out.Second.VSC = len(vs), len(vsc)
	})
	maps.Copy(out.Second.Backups, seen.Backups)
	out.Second.UnexpectedExits = seen.Server.UnexpectedExits
}
