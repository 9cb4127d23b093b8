// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/velero-clipper/clipper/internal/lab/cluster"
	"github.com/velero-clipper/clipper/internal/lab/recorder"
	"github.com/velero-clipper/clipper/internal/lab/result"
	"github.com/velero-clipper/clipper/internal/lab/scenario"
	"github.com/velero-clipper/clipper/internal/lab/server"
)

const (
	// parallelismFlag is how our binary is told which engine to run.
	parallelismFlag = "--csi-snapshot-parallelism"
	// termGrace is how long a server may take after SIGTERM, as Kubernetes' own default.
	termGrace = 30 * time.Second
)

// serverControl starts and stops the one Velero server of an experiment and notes its exits on the board. Its methods may
// be called concurrently.
type serverControl struct {
	run *run
	// hasFlag says whether the binary knows parallelismFlag.
	hasFlag bool

	mu      sync.Mutex
	spec    scenario.Server
	current *server.Server
	logs    []string
	// recorders are the folders of the recording plugins, one for each start that had it.
	recorders []string
	// peaks is the largest resident size of each start so far, in bytes.
	peaks []int
}

// startServer starts the server for the first time. A server that must not start gives the outcome that it did not.
func (r *run) startServer(ctx context.Context, group *errgroup.Group) error {
	hasFlag, err := knowsParallelism(ctx, r.opts.Velero)
	if err != nil {
		return err
	}
	r.server = &serverControl{run: r, hasFlag: hasFlag, spec: r.scenario.Server}
	err = r.server.start(ctx, group)
	var refused *refusedError
	if errors.As(err, &refused) && r.scenario.Server.MustNotStart {
		r.startError = refused.Error() + "\nthe beginning of its log:\n" + r.logHead()
		return nil
	}
	if err == nil && r.scenario.Server.MustNotStart {
		r.unfinished = "the server started although it must not"
	}
	return err
}

// logHead is the beginning of what the server wrote: a wrong flag is named there, before pages of usage.
func (r *run) logHead() string {
	const longest = 2000
	paths, err := filepath.Glob(filepath.Join(r.logDir(), "velero-*.log"))
	if err != nil || len(paths) == 0 {
		return ""
	}
	content, err := os.ReadFile(paths[0])
	if err != nil {
		return err.Error()
	}
	return string(content[:min(len(content), longest)])
}

// knowsParallelism asks the binary for its flags.
func knowsParallelism(ctx context.Context, velero string) (bool, error) {
	help, err := exec.CommandContext(ctx, velero, "server", "--help").CombinedOutput()
	if err != nil {
		return false, fmt.Errorf("asking %s for the flags of its server: %w: %s", velero, err, help)
	}
	return strings.Contains(string(help), parallelismFlag), nil
}

// engineArgs turns the engine of the scenario into arguments that the binary understands.
func engineArgs(spec scenario.Server, hasFlag bool) ([]string, error) {
	if spec.Engine == scenario.EngineParallel {
		if !hasFlag {
			return nil, fmt.Errorf("this velero binary has no %s, so it has only Velero's own engine: run it with --engine stock", parallelismFlag)
		}
		return spec.Args, nil
	}
	args := withoutFlag(spec.Args, parallelismFlag)
	if hasFlag {
		args = append(args, parallelismFlag+"=0")
	}
	return args, nil
}

// withoutFlag leaves a flag out, written as --flag=value or as --flag value.
func withoutFlag(args []string, flag string) []string {
	var out []string
	for i := 0; i < len(args); i++ {
		switch {
		case args[i] == flag:
			i++
		case strings.HasPrefix(args[i], flag+"="):
		default:
			out = append(out, args[i])
		}
	}
	return out
}

// refusedError says that the server process did not become ready.
type refusedError struct{ err error }

func (e *refusedError) Error() string { return e.err.Error() }

func (e *refusedError) Unwrap() error { return e.err }

