// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import "time"

// This file is the part of the loop that gives up drivers which make no progress: N volumes that hang cost one timeout, not N.

// overdue ends an entry whose time is up, and with it everything asked of a driver that has made no progress.
func (l *loop) overdue(e *entry) {
	stalled := l.stalled(e.driver)
	l.fail(e, ReasonTimedOut, e.timedOut())
	l.giveUp(stalled)
}

// stalled are the entries of a driver that has had something in flight and cut nothing for as long as their timeout, and that
// have waited for it that long themselves: what was asked for a moment ago has a chance of its own.
func (l *loop) stalled(d *driver) []*entry {
	if d.inFlight == 0 {
		return nil
	}
	var found []*entry
	for _, e := range l.entries {
		if e.driver == d && e.state.undecided() && !l.now().Before(e.hopeless()) {
			found = append(found, e)
		}
	}
	return found
}

func (l *loop) giveUp(stalled []*entry) {
	for _, e := range stalled {
		switch {
		case !e.state.undecided():
		case e.state.inFlight() && !l.now().Before(e.deadline):
			l.fail(e, ReasonTimedOut, e.timedOut())
		default:
			l.fail(e, ReasonNoProgress, e.noProgress(e.driver))
		}
	}
}

// watchProgress looks at a driver at the given time, and again for as long as it has something in flight.
func (l *loop) watchProgress(d *driver, at time.Time) {
	if d.watched {
		return
	}
	d.watched = true
	l.agenda.add(at, func() {
		d.watched = false
		l.giveUp(l.stalled(d))
		if next := l.nextLook(d); !next.IsZero() {
			l.watchProgress(d, next)
		}
	})
}

// nextLook is the earliest time at which an entry of the driver could be given up; zero when nothing is in flight.
func (l *loop) nextLook(d *driver) time.Time {
	var earliest time.Time
	if d.inFlight == 0 {
		return earliest
	}
	for _, e := range l.entries {
		at := e.hopeless()
		if e.driver == d && e.state.undecided() && (earliest.IsZero() || at.Before(earliest)) {
			earliest = at
		}
	}
	return earliest
}
