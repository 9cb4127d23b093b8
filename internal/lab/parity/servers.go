// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package parity

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/velero-clipper/clipper/internal/lab/cluster"
	"github.com/velero-clipper/clipper/internal/lab/nodeagent"
	"github.com/velero-clipper/clipper/internal/lab/recorder"
	"github.com/velero-clipper/clipper/internal/lab/server"
	"github.com/velero-clipper/clipper/internal/lab/toolchain"
)

// The engines.
const (
	Stock = "stock"
	Ours  = "ours"
)

// Engines in the order in which a case runs them.
func Engines() []string { return []string{Stock, Ours} }

// engine is one of the two servers: same binary, same cluster, its own namespace, folder and part of the bucket.
type engine struct {
	name, namespace string
	dir, plugins    string
	recorder        string

	// agent stands in for the installation's node agent.
	agent  *nodeagent.Agent
	server *server.Server
	// flags are what the server runs with.
	flags string
	// previous is the name of the Backup before; it exists, so that both servers' namespaces hold as many in each run.
	previous string
}

// idle are controllers that have nothing to do here, or would do it at a time of their own.
const idle = "backup-sync,gc,schedule,restore,restore-operations,restore-finalizer,backup-repo"

// prepareEngines makes the engines' namespaces and folders, and node agents that stand in until work ends.
func (l *Lab) prepareEngines(ctx, work context.Context) error {
	for _, name := range Engines() {
		e := &engine{name: name, namespace: "velero-" + name, dir: filepath.Join(l.opts.Dir, name)}
		e.plugins, e.recorder = filepath.Join(e.dir, "plugins"), filepath.Join(e.dir, "recorder")
		for _, dir := range []string{e.plugins, e.recorder} {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				return err
			}
		}
		for _, program := range []string{l.opts.Programs[toolchain.AWSPlugin], l.opts.Recorder} {
			if err := server.CopyPlugin(program, e.plugins); err != nil {
				return err
			}
		}
		if err := l.cluster.CreateNamespaces(ctx, e.namespace); err != nil {
			return err
		}
		e.agent = nodeagent.New(nodeagent.Options{Client: l.cluster.Client(), Namespace: e.namespace})
		if err := e.agent.Install(ctx); err != nil {
			return err
		}
		l.group.Go(func() error { return e.agent.Run(work) })
		e.previous = "before-all"
		first := &velerov1.Backup{ObjectMeta: metav1.ObjectMeta{Namespace: e.namespace, Name: e.previous}}
		first.Status.Phase = velerov1.BackupPhaseCompleted
		if err := l.cluster.Client().Create(ctx, first); err != nil {
			return err
		}
		l.engines[name] = e
	}
	return nil
}

// ensure starts the server, or starts it anew when the case wants other flags.
func (l *Lab) ensure(ctx context.Context, e *engine, c Case) error {
	flags := strings.Join(c.Args, " ")
	var env []string
	for _, key := range slices.Sorted(maps.Keys(c.Env)) {
		env = append(env, key+"="+c.Env[key])
	}
	flags += "|" + strings.Join(env, " ")
	if e.server != nil {
		select {
		case <-e.server.Done():
			l.say("%s ended: %v", e.name, e.server.EndedError())
		default:
			if e.flags == flags {
				return nil
			}
		}
		e.stop()
	}
	args := []string{
		"--disable-controllers=" + idle, "--item-operation-sync-frequency=1s",
		"--client-qps=500", "--client-burst=500",
	}
	args = append(args, c.Args...)
	if e.name == Stock {
		args = append(args, "--csi-snapshot-parallelism=0")
	} else {
		args = append(args, fmt.Sprintf("--item-block-worker-count=%d", l.opts.Workers))
	}
	l.say("starting %s with %q", e.name, flags)
	var err error
	e.server, err = server.Start(ctx, server.Options{
		Binary: l.opts.Velero, Args: args,
		Env:        append([]string{recorder.DirVariable + "=" + e.recorder, "CSI_SNAPSHOT_EARLY_FREQUENT_POLLING=true"}, env...),
		Kubeconfig: l.cluster.Kubeconfig(cluster.UserVelero), Client: l.cluster.Client(), Dir: e.dir, PluginDir: e.plugins,
		Store: server.Store{URL: l.store.URL(), Bucket: l.store.Bucket(), Prefix: e.name}, Namespace: e.namespace,
	})
	e.flags = flags
	return err
}

func (e *engine) stop() {
	if e.server != nil {
		e.server.Kill9()
		e.server = nil
	}
}
