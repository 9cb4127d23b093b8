// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"cmp"
	"context"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"github.com/sirupsen/logrus"
)

// This file is the part of the loop that decides what becomes of an entry.

// rejudgeInterval is how often the judge is asked again about a standing error, whose text external-snapshotter doesn't
// write again: rules about its age would never be met otherwise.
const rejudgeInterval = 5 * time.Second

// lostGrace is how long after a deletion the content is given to show a handle.
const lostGrace = 2 * time.Second

// created takes in the answer to a try to create.
func (l *loop) created(e *entry, answer creation) {
	e.calling = false
	if answer.foreign || answer.refused && e.tries == 1 {
		e.leaves = false
	}
	if answer.vs != nil {
		e.uid = answer.vs.UID
	}
	switch {
	case e.state == over: // it failed while the request was under way
		l.remove(e)
	case answer.vs != nil:
		l.exists(e, answer.vs)
	case answer.refused:
		l.fail(e, cmp.Or(answer.reason, ReasonCreateRefused), e.subject()+": "+answer.err.Error())
	default:
		e.lastCreateError = answer.err.Error()
		l.opts.Logger.WithError(answer.err).WithFields(e.fields()).Debug("Creating a VolumeSnapshot failed, trying again")
		l.setState(e, waiting)
		l.agenda.add(l.now().Add(retryDelay(e.tries, answer.err)), func() {
			if e.state == waiting {
				l.setState(e, due)
			}
		})
	}
}

func (l *loop) exists(e *entry, vs *snapshotv1.VolumeSnapshot) {
	e.created = l.now()
	e.driver.made(e.created)
	l.setState(e, cutting)
	e.snap.update(func(o *Outcome) { o.VolumeSnapshot, o.Created = vs, e.created })
	l.expect(e, e.created)
	l.observe(EventCreated, e, "")
	l.examine(e)
}

// expect sets the deadline, Timeout after from.
func (l *loop) expect(e *entry, from time.Time) {
	e.deadline = from.Add(e.request.Timeout)
	l.agenda.add(e.deadline, func() {
		if e.state.undecided() && !l.now().Before(e.deadline) {
			l.overdue(e)
		}
	})
}

// examine looks at the newest state of an entry's objects.
func (l *loop) examine(e *entry) {
	if e.state != cutting && e.state != readying {
		return
	}
	vs, content := l.tracker.look(e.key, e.uid)
	e.snap.update(func(o *Outcome) {
		if vs != nil {
			o.VolumeSnapshot = vs
		}
		if content != nil {
			o.Content = content
		}
	})
	if content != nil {
		e.contentUID = content.UID
	}
	lost := l.lost(e, vs, content)
	if e.state == cutting && isCut(content, lost) {
		l.cut(e)
	}
	switch {
	case e.state == readying && isReady(vs, content):
		l.ready(e)
	case e.state == readying && lost != "":
		l.lose(e, content, lost)
	case e.state == cutting && lost != "":
		l.deleted(e, content, lost)
	default:
		l.consider(e)
	}
}

// isCut: the handle is there and will stay. A content that is kept when its VolumeSnapshot goes is as good as before.
func isCut(content *snapshotv1.VolumeSnapshotContent, lost string) bool {
	return handleOf(content) != "" && content.DeletionTimestamp == nil &&
		(lost == "" || content.Spec.DeletionPolicy == snapshotv1.VolumeSnapshotContentRetain)
}

// deleted ends an entry whose objects were deleted, unless its content may be kept with a handle: the two informers are
// independent, so what was written to the content before the deletion may be seen a moment after it.
func (l *loop) deleted(e *entry, content *snapshotv1.VolumeSnapshotContent, lost string) {
	now := l.now()
	if e.lostSince.IsZero() {
		e.lostSince = now
		l.agenda.add(now.Add(lostGrace), func() { l.examine(e) })
	}
	mayBeKept := content == nil || content.Spec.DeletionPolicy == snapshotv1.VolumeSnapshotContentRetain && content.DeletionTimestamp == nil
	if mayBeKept && now.Before(e.lostSince.Add(lostGrace)) {
		return
	}
	l.fail(e, ReasonDeleted, e.deletedBySomeone(lost))
}

