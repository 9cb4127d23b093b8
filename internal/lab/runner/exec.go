// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/velero-clipper/clipper/internal/lab/cluster"
	"github.com/velero-clipper/clipper/internal/lab/kubelet"
	"github.com/velero-clipper/clipper/internal/lab/scenario"
)

// startKubelet serves the exec requests of the API server and passes each change on to the board.
func (r *run) startKubelet(ctx context.Context, group *errgroup.Group) error {
	log, err := os.Create(filepath.Join(r.logDir(), "kubelet.log"))
	if err != nil {
		return err
	}
	r.lab.logs = append(r.lab.logs, log)
	outcomes := outcomesOf(r.scenario, r.workload)
	k, err := kubelet.New(kubelet.Config{Run: outcomes.run, ErrorLog: log})
	if err != nil {
		return err
	}
	if _, _, err := k.Listen(); err != nil {
		return err
	}
	r.lab.kubelet = k
	group.Go(func() error { return k.Serve(ctx) })
	group.Go(func() error {
		r.follow(ctx, k.Changed)
		return nil
	})
	return nil
}

// kubeletEndpoint is where the cluster finds the kubelet stand-in.
func (r *run) kubeletEndpoint() (cluster.Endpoint, error) {
	host, port, err := r.lab.kubelet.Listen()
	return cluster.Endpoint{Host: host, Port: port}, err
}

// follow wakes those who wait at the board whenever something happens at a part of the lab.
func (r *run) follow(ctx context.Context, next func() <-chan struct{}) {
	for {
		changed := next()
		r.board.wake()
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// executions are the commands that ran in containers since a moment, in the order of their start.
func (r *run) executions(since time.Time) []execution {
	var out []execution
	for _, call := range r.lab.kubelet.Calls() {
		if call.Start.Before(since) {
			continue
		}
		out = append(out, execution{
			pod: call.Namespace + "/" + call.Pod, container: call.Container, command: call.Command,
			start: call.Start, end: call.End, exit: call.ExitCode,
		})
	}
	return out
}

// outcomes says how commands in containers go.
type outcomes struct {
	// hooks are what the pods declare, by "namespace/pod".
	hooks map[string][]scenario.Hook
	rules []scenario.CommandRule
}

func outcomesOf(s *scenario.Scenario, w scenario.Workload) outcomes {
	o := outcomes{hooks: map[string][]scenario.Hook{}, rules: s.Commands}
	for _, pod := range w.Pods {
		for _, hook := range []*scenario.Hook{pod.Hooks.Pre, pod.Hooks.Post} {
			if hook != nil {
				o.hooks[pod.Key()] = append(o.hooks[pod.Key()], *hook)
			}
		}
	}
	return o
}

// run decides by the pod's own hooks first, then by the scenario's rules; any other command succeeds at once.
func (o outcomes) run(_ context.Context, call kubelet.ExecCall) kubelet.Result {
	pod := call.Namespace + "/" + call.Pod
	for _, hook := range o.hooks[pod] {
		if slices.Equal(hook.Command, call.Command) {
			return kubelet.Result{Takes: hook.Takes.Duration(), ExitCode: hook.Exit}
		}
	}
	for _, rule := range o.rules {
		if scenario.MatchName(rule.Match, pod) && slices.Equal(rule.Command, call.Command) {
			return kubelet.Result{Takes: rule.Takes.Duration(), ExitCode: rule.Exit}
		}
	}
	return kubelet.Result{}
}
