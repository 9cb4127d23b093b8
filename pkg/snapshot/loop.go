// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"errors"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/types"
)

const (
	// maxCreators and maxRemovers bound the API requests that are under way at once.
	maxCreators = 16
	maxRemovers = 8
	// batchCreators leaves some to applications that are frozen when the API hangs.
	batchCreators = 12
	// syncGrace is how long nothing is created while the API hasn't answered the tracker's first lists.
	syncGrace = 30 * time.Second
	// removalTimeout bounds asking for one removal; following it to its end is Settle's work.
	removalTimeout = 5 * time.Minute
)

var errStopped = errors.New("the server is shutting down")

// loop owns all state of a running Taker. Everything reaches it as a function in the inbox, or by the agenda, and runs on
// its one goroutine, so there is no lock.
type loop struct {
	*Taker
	// entries are those queued and in flight, in the order in which they were asked for.
	entries []*entry
	drivers map[string]*driver
	// turns has the number of each owner's last start.
	turns  map[types.UID]uint64
	turn   uint64
	agenda agenda
	// opens is when creating starts even if the tracker has heard nothing yet.
	opens time.Time
	// places are reserved, or waited for, in the order in which they were asked for.
	places []*place
	// pending: something has happened that may let a snapshot start.
	pending bool

	creating, removing int
	groups             *groups
	// gathering are the groups whose members start in this round; grouping counts those that are being taken.
	gathering []*groupOp
	grouping  int
	removals  []*entry
	// work is the context of all API requests; it outlives Start's by the grace time.
	work  context.Context
	group errgroup.Group
}

func newLoop(t *Taker) *loop {
	return &loop{Taker: t, drivers: map[string]*driver{}, turns: map[types.UID]uint64{}, groups: &groups{
		api: t.opts.Groups, client: t.client, tracker: t.tracker, clock: t.opts.Clock, log: t.opts.Logger, judge: t.opts.Judge,
		retry: t.opts.Remover.retry,
	}}
}

func (l *loop) now() time.Time { return l.opts.Clock.Now() }

func (l *loop) run(ctx context.Context) {
	var cancel context.CancelFunc
	l.work, cancel = context.WithCancel(context.WithoutCancel(ctx))
	l.group.Go(func() error { l.opts.Remover.follow(l.work); return nil })
	l.opens = l.now().Add(syncGrace)
	l.agenda.add(l.opens, func() { l.pending = true })
	for ctx.Err() == nil {
		news := l.tracker.watchNews()
		l.round()
		l.pause(ctx.Done(), news)
	}
	l.shutdown()
	cancel()
	_ = l.group.Wait() // the workers return no errors
	l.drain()          // their last answers
	for _, e := range l.removals {
		l.finishRemoval(e, errStopped)
	}
}

// round takes in what has happened, then what has become due, then starts what may start.
func (l *loop) round() {
	l.drain()
	l.agenda.run(l.now())
	for l.pending {
		l.pending = false
		l.dispatch()
	}
}

func (l *loop) drain() {
	for _, event := range l.inbox.take() {
		event(l)
	}
}

// pause waits for the next thing to do.
func (l *loop) pause(done, news <-chan struct{}) {
	var due <-chan time.Time
	if at, ok := l.agenda.next(); ok {
		timer := l.opts.Clock.NewTimer(at.Sub(l.now()))
		defer timer.Stop()
		due = timer.C()
	}
	select {
	case <-l.inbox.signal:
	case <-due:
	case <-news:
		l.pending = true
	case <-done:
	}
}

// shutdown gives up everything undecided and removes what it can within the grace time.
func (l *loop) shutdown() {
	l.stop()
	l.drain()
	l.grantAll()
	for _, e := range l.entries {
		if e.state.undecided() {
			l.fail(e, ReasonAbandoned, e.abandoned(errStopped))
		}
	}
	grace := l.opts.Clock.NewTimer(l.opts.ShutdownGrace)
	defer grace.Stop()
	for l.creating+l.grouping+l.removing+len(l.removals) > 0 {
		select {
		case <-l.inbox.signal:
			l.drain()
		case <-grace.C():
			l.opts.Logger.Warnf("Shutting down with %d snapshots still to be removed", l.creating+l.grouping+l.removing+len(l.removals))
			return
		}
	}
}

// admit takes in one call of Take.
func (l *loop) admit(ctx context.Context, entries []*entry) {
	g := &group{open: len(entries)}
	g.release = context.AfterFunc(ctx, func() {
		l.inbox.put(func(l *loop) { l.abandon(entries, context.Cause(ctx)) })
	})
	if len(entries) == 0 {
		g.release()
	}
	for _, e := range entries {
		e.group = g
		e.driver = l.driver(e.request.Driver)
		e.driver.queued++
		l.opts.Metrics.load(e.driver)
		l.entries = append(l.entries, e)
		l.pending = true
		l.observe(EventQueued, e, "")
		if err := validate(e.request); err != nil {
			l.fail(e, ReasonCreateRefused, e.subject()+": the request for a snapshot is incomplete: "+err.Error())
		}
	}
	if ctx.Err() != nil { // nothing may be created before the notice of it arrives
		l.abandon(entries, context.Cause(ctx))
	}
}

func (l *loop) driver(name string) *driver {
	if l.drivers[name] == nil {
		l.drivers[name] = &driver{name: name, limit: l.opts.DriverLimits[name]}
	}
	return l.drivers[name]
}