// lost names the object that was deleted, or is being deleted, under us; empty when none was.
func (l *loop) lost(e *entry, vs *snapshotv1.VolumeSnapshot, content *snapshotv1.VolumeSnapshotContent) string {
	switch {
	case l.tracker.sawDeletion(e.sub, e.uid), vs != nil && vs.DeletionTimestamp != nil:
		return "VolumeSnapshot " + e.key.String()
	case content != nil && content.DeletionTimestamp != nil:
		return "VolumeSnapshotContent " + content.Name
	case content == nil && l.tracker.sawDeletion(e.sub, e.contentUID):
		return "the VolumeSnapshotContent of " + e.key.String()
	}
	return ""
}

func (l *loop) cut(e *entry) {
	now := l.now()
	took := now.Sub(e.created)
	e.driver.progressed(now)
	e.driver.pace.cut(now, took, e.refused)
	l.setState(e, readying)
	e.fault, e.kind = Fault{}, ""
	l.opts.Metrics.cutSeconds.WithLabelValues(e.driver.name, resultCut).Observe(took.Seconds())
	e.snap.update(func(o *Outcome) { o.Phase, o.Message, o.Decided = Cut, "", now })
	l.decided(e)
	l.observe(EventCut, e, "")
}

// ready ends an entry that can be used.
func (l *loop) ready(e *entry) {
	l.unfollow(e)
	l.opts.Metrics.readySeconds.WithLabelValues(e.driver.name, resultReady).Observe(l.now().Sub(e.created).Seconds())
	close(e.snap.ready)
	l.observe(EventReady, e, "")
}

// lose ends an entry that is cut and whose objects somebody deletes. A content that is kept keeps the physical snapshot.
func (l *loop) lose(e *entry, content *snapshotv1.VolumeSnapshotContent, lost string) {
	if !isCut(content, lost) {
		message := e.lostAfterCut(lost)
		e.snap.update(func(o *Outcome) { o.Lost = message })
		l.opts.Logger.WithFields(e.fields()).Warn(message)
	}
	l.unfollow(e)
}

// unfollow ends an entry that is cut.
func (l *loop) unfollow(e *entry) {
	l.setState(e, over)
	l.tracker.unsubscribe(e.sub)
}

// consider asks for a verdict on the error that stands on an entry, if one does.
func (l *loop) consider(e *entry) {
	fault := l.tracker.historyOf(e.key).fault
	fresh := fault.Text != e.fault.Text
	e.fault = fault
	if fault.Text == "" || fault.Stale {
		return
	}
	if kind := kindOf(fault.Text); fresh && kind != e.kind {
		e.kind = kind
		l.observe(EventError, e, fault.Text)
	}
	if fresh && e.state == cutting {
		e.driver.lastError = fault.Text
		e.snap.update(func(o *Outcome) { o.Message = fault.Text })
	}
	judgement := l.opts.Judge.Judge(e.observation(l.now()))
	if fresh || judgement.Verdict != e.verdict {
		l.opts.Metrics.verdicts.WithLabelValues(e.driver.name, judgement.Verdict.String()).Inc()
		l.logVerdict(e, judgement)
	}
	e.verdict = judgement.Verdict
	switch {
	case judgement.Verdict != Terminal:
		if judgement.Verdict == Throttled && fresh {
			l.throttled(e)
		}
		l.rejudge(e)
	case e.state == cutting:
		l.fail(e, ReasonTerminalError, e.terminal(judgement))
	default:
		l.unusable(e, e.terminal(judgement))
	}
}

// unusable ends the following of a snapshot that is cut and will never be ready. It is left to its owner.
func (l *loop) unusable(e *entry, message string) {
	l.unfollow(e)
	l.opts.Metrics.readySeconds.WithLabelValues(e.driver.name, resultFailed).Observe(l.now().Sub(e.created).Seconds())
	l.opts.Logger.WithFields(e.fields()).Warn(message)
}

// throttled slows the driver of an entry down.
func (l *loop) throttled(e *entry) {
	d := e.driver
	before := e.refused
	e.refused = true
	if d.pace.refuse(l.now(), d.inFlight, before) {
		l.opts.Logger.WithField("driver", d.name).Warnf("CSI driver %s throttles: snapshots are started at %.1f a second for now, with at most %d in flight",
			d.name, d.pace.rate, d.pace.current())
	}
	l.pending = true
}

