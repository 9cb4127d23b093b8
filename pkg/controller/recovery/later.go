// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package recovery

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"github.com/velero-clipper/clipper/pkg/controller/instance"
	"github.com/velero-clipper/clipper/pkg/hook/freezerecord"
)

// This file is about a thaw that is still owed to a pod, and a later backup that has frozen the same pod meanwhile. The later one thaws
// it when its snapshots are cut; a thaw before that would spoil them. After that the one that was owed is needless.

// laterFreeze is a freeze by a backup whose server isn't known to be dead.
type laterFreeze struct {
	backup string
	uid    types.UID
	since  time.Time
	// doubtful says that nothing can be known of its server, for lack of a right.
	doubtful bool
}

// freezes is what the records say of pods that are frozen.
type freezes struct {
	// now are the pods that backups have frozen which are in good hands.
	now map[string]laterFreeze
	// recorded are those that have still to be thawed, by record and pod.
	recorded map[string]bool
}

// podOf tells a pod from another one of its name.
func podOf(e freezerecord.Entry) string { return e.String() + "/" + string(e.UID) }

// placeOf tells the entry of a pod in a record.
func placeOf(record types.UID, e freezerecord.Entry) string { return string(record) + "/" + podOf(e) }

// frozenNow reads the records of all backups but one. It is asked for right before pods are thawed.
func (r *Recovery) frozenNow(ctx context.Context, but types.UID) (freezes, error) {
	found := freezes{now: map[string]laterFreeze{}, recorded: map[string]bool{}}
	records, err := r.deps.Records.List(ctx)
	if err != nil {
		return found, fmt.Errorf("looking for pods that another backup has frozen by now: %w", err)
	}
	for _, record := range records {
		if record.UID == but || record.IsSettled() {
			continue
		}
		inHand, doubtful := r.isInHand(ctx, record)
		for _, pod := range record.Pods {
			if pod.ThawedAt != nil {
				continue
			}
			found.recorded[placeOf(record.UID, pod.Entry)] = true
			if inHand {
				found.now[podOf(pod.Entry)] = laterFreeze{
					backup: record.Backup, uid: record.UID, since: pod.FrozenSince.Time, doubtful: doubtful,
				}
			}
		}
	}
	return found, nil
}

// isInHand says whether the server that made a record lives, or may live, and sees to it; doubtful, that this can't be known, ever.
func (r *Recovery) isInHand(ctx context.Context, record *freezerecord.Stored) (inHand, doubtful bool) {
	server := instance.ID(record.Server)
	switch {
	case r.deps.Records.IsOpen(record.UID):
		return true, false
	case server == r.deps.Self, server.IsNamesake(r.deps.Self): // of a run that is over
		return false, false
	}
	state, err := r.deps.Instances.Look(ctx, server)
	return err != nil || state != instance.Dead, apierrors.IsForbidden(err)
}

// thawUnlessFrozen thaws a pod, unless another backup has it frozen: that one thaws it.
func (r *Recovery) thawUnlessFrozen(ctx context.Context, c *aCase, pod *freezerecord.Pod, frozen freezes) (thawKind, string) {
	if pod.ThawedAt != nil { // by a recovery that was killed
		return kindOf(pod.Outcome), pod.Outcome
	}
	place := placeOf(c.uid, pod.Entry)
	// Of two records whose servers nothing is known of, the earlier one waits for the later one, and not each for the other.
	if later, found := frozen.now[podOf(pod.Entry)]; found && (!later.doubtful || later.since.After(pod.FrozenSince.Time)) {
		note := fmt.Sprintf("backup %s has it frozen now, and thaws it", later.backup)
		if r.deferThaw(place, later.uid) {
			c.log.WithField("pod", pod.String()).Infof("The pod is owed a thaw, which waits: %s", note)
		}
		return deferred, note
	}
	if later, waited := r.wasDeferred(place); waited && !frozen.recorded[placeOf(later, pod.Entry)] {
		r.settle(ctx, c, pod, laterNote)
		return needless, laterNote
	}
	release := r.deps.Records.Hold(ctx, pod.Entry)
	if release == nil {
		return deferred, "another backup has it frozen now, and thaws it"
	}
	defer release()
	return r.thaw(ctx, c, pod)
}

// deferThaw notes that a thaw waits for the end of another freeze; true says that it didn't before.
func (r *Recovery) deferThaw(place string, later types.UID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	before := r.deferred[place]
	r.deferred[place] = later
	return before != later
}

// wasDeferred says whether a thaw has waited for the end of another freeze, and of which backup that was.
func (r *Recovery) wasDeferred(place string) (later types.UID, waited bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	later, waited = r.deferred[place]
	delete(r.deferred, place)
	return later, waited
}
