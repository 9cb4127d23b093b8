// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/clock"
)

// TakerOptions are the settings of a Taker.
type TakerOptions struct {
	// Parallelism is how many snapshots may be in flight in the whole server; the default is 50.
	Parallelism Parallelism
	// DriverLimits are how many of each driver may be; the default is none.
	DriverLimits DriverLimits
	// Clock; the default is the real one.
	Clock clock.WithTicker
	// Logger; the default is logrus's standard logger. It is the server's log: users get a snapshot's Outcome.
	Logger logrus.FieldLogger
	// Judge gives a verdict on errors; the default is PatientJudge.
	Judge Judge
	// Groups reaches the API of VolumeGroupSnapshots; without it requests with a Group fail.
	Groups dynamic.Interface
	// Remover removes what failed; the default is one with the Taker's client, tracker, clock and logger.
	Remover *Remover
	// Metrics; the default is a set of its own. Taker.Metrics returns it for registration.
	Metrics *Metrics
	// Observe is told of every step of every snapshot, in order and from one goroutine; it must return at once. Nil
	// means nobody looks.
	Observe func(Event)
	// ShutdownGrace is how long Start goes on removing after its context ended; the default is 10 seconds.
	ShutdownGrace time.Duration
}

// EventKind is a step in the life of a snapshot.
type EventKind string

const (
	// EventQueued: the request was taken in.
	EventQueued EventKind = "Queued"
	// EventCreated: the VolumeSnapshot exists.
	EventCreated EventKind = "Created"
	// EventError: a kind of error was seen that this snapshot hadn't shown before; texts that differ in ids only are one.
	EventError EventKind = "Error"
	// EventCut: the point in time is fixed.
	EventCut EventKind = "Cut"
	// EventReady: readyToUse on both objects.
	EventReady EventKind = "Ready"
	// EventFailed: it won't be cut.
	EventFailed EventKind = "Failed"
	// EventRemoved: the removal of a failed snapshot was asked for, or couldn't be; Message has the error then.
	EventRemoved EventKind = "Removed"
)

// Event is one step of one snapshot.
type Event struct {
	Kind     EventKind
	At       time.Time
	Snapshot *Snapshot
	// Message is the error of EventError, EventFailed and EventRemoved.
	Message string
}

// Taker takes snapshots: it queues requests, creates VolumeSnapshots as far as the limits allow, and decides what became
// of each. One goroutine, that of Start, owns all its state; a few more carry out API requests. All methods may be called
// from any goroutine.
type Taker struct {
	client  Client
	tracker *Tracker
	opts    TakerOptions
	inbox   *mailbox[func(*loop)]

	mu               sync.Mutex
	started, stopped bool
}

// NewTaker makes a Taker. The tracker must be started too, in any order.
func NewTaker(client Client, tracker *Tracker, opts TakerOptions) *Taker {
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	if opts.Logger == nil {
		opts.Logger = logrus.StandardLogger()
	}
	if opts.Judge == nil {
		opts.Judge = PatientJudge
	}
	if opts.Metrics == nil {
		opts.Metrics = NewMetrics()
	}
	if opts.Observe == nil {
		opts.Observe = func(Event) {}
	}
	if opts.ShutdownGrace <= 0 {
		opts.ShutdownGrace = 10 * time.Second
	}
	if opts.Remover == nil {
		opts.Remover = NewRemover(client, tracker, RemoverOptions{Clock: opts.Clock, Logger: opts.Logger, Groups: opts.Groups})
	}
	return &Taker{client: client, tracker: tracker, opts: opts, inbox: newMailbox[func(*loop)]()}
}

// Start runs the Taker until ctx ends. Then everything undecided fails with ReasonAbandoned, and what was created is
// removed as far as the grace time allows. It implements controller-runtime's manager.Runnable and may be called once.
func (t *Taker) Start(ctx context.Context) error {
	t.mu.Lock()
	again := t.started
	t.started = true
	t.mu.Unlock()
	if again {
		return errors.New("the snapshot taker was started twice")
	}
	newLoop(t).run(ctx)
	return nil
}

// Take asks for snapshots and returns their futures, in the order of the requests. It never blocks and works before Start.
// When ctx ends, those that are undecided fail with ReasonAbandoned and what was created for them is removed; so ctx must
// live until they are decided.
func (t *Taker) Take(ctx context.Context, requests ...Request) []*Snapshot {
	now := t.opts.Clock.Now()
	snaps := make([]*Snapshot, len(requests))
	entries := make([]*entry, len(requests))
	for i, r := range requests {
		snaps[i] = newSnapshot(r)
		snaps[i].outcome.Queued = now
		entries[i] = newEntry(snaps[i])
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.stopped {
		for _, s := range snaps {
			s.abandonUnstarted(now)
		}
		return snaps
	}
	t.inbox.put(func(l *loop) { l.admit(ctx, entries) })
	return snaps
}

// AwaitReadiness returns when a snapshot that is asked for could be created at once: the tracker has filled its cache, which takes
// seconds in a cluster with many old snapshots, or can't do so for the time being. It is meant for before a pod is frozen, and
// needs no error: a Take after it tells what is wrong.
func (t *Taker) AwaitReadiness(ctx context.Context) {
	timer := t.opts.Clock.NewTimer(syncGrace)
	defer timer.Stop()
	for !t.tracker.hasSynced() {
		news := t.tracker.watchNews()
		if _, trouble := t.tracker.state(); trouble != nil || t.tracker.hasSynced() {
			return
		}
		select {
		case <-news:
		case <-timer.C():
			return
		case <-ctx.Done():
			return
		}
	}
}

// stop makes later calls of Take fail at once; what was asked before is in the inbox.
func (t *Taker) stop() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.stopped = true
}

// Metrics are the Taker's metrics, to be registered by the caller.
func (t *Taker) Metrics() *Metrics { return t.opts.Metrics }

// Remover is what the Taker removes failed snapshots with.
func (t *Taker) Remover() *Remover { return t.opts.Remover }

// Remove is Remover.Remove.
func (t *Taker) Remove(ctx context.Context, refs ...Ref) error {
	return t.opts.Remover.Remove(ctx, refs...)
}

// Settle is Remover.Settle.
func (t *Taker) Settle(ctx context.Context, refs ...Ref) []Leftover {
	return t.opts.Remover.Settle(ctx, refs...)
}
