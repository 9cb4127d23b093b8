// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// state is where an entry stands; the loop alone changes it, through setState.
type state int

const (
	// queued: not started.
	queued state = iota
	// due: started, its next try to create may go out.
	due
	// creating: a request is under way.
	creating
	// waiting: a try failed, the next one is on the agenda.
	waiting
	// cutting: created, not cut.
	cutting
	// readying: cut, followed until it is ready.
	readying
	// over: failed, ready, or not followed any more.
	over
)

func (s state) undecided() bool { return s <= cutting }
func (s state) inFlight() bool  { return s > queued && s <= cutting }

// entry is the loop's side of a Snapshot. Apart from dirty, only the loop touches it.
type entry struct {
	snap    *Snapshot
	request Request
	key     types.NamespacedName
	group   *group
	driver  *driver
	state   state

	sub *subscription
	// op takes the entry's group; nil for one that is taken alone, and when the group is there.
	op *groupOp
	// dirty: a look at the tracker's cache is already in the inbox.
	dirty atomic.Bool

	// asked is when the request was taken in.
	asked time.Time
	// uid is known once the VolumeSnapshot is created, contentUID once its content was seen.
	uid, contentUID types.UID
	created         time.Time
	// deadline counts from the first try to create, and anew from the creation.
	deadline time.Time
	tries    int
	// calling: a request to create is under way.
	calling         bool
	lastCreateError string
	// leaves: something of ours may exist in the API.
	leaves bool
	// unpend takes the removal off the Remover's list of what is still to be asked for.
	unpend func()

	// lostSince is when a deletion was first seen.
	lostSince time.Time

	// fault is the error that was last looked at, kind its text without what changes from try to try, and verdict what
	// was last said of it.
	fault     Fault
	kind      string
	verdict   Verdict
	rejudging bool
	// refused: the driver throttled this one.
	refused bool
}

// group is what one call of Take brought in.
type group struct {
	open int
	// release ends the watch on the caller's context.
	release func() bool
}

func newEntry(s *Snapshot) *entry {
	r := s.request
	return &entry{
		snap: s, request: r, asked: s.outcome.Queued,
		key: types.NamespacedName{Namespace: r.Namespace, Name: Name(r.Owner.UID, r.PVCUID)},
	}
}

func (e *entry) ref() Ref {
	ref := Ref{Namespace: e.key.Namespace, Name: e.key.Name, UID: e.uid}
	if content := e.snap.Outcome().Content; content != nil {
		ref.ContentName = content.Name
	}
	return ref
}

// hopeless is when the entry is given up unless its driver cuts something before.
func (e *entry) hopeless() time.Time {
	since := e.asked
	if e.driver.since.After(since) {
		since = e.driver.since
	}
	return since.Add(e.request.Timeout)
}

func (e *entry) candidate() candidate {
	return candidate{
		priority: e.request.Priority, owner: e.request.Owner.UID, ownerLimit: e.request.Owner.Limit,
		driver: e.request.Driver, inFlight: e.state.inFlight(),
	}
}

// abandonUnstarted decides a snapshot that no loop will take in any more.
func (s *Snapshot) abandonUnstarted(now time.Time) {
	s.update(func(o *Outcome) {
		o.Phase, o.Reason, o.Decided = Failed, ReasonAbandoned, now
		o.Message = newEntry(s).abandoned(errStopped)
	})
	close(s.decided)
	close(s.ready)
}
