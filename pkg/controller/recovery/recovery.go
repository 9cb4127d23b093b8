// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package recovery

import (
	"context"
	"slices"
	"time"

	"github.com/sirupsen/logrus"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/velero-clipper/clipper/pkg/controller/instance"
	"github.com/velero-clipper/clipper/pkg/hook"
	"github.com/velero-clipper/clipper/pkg/hook/freezerecord"
	"github.com/velero-clipper/clipper/pkg/snapshot"
)

const (
	// DefaultInterval is how often Run looks.
	DefaultInterval = time.Minute
	// thawLimit and removeLimit bound the steps of a case. What is left then is gone on with in the background.
	thawLimit   = 90 * time.Second
	removeLimit = 30 * time.Second
	// findLimit is how long an API server that doesn't answer keeps the server from starting. Velero's own can't start either.
	findLimit = 2 * time.Minute
	// sayAgain is how often it is said that another server is waited for.
	sayAgain = time.Minute
)

// Records are the freeze records; freezerecord.Store is one.
type Records interface {
	List(ctx context.Context) ([]*freezerecord.Stored, error)
	// IsOpen says whether this process runs the backup.
	IsOpen(backup types.UID) bool
	// Hold keeps this process from freezing a pod until release is called. It returns nil when a backup of it has the pod frozen.
	Hold(ctx context.Context, pod freezerecord.Entry) (release func())
}

// Snapshots removes those of dead backups; snapshot.Sweeper is one.
type Snapshots interface {
	// RemoveOwned removes every snapshot of a backup to its end, and returns when that is done or ctx has ended: how many there were, and
	// which are left.
	RemoveOwned(ctx context.Context, backup types.UID) (found int, left []snapshot.Leftover, err error)
}

// Instances knows which servers are alive; instance.Watch is one.
type Instances interface {
	Look(ctx context.Context, id instance.ID) (instance.State, error)
}

// Deps is what a Recovery works with. All fields are required unless they say otherwise.
type Deps struct {
	// Client reads and writes without a cache.
	Client client.Client
	// Backups reads Backups, from a cache or not.
	Backups client.Reader
	Records Records
	// Executor runs the hooks that thaw pods.
	Executor hook.Executor
	// Snapshots removes snapshots. Default: there are none.
	Snapshots Snapshots
	Instances Instances
	// Self is this process.
	Self instance.ID
	// Events about backups and records.
	Events record.EventRecorder
	// Namespace of the installation.
	Namespace string
	// Retry puts a backup back into the queue, once, instead of marking it Failed.
	Retry bool
	// Interval of Run. Default: DefaultInterval.
	Interval time.Duration
	// Clock tells the time. Default: the real clock.
	Clock clock.WithTicker
	// Log of the server.
	Log logrus.FieldLogger
}

// Recovery recovers what dead servers left behind. AtStart and Run are not to be run at the same time.
type Recovery struct{ deps Deps }

// New makes a Recovery.
func New(deps Deps) *Recovery {
	if deps.Interval <= 0 {
		deps.Interval = DefaultInterval
	}
	if deps.Clock == nil {
		deps.Clock = clock.RealClock{}
	}
	return &Recovery{deps: deps}
}

// AtStart recovers all that is there, and returns when Velero's own server may be started: when no backup of another living server
// is in progress that was when this one was started, and each case of a dead one was seen to, for as long as its steps may take. A server
// that is always busy must not keep this one from starting for ever. When ctx ends, pods are still thawed, and
// the rest is left to the next start. What goes wrong is logged. Requests that fail keep the server from starting for findLimit.
func (r *Recovery) AtStart(ctx context.Context) {
	done := map[types.UID]bool{}
	var before map[types.UID]bool // what was there when all could be known for the first time
	var failing, said time.Time
	for ctx.Err() == nil {
		now := r.deps.Clock.Now()
		waiting, err := r.once(ctx, done)
		if before == nil && err == nil {
			before = map[types.UID]bool{}
			for _, c := range waiting {
				before[c.uid] = true
			}
		}
		if before != nil {
			waiting = slices.DeleteFunc(waiting, func(c *aCase) bool { return !before[c.uid] })
		}
		switch {
		case err == nil && len(waiting) == 0:
			return
		case err == nil:
			failing = time.Time{}
		case failing.IsZero():
			failing = now
		}
		if err != nil {
			if now.Sub(failing) >= findLimit {
				r.deps.Log.WithError(err).Error("What a server before this one left behind isn't known; it is looked for again while the server runs")
				return
			}
			r.deps.Log.WithError(err).Info("What a server before this one left behind can't be read; that is tried again")
		} else if now.Sub(said) >= sayAgain {
			said = now
			for _, c := range waiting {
				c.log.Infof("Waiting with the start: it isn't certain yet that server %s, which has the backup in progress, is dead", c.server)
			}
		}
		r.pause(ctx, instance.LookAgain)
	}
}

