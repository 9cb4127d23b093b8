// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/velero-clipper/clipper/internal/lab/cluster"
	"github.com/velero-clipper/clipper/internal/lab/server"
)

const (
	// startLimit bounds the start of a server; recovery comes before readiness.
	startLimit = 3 * time.Minute
	// termGrace is how long a server may take after SIGTERM, as Kubernetes' own default.
	termGrace = 30 * time.Second
)

// idle are controllers that have nothing to do here, or would do it at a time of their own.
const idle = "gc,schedule,restore,restore-operations,restore-finalizer,backup-repo"

// startServer starts the server and returns when it is ready. It is killed when ctx ends before.
func (l *Lab) startServer(ctx context.Context) error {
	l.state.update(func(s *seen) { s.starts++ })
	started, err := server.Start(ctx, server.Options{
		Binary: l.opts.Velero,
		Args: []string{
			"--disable-controllers=" + idle, "--item-operation-sync-frequency=1s", "--client-qps=500", "--client-burst=500",
			"--concurrent-backups=2", "--item-block-worker-count=2", "--store-validation-frequency=5s",
		},
		Kubeconfig: l.cluster.Kubeconfig(cluster.UserVelero), Client: l.cluster.Client(), Dir: l.opts.Dir, PluginDir: l.plugins,
		Store: server.Store{URL: l.store.URL(), Bucket: l.store.Bucket()}, StartTimeout: startLimit,
	})
	if err != nil {
		return err
	}
	l.setServer(started)
	l.group.Go(func() error {
		<-started.Done()
		if status, _ := started.ExitStatus(); !status.Requested {
			l.state.update(func(s *seen) { s.exits = append(s.exits, started.EndedError().Error()) })
		}
		return nil
	})
	return nil
}

// ensureServer starts the server if none is running.
func (l *Lab) ensureServer(ctx context.Context) error {
	if current := l.Server(); current != nil {
		if _, ended := current.ExitStatus(); !ended {
			return nil
		}
	}
	return l.startServer(ctx)
}

// errReached ends a start whose moment has come.
var errReached = errors.New("the moment came")

// startUntil starts the server and kills it when the condition holds, whether it is ready by then or not.
func (l *Lab) startUntil(ctx context.Context, holds condition, after time.Duration) error {
	starting, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	ended := make(chan error, 1)
	go func() { ended <- l.startServer(starting) }()
	met := l.awaitMoment(ctx, holds, after)
	stop(errReached)
	err := <-ended // after the moment it doesn't matter any more
	if met != nil {
		return fmt.Errorf("the moment to kill the server that recovers did not come: %w", errors.Join(met, err))
	}
	if err == nil {
		l.kill()
	}
	return nil
}

func (l *Lab) setServer(s *server.Server) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.server = s
}

// Server is the one that was started last; nil before.
func (l *Lab) Server() *server.Server {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.server
}

// kill ends the server with all its processes by SIGKILL.
func (l *Lab) kill() {
	if s := l.Server(); s != nil {
		s.Kill9()
	}
}

// term ends the server by SIGTERM. One that has to be killed after its grace period is an unexpected end.
func (l *Lab) term(ctx context.Context, grace time.Duration) {
	s := l.Server()
	if s == nil {
		return
	}
	if status := s.Term(ctx, grace); status.Signal != 0 && grace >= termGrace {
		l.state.update(func(s *seen) { s.exits = append(s.exits, "it did not end within its grace period after SIGTERM") })
	}
}