// start starts the server as last specified and returns when it is ready.
func (c *serverControl) start(ctx context.Context, group *errgroup.Group) error {
	c.mu.Lock()
	spec := c.spec
	c.mu.Unlock()
	args, err := engineArgs(spec, c.hasFlag)
	if err != nil {
		return err
	}
	if spec.Features != nil {
		args = append(slices.Clone(args), "--features="+strings.Join(spec.Features, ","))
	}
	var env []string
	for key, value := range spec.Env {
		env = append(env, key+"="+value)
	}
	r := c.run
	if err := r.grant(ctx, spec.RBAC); err != nil {
		return err
	}
	pluginDir, err := c.plugins(spec)
	if err != nil {
		return err
	}
	if pluginDir.recorder != "" {
		env = append(env, recorder.DirVariable+"="+pluginDir.recorder)
	}
	begin := time.Now()
	started, err := server.Start(ctx, server.Options{
		Binary: r.opts.Velero, Args: args, Env: env, Kubeconfig: r.lab.cluster.Kubeconfig(cluster.UserVelero),
		Client: r.lab.cluster.Client(), Dir: r.logDir(), PluginDir: pluginDir.programs,
		Store: server.Store{URL: r.lab.store.URL(), Bucket: r.lab.store.Bucket()},
	})
	if err != nil {
		if ctx.Err() == nil {
			err = &refusedError{err: err}
		}
		return err
	}
	c.mu.Lock()
	c.current = started
	c.logs = append(c.logs, started.LogPath())
	c.peaks = append(c.peaks, 0)
	start := len(c.peaks) - 1
	c.mu.Unlock()
	now := time.Now()
	r.board.update(func(rec *recording) {
		rec.starts++
		rec.ready, rec.running = true, true
		rec.notes = append(rec.notes, note{
			at: now, kind: result.KindServer, object: "server",
			message: fmt.Sprintf("ready %.1f s after its start, engine %s", now.Sub(begin).Seconds(), spec.Engine),
		})
	})
	// An event's context ends with the events, while a server that it has started goes on; run.stop ends that.
	life := context.WithoutCancel(ctx)
	group.Go(func() error {
		c.follow(life, started, start)
		return nil
	})
	return nil
}

// grant gives the server its rights, where the cluster asks for any.
func (r *run) grant(ctx context.Context, rbac scenario.Rights) error {
	if r.scenario.Cluster.Authorization != scenario.RBAC {
		return nil
	}
	if strings.Contains(rbac.Role, "/") && !filepath.IsAbs(rbac.Role) {
		rbac.Role = filepath.Join(filepath.Dir(r.scenario.File), rbac.Role)
	}
	return r.lab.cluster.Grant(ctx, cluster.Rights{Role: rbac.Role, Without: rbac.Without})
}

// follow notes the end of a server; start counts the starts from 0.
func (c *serverControl) follow(ctx context.Context, s *server.Server, start int) {
	status, err := s.Wait(ctx)
	if err != nil {
		return // the experiment is over
	}
	c.mu.Lock()
	c.peaks[start] = max(c.peaks[start], int(s.PeakMemory().Process))
	c.mu.Unlock()
	c.run.board.update(func(rec *recording) {
		rec.ready, rec.running = false, false
		rec.exits = append(rec.exits, serverExit{at: status.Ended, status: status.String(), expected: status.Requested})
		rec.notes = append(rec.notes, note{at: status.Ended, kind: result.KindServer, object: "server", message: "ended: " + status.String()})
	})
}

// kill ends the server by SIGKILL, if it runs.
func (c *serverControl) kill() {
	if s := c.server(); s != nil {
		s.Kill9()
	}
}

// term ends the server by SIGTERM.
func (c *serverControl) term(ctx context.Context) {
	if s := c.server(); s != nil {
		s.Term(ctx, termGrace)
	}
}

// awaitExit returns when the board has the end of the server.
func (c *serverControl) awaitExit(ctx context.Context) error {
	return c.run.board.wait(ctx, func(rec *recording) bool { return !rec.running })
}

func (c *serverControl) server() *server.Server {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.current
}

// respecify sets what the next start uses.
func (c *serverControl) respecify(spec scenario.Server) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.spec = spec
}

// peakMemory is the largest resident size of each start of the server, in bytes.
func (c *serverControl) peakMemory() []int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if last := len(c.peaks) - 1; last >= 0 {
		c.peaks[last] = max(c.peaks[last], int(c.current.PeakMemory().Process))
	}
	return slices.Clone(c.peaks)
}

func (c *serverControl) logPaths() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.logs)
}