// once recovers the cases that are not done and whose servers are dead, and returns those that the start has to wait for.
func (r *Recovery) once(ctx context.Context, done map[types.UID]bool) (waiting []*aCase, err error) {
	cases, err := r.find(ctx)
	if err != nil {
		return nil, err
	}
	cases = slices.DeleteFunc(cases, func(c *aCase) bool { return done[c.uid] })
	dead, waiting, err := r.sort(ctx, cases, r.isDeadAtStart)
	r.recoverAll(ctx, dead)
	for _, c := range dead {
		if c.postponed {
			waiting = append(waiting, c)
			continue
		}
		done[c.uid] = true
	}
	return waiting, err
}

// judge says how a server stands.
type judge func(ctx context.Context, id instance.ID) (instance.State, error)

// isDeadAtStart is a judge for the start. A process of our name was there before us: that we are there is proof of its death, without
// a Lease. Without the right to read Leases nobody's life can be known, ever. They are dead then, because Velero's own start will take
// them for that, and would leave their pods frozen.
func (r *Recovery) isDeadAtStart(ctx context.Context, id instance.ID) (instance.State, error) {
	if id.IsNamesake(r.deps.Self) {
		return instance.Dead, nil
	}
	state, err := r.deps.Instances.Look(ctx, id)
	if apierrors.IsForbidden(err) {
		r.deps.Log.WithError(err).Errorf("The server may not read Leases. Server %s is taken for dead; if it isn't, its backup fails", id)
		return instance.Dead, nil
	}
	return state, err
}

// sort picks the cases whose server is dead, and those that are to be looked at again soon. The error is that of one that can't be
// judged.
func (r *Recovery) sort(ctx context.Context, cases []*aCase, by judge) (dead, waiting []*aCase, err error) {
	for _, c := range cases {
		state, lookErr := c.look(ctx, by)
		if apierrors.IsForbidden(lookErr) && !c.unended() {
			state, lookErr = instance.Dead, nil // its backup is over: a thaw that is owed can wait for nobody's word
		}
		if lookErr != nil {
			err = lookErr
		}
		switch {
		case state == instance.Dead:
			dead = append(dead, c)
		case c.inProgress() || state == instance.Unsure:
			waiting = append(waiting, c)
		}
	}
	return dead, waiting, err
}

// look says how the servers of a case stand: it is dead only if both are.
func (c *aCase) look(ctx context.Context, by judge) (instance.State, error) {
	state, err := by(ctx, c.server)
	if err != nil || state != instance.Dead || c.recorder == c.server {
		return state, err
	}
	return by(ctx, c.recorder)
}

// recoverAll takes cases to their ends, at the same time.
func (r *Recovery) recoverAll(ctx context.Context, cases []*aCase) {
	var group errgroup.Group
	for _, c := range cases {
		group.Go(func() error { r.recover(ctx, c); return nil })
	}
	_ = group.Wait() // none of them returns an error
}

// Run looks for what is left from time to time, until ctx ends: pods that couldn't be thawed, and backups of another server that died
// meanwhile. It implements controller-runtime's manager.Runnable.
func (r *Recovery) Run(ctx context.Context) error {
	next := r.deps.Interval
	for r.pause(ctx, next) {
		next = r.deps.Interval
		cases, err := r.find(ctx)
		if err != nil {
			r.deps.Log.WithError(err).Warn("Pods that are still frozen after a failed backup can't be looked for; that is tried again")
			continue
		}
		dead, waiting, err := r.sort(ctx, cases, r.deps.Instances.Look)
		if err != nil {
			r.deps.Log.WithError(err).Warn("It isn't known whether a server that has a backup is alive; that is asked again")
		}
		r.recoverAll(ctx, dead)
		if len(waiting) > 0 {
			next = min(next, instance.LookAgain*3) // looks that are further apart tell less
		}
	}
	return nil
}

// pause returns true when the time has passed, and false when ctx ended before.
func (r *Recovery) pause(ctx context.Context, d time.Duration) bool {
	timer := r.deps.Clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C():
		return true
	case <-ctx.Done():
		return false
	}
}