func (l *loop) abandon(entries []*entry, cause error) {
	for _, e := range entries {
		if e.state.undecided() {
			l.fail(e, ReasonAbandoned, e.abandoned(cause))
		}
	}
}

// dispatch starts what may start: first the next tries of what is in flight already, then from the queue.
func (l *loop) dispatch() {
	defer l.takeGroups()
	l.entries = slices.DeleteFunc(l.entries, func(e *entry) bool { return !e.state.undecided() })
	if len(l.entries) == 0 {
		clear(l.turns)
		l.grantAll()
		l.limits() // for the metric
		return
	}
	if !l.mayCreate() {
		return
	}
	for _, priority := range []Priority{Frozen, Batch} {
		for _, e := range l.entries {
			if e.state == due && e.request.Priority == priority && l.hasCreator(priority) {
				l.create(e)
			}
		}
	}
	if l.creating >= maxCreators {
		return
	}
	lim := l.limits()
	waiting := l.grant(lim)
	candidates := make([]candidate, len(l.entries), len(l.entries)+len(l.places))
	for i, e := range l.entries {
		candidates[i] = e.candidate()
	}
	started := next(append(candidates, l.heldPlaces()...), l.turns, lim)
	if waiting {
		started = slices.DeleteFunc(started, func(i int) bool { return l.entries[i].request.Priority == Batch })
	}
	for _, i := range started {
		if !l.hasCreator(l.entries[i].request.Priority) {
			return // an answer brings the next round; frozen ones come first
		}
		l.start(l.entries[i])
	}
	// A start may have moved what the drivers' pace allows next.
	l.pending = l.pending || len(started) > 0
}

func (l *loop) hasCreator(p Priority) bool {
	return l.creating < batchCreators || p == Frozen && l.creating < maxCreators
}

func (l *loop) limits() limits {
	lim := limits{server: l.opts.Parallelism.serverLimit(), owner: l.opts.Parallelism.ownerLimit(), driver: map[string]driverLimit{}}
	for name, d := range l.drivers {
		allowed, again := d.allow(l.now())
		lim.driver[name] = allowed
		l.opts.Metrics.limits(name, lowest(lim.server, lowest(allowed.inFlight, allowed.batch)))
		switch {
		case d.queued > 0 && again.After(l.now()):
			l.lookAgain(d, again)
		case d.queued+d.inFlight == 0 && !d.pace.atRest():
			l.lookAgain(d, l.now().Add(forgetAfter+time.Second))
		}
	}
	return lim
}

// lookAgain looks at what may start when a driver's pace allows more. Only the earliest look counts: it asks for the next.
func (l *loop) lookAgain(d *driver, at time.Time) {
	if !d.again.IsZero() && !at.Before(d.again) {
		return
	}
	d.again = at
	l.agenda.add(at, func() {
		if d.again.Equal(at) {
			d.again, l.pending = time.Time{}, true
		}
	})
}

// mayCreate says whether the tracker would see what is created. Where it never will, everything fails with its reason.
func (l *loop) mayCreate() bool {
	answered, trouble := l.tracker.state()
	if trouble == nil {
		return answered || !l.now().Before(l.opens)
	}
	for _, e := range l.entries {
		l.fail(e, ReasonCreateRefused, e.subject()+": no snapshot can be taken: "+trouble.Error())
	}
	return false
}

// start brings an entry from the queue in flight. It subscribes before it creates, so that no event is missed.
func (l *loop) start(e *entry) {
	now := l.now()
	l.turn++
	l.turns[e.request.Owner.UID] = l.turn
	e.driver.begin(now)
	l.subscribe(e)
	e.leaves = true
	l.create(e)
	e.driver.pace.started(now, e.driver.inFlight)
	l.opts.Metrics.queueSeconds.WithLabelValues(e.driver.name).Observe(now.Sub(e.snap.Outcome().Queued).Seconds())
	l.expect(e, now)
	l.watchProgress(e.driver, now.Add(e.request.Timeout))
	e.snap.update(func(o *Outcome) { o.Phase, o.VolumeSnapshot = Cutting, desired(e.request) })
}

// subscribe has an entry examined whenever its objects change.
func (l *loop) subscribe(e *entry) {
	e.sub = l.tracker.subscribe(e.key, func() {
		if e.dirty.CompareAndSwap(false, true) {
			l.inbox.put(func(l *loop) {
				e.dirty.Store(false)
				l.examine(e)
			})
		}
	})
}

func (l *loop) create(e *entry) {
	if e.request.Group != nil {
		l.joinGroup(e)
		return
	}
	l.setState(e, creating)
	l.creating++
	e.calling = true
	e.tries++
	l.group.Go(func() error {
		answer := create(l.work, l.client, e.request)
		l.inbox.put(func(l *loop) {
			l.creating--
			l.pending = true
			l.created(e, answer)
		})
		return nil
	})
}

// setState is the only place that changes a state, so that the drivers' counts are right.
func (l *loop) setState(e *entry, s state) {
	d := e.driver
	if e.state == queued {
		d.queued--
	}
	if e.state.inFlight() {
		d.inFlight--
	}
	if s == due || e.state.inFlight() && !s.inFlight() {
		l.pending = true
	}
	e.state = s
	if s.inFlight() {
		d.inFlight++
	}
	l.opts.Metrics.load(d)
}

func (l *loop) observe(kind EventKind, e *entry, message string) {
	l.opts.Observe(Event{Kind: kind, At: l.now(), Snapshot: e.snap, Message: message})
}
