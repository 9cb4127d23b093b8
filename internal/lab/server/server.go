// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/velero-clipper/clipper/internal/lab/process"
)

// started numbers the logs of a lab's servers.
var started atomic.Int32

// Server is a velero server process. Its methods may be called concurrently.
type Server struct {
	opts    Options
	process *process.Process
	ready   time.Duration
	// profiler is host and port of the profiler.
	profiler string
}

// Start starts a server and returns when it has found its storage location available. On an
// error the process is gone; when it ended by itself the error carries the end of its log.
func Start(ctx context.Context, opts Options) (*Server, error) {
	opts, err := opts.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("starting the Velero server: %w", err)
	}
	begin := time.Now()
	s, err := launch(ctx, opts)
	if err != nil {
		return nil, fmt.Errorf("starting the Velero server: %w", err)
	}
	if err := s.await(ctx); err != nil {
		s.Kill9()
		return nil, fmt.Errorf("starting the Velero server: %w", err)
	}
	s.ready = time.Since(begin)
	return s, nil
}

func launch(ctx context.Context, opts Options) (*Server, error) {
	addresses, profiler, err := addresses(&opts)
	if err != nil {
		return nil, err
	}
	home, tmp := filepath.Join(opts.Dir, "home"), filepath.Join(opts.Dir, "tmp")
	if err := errors.Join(os.MkdirAll(home, 0o755), os.MkdirAll(tmp, 0o755)); err != nil {
		return nil, err
	}
	if err := opts.prepareLocation(ctx); err != nil {
		return nil, err
	}
	args := append([]string{"server", "--features=EnableCSI", "--plugin-dir=" + opts.PluginDir}, addresses...)
	child, err := process.Start(process.Spec{
		Name: "velero", Path: opts.Binary, Args: append(args, opts.Args...), Dir: home,
		Env:           opts.environment(home, tmp),
		LogPath:       filepath.Join(opts.Dir, fmt.Sprintf("velero-%d.log", started.Add(1))),
		MeasureMemory: true,
	})
	if err != nil {
		return nil, err
	}
	return &Server{opts: opts, process: child, profiler: profiler}, nil
}

// addresses settles the addresses and returns the flags for all listeners, and the profiler's.
func addresses(opts *Options) (flags []string, profiler string, err error) {
	ports, err := process.FreePorts(2)
	if err != nil {
		return nil, "", err
	}
	loopback := func(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
	setDefault(&opts.MetricsAddress, loopback(ports[0]))
	profiler = loopback(ports[1])
	return []string{"--metrics-address=" + opts.MetricsAddress, "--profiler-address=" + profiler}, profiler, nil
}

// environment is small and the same everywhere, so that nothing of the person's own set-up
// (AWS profiles, proxies, Velero variables) changes an experiment. The last value of a variable wins.
func (o Options) environment(home, tmp string) []string {
	env := []string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + home, "TMPDIR=" + tmp,
		"KUBECONFIG=" + o.Kubeconfig, "VELERO_NAMESPACE=" + o.Namespace,
		"AWS_ACCESS_KEY_ID=lab", "AWS_SECRET_ACCESS_KEY=lab", "AWS_EC2_METADATA_DISABLED=true",
	}
	return append(env, o.Env...)
}

// await waits for the location, or for the process to end.
func (s *Server) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, s.opts.StartTimeout, fmt.Errorf("not ready within %s", s.opts.StartTimeout))
	defer cancel()
	watching, stopWatching := context.WithCancel(ctx)
	defer stopWatching()
	result := make(chan error, 1)
	go func() { result <- s.opts.awaitLocation(watching) }()
	select {
	case err := <-result:
		if err != nil {
			err = fmt.Errorf("%w; the end of its log %s:\n%s", err, s.LogPath(), s.process.LogTail(20))
		}
		return err
	case <-s.process.Done():
		stopWatching()
		<-result //nolint:errcheck // why the watch ended doesn't matter any more
		return s.process.EndedError()
	}
}

// Kill9 ends the server and its plugins by SIGKILL.
func (s *Server) Kill9() process.ExitStatus { return s.process.Kill() }

// Term sends SIGTERM to the server, as a kubelet does, and kills it with its plugins when
// the grace period ends first.
func (s *Server) Term(ctx context.Context, grace time.Duration) process.ExitStatus {
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	return s.process.Terminate(ctx)
}

// Done is closed when the server has ended.
func (s *Server) Done() <-chan struct{} { return s.process.Done() }

// Wait returns how the server ended, or the context's error.
func (s *Server) Wait(ctx context.Context) (process.ExitStatus, error) { return s.process.Wait(ctx) }

// ExitStatus returns how the server ended; false while it runs.
func (s *Server) ExitStatus() (process.ExitStatus, bool) { return s.process.Status() }

// EndedError describes a server that has ended unasked, with the end of its log.
func (s *Server) EndedError() error { return s.process.EndedError() }

// PeakMemory returns the highest memory use so far; see process.Process.
func (s *Server) PeakMemory() process.Memory { return s.process.PeakMemory() }

// PID of the server.
func (s *Server) PID() int { return s.process.PID() }

// LogPath of this process.
func (s *Server) LogPath() string { return s.process.LogPath() }

// StartTime is how long it took from the start of the process to readiness.
func (s *Server) StartTime() time.Duration { return s.ready }

// MetricsURL is where the server's metrics are.
func (s *Server) MetricsURL() string { return "http://" + s.opts.MetricsAddress + "/metrics" }

// ProfilerURL is where Go's profiles of the server are.
func (s *Server) ProfilerURL() string { return "http://" + s.profiler + "/debug/pprof" }
