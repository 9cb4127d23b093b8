// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import "context"

// This file is the part of the loop that has groups taken.

// groupOp is one try to take a group, for those members that have started. Apart from its context only the loop touches it.
type groupOp struct {
	key     groupKey
	members []*entry
	// open counts the members that haven't failed meanwhile.
	open   int
	ctx    context.Context
	cancel context.CancelFunc
}

// lose notes that a member has failed. For nobody the group isn't taken any further.
func (op *groupOp) lose() {
	op.open--
	if op.open == 0 {
		op.cancel()
	}
}

// joinGroup puts an entry to the other members that start in the same round. Members that start later, for lack of room, find the
// VolumeGroupSnapshot that was made for the first ones.
func (l *loop) joinGroup(e *entry) {
	l.setState(e, creating)
	e.calling = true
	e.tries++
	key := keyOfGroup(e.request)
	for _, op := range l.gathering {
		if op.key == key {
			e.op = op
		}
	}
	if e.op == nil {
		e.op = &groupOp{key: key}
		e.op.ctx, e.op.cancel = context.WithCancel(l.work)
		l.gathering = append(l.gathering, e.op)
	}
	e.op.members = append(e.op.members, e)
	e.op.open++
}

// takeGroups begins to take what has gathered.
func (l *loop) takeGroups() {
	for _, op := range l.gathering {
		l.grouping++
		requests := make([]Request, len(op.members))
		for i, e := range op.members {
			requests[i] = e.request
		}
		tell := func(text string) {
			l.inbox.put(func(*loop) {
				for _, e := range op.members {
					e.lastCreateError = text
				}
			})
		}
		l.group.Go(func() error {
			defer op.cancel()
			answers, cleanUp := l.groups.take(op.ctx, requests, tell)
			l.inbox.put(func(l *loop) {
				for i, e := range op.members {
					l.createdInGroup(e, answers[i])
				}
			})
			cleanUp()
			l.inbox.put(func(l *loop) { l.grouping--; l.pending = true })
			return nil
		})
	}
	l.gathering = nil
}

// createdInGroup takes in that a member's VolumeSnapshot is there. Its name was given by the snapshot-controller.
func (l *loop) createdInGroup(e *entry, answer creation) {
	e.op = nil
	if answer.vs != nil {
		l.tracker.unsubscribe(e.sub)
		e.key.Name = answer.vs.Name
		if e.state != over {
			l.subscribe(e)
		}
	}
	l.created(e, answer)
}