// logVerdict tells of each kind of error once per snapshot; the tries after it are for debugging.
func (l *loop) logVerdict(e *entry, j Judgement) {
	log := l.opts.Logger.WithFields(e.fields()).WithFields(logrus.Fields{"verdict": j.Verdict.String(), "rule": j.Rule})
	if e.fault.Attempts > 1 && j.Verdict == e.verdict {
		log.Debugf("The snapshot shows an error again: %s", e.fault.Text)
		return
	}
	log.Infof("The snapshot shows an error: %s", e.fault.Text)
}

func (l *loop) rejudge(e *entry) {
	if e.rejudging {
		return
	}
	e.rejudging = true
	l.agenda.add(l.now().Add(rejudgeInterval), func() {
		e.rejudging = false
		if e.state == cutting || e.state == readying {
			l.consider(e)
		}
	})
}

// fail decides against an entry and has what exists of it removed.
func (l *loop) fail(e *entry, reason Reason, message string) {
	now := l.now()
	l.setState(e, over)
	l.tracker.unsubscribe(e.sub)
	l.opts.Metrics.failed.WithLabelValues(e.driver.name, string(reason)).Inc()
	if !e.created.IsZero() {
		l.opts.Metrics.cutSeconds.WithLabelValues(e.driver.name, resultFailed).Observe(now.Sub(e.created).Seconds())
	}
	e.snap.update(func(o *Outcome) { o.Phase, o.Reason, o.Message, o.Decided = Failed, reason, message, now })
	if e.leaves {
		// Before the future is decided, so that a Settle that follows waits for this removal.
		e.unpend = l.opts.Remover.pend(e.ref())
	}
	l.decided(e)
	close(e.snap.ready)
	l.opts.Logger.WithFields(e.fields()).WithField("reason", reason).Warn(message)
	l.observe(EventFailed, e, message)
	if !e.calling { // else its answer must come first
		l.remove(e)
	}
	if e.op != nil {
		e.op.lose()
	}
}

func (l *loop) decided(e *entry) {
	close(e.snap.decided)
	e.group.open--
	if e.group.open == 0 {
		e.group.release()
	}
}

// remove queues the removal of what a failed entry leaves.
func (l *loop) remove(e *entry) {
	if !e.leaves {
		l.finishRemoval(e, nil)
		return
	}
	l.removals = append(l.removals, e)
	l.startRemovals()
}

func (l *loop) startRemovals() {
	for l.removing < maxRemovers && len(l.removals) > 0 && l.work.Err() == nil {
		e := l.removals[0]
		l.removals = l.removals[1:]
		l.removing++
		ref := e.ref()
		l.group.Go(func() error {
			ctx, cancel := context.WithTimeout(l.work, removalTimeout)
			defer cancel()
			err := l.opts.Remover.Remove(ctx, ref)
			l.inbox.put(func(l *loop) {
				l.removing--
				l.finishRemoval(e, err)
				l.startRemovals()
			})
			return nil
		})
	}
}

func (l *loop) finishRemoval(e *entry, err error) {
	if e.unpend != nil {
		e.unpend()
	}
	if !e.leaves {
		return
	}
	message := ""
	if err != nil {
		message = err.Error()
		l.opts.Logger.WithError(err).WithFields(e.fields()).Error("A failed snapshot could not be removed")
	}
	l.observe(EventRemoved, e, message)
	l.opts.Remover.toFollow.put(e.ref())
}

func (e *entry) fields() logrus.Fields {
	return logrus.Fields{
		"backup": e.request.Owner.Name, "namespace": e.request.Namespace, "persistentVolumeClaim": e.request.PVC,
		"volumeSnapshot": e.key.Name, "driver": e.request.Driver,
	}
}

// observation is what the judge is asked.
func (e *entry) observation(now time.Time) Observation {
	phase := PhaseCutting
	if e.state == readying {
		phase = PhaseReadying
	}
	return Observation{
		Driver: e.request.Driver, Phase: phase, StorageClass: e.request.StorageClass, Namespace: e.request.Namespace, PVC: e.request.PVC,
	}.of(e.fault, now)
}
