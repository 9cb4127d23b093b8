// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/velero-clipper/clipper/internal/lab/apiproxy"
	"github.com/velero-clipper/clipper/internal/lab/cluster"
	"github.com/velero-clipper/clipper/internal/lab/objectstore"
)

// harm is something that is done to the lab. What it leaves broken, Run repairs afterwards.
type harm func(ctx context.Context, l *Lab) error

// outage is how long a component of the cluster is away.
const outage = 3 * time.Second

// killServer is SIGKILL to the server and its plugins. Run starts it again.
func killServer(_ context.Context, l *Lab) error {
	l.kill()
	return nil
}

// killTwice kills the server, starts it again, and kills that one at a moment of its own.
func killTwice(holds condition, after time.Duration) harm {
	return func(ctx context.Context, l *Lab) error {
		l.kill()
		return l.startUntil(ctx, holds, after)
	}
}

// termServer is SIGTERM, as a kubelet does.
func termServer(ctx context.Context, l *Lab) error {
	l.term(ctx, termGrace)
	return nil
}

// termKill is SIGTERM to a server that is given too little time.
func termKill(grace time.Duration) harm {
	return func(ctx context.Context, l *Lab) error {
		l.term(ctx, grace)
		return nil
	}
}

// termTwice is SIGTERM and another one soon after.
func termTwice(after time.Duration) harm {
	return func(ctx context.Context, l *Lab) error {
		var group errgroup.Group
		group.Go(func() error { l.term(ctx, termGrace); return nil })
		group.Go(func() error {
			err := pause(ctx, after)
			l.term(ctx, termGrace)
			return err
		})
		return group.Wait()
	}
}

// killThenTerm kills the server and sends SIGTERM to the one that recovers.
func killThenTerm(holds condition) harm {
	return func(ctx context.Context, l *Lab) error {
		l.kill()
		var group errgroup.Group
		group.Go(func() error { return l.startServer(ctx) })
		group.Go(func() error { return l.awaitMoment(ctx, holds, 0) })
		if err := group.Wait(); err != nil {
			return err
		}
		l.term(ctx, termGrace)
		return nil
	}
}

// The components of the cluster, each killed and started again after some seconds.
func killAPIServer(ctx context.Context, l *Lab) error {
	return away(ctx, func() error { l.cluster.KillAPIServer(); return nil }, l.cluster.StartAPIServer)
}

func killEtcd(ctx context.Context, l *Lab) error {
	return away(ctx, l.cluster.KillEtcd, l.cluster.StartEtcd)
}

func killSidecar(ctx context.Context, l *Lab) error {
	return away(ctx, func() error { return l.cluster.StopSidecar(driverName) },
		func(ctx context.Context) error { return l.cluster.StartSidecar(ctx, driverName) })
}

func killSnapshotController(ctx context.Context, l *Lab) error {
	return away(ctx, l.cluster.StopSnapshotController, l.cluster.StartSnapshotController)
}

func away(ctx context.Context, stop func() error, start func(context.Context) error) error {
	if err := stop(); err != nil {
		return err
	}
	if err := pause(ctx, outage); err != nil {
		return err
	}
	return start(ctx)
}

// api has requests of the server meet faults.
func api(faults ...apiproxy.Fault) harm {
	return func(_ context.Context, l *Lab) error {
		for _, fault := range faults {
			l.cluster.Proxy(cluster.UserVelero).Add(fault)
		}
		return nil
	}
}

// cutWatches ends all watches several times.
func cutWatches(times int, every time.Duration, expire bool) harm {
	return func(ctx context.Context, l *Lab) error {
		proxy := l.cluster.Proxy(cluster.UserVelero)
		for range times {
			if expire {
				proxy.ExpireWatches()
			} else {
				proxy.CutWatches()
			}
			if err := pause(ctx, every); err != nil {
				return err
			}
		}
		return nil
	}
}

// storeAway has the object store refuse for some time.
func storeAway(failure objectstore.Failure, d time.Duration) harm {
	return func(ctx context.Context, l *Lab) error {
		l.store.Fail(failure)
		return pause(ctx, d)
	}
}

// storeAwayAndKill has it refuse, and kills the server meanwhile.
func storeAwayAndKill(failure objectstore.Failure, after time.Duration) harm {
	return func(ctx context.Context, l *Lab) error {
		l.store.Fail(failure)
		err := pause(ctx, after)
		l.kill()
		return err
	}
}

// repair undoes what harm may have left.
func (l *Lab) repair(ctx context.Context) error {
	l.store.Fail(objectstore.FailNothing)
	return l.ensureServer(ctx)
}
