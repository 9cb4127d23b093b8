// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package recovery

import (
	"context"
	"fmt"
	"time"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/velero-clipper/clipper/pkg/controller/instance"
	"github.com/velero-clipper/clipper/pkg/hook/freezerecord"
)

// This file is about a thaw that is still owed to a pod, and a later backup that has frozen the same pod meanwhile: a thaw now would
// spoil its snapshots. The one that is owed waits until the later one is over, and is run then: the later backup may have other hooks, or
// may not have come to its own.

// laterFreeze is a freeze by a backup that is in progress and whose server isn't known to be dead.
type laterFreeze struct {
	backup string
	since  time.Time
}

// laterFreezeOf looks for another backup that has the pod frozen now. It is asked for right before the pod is thawed.
func (r *Recovery) laterFreezeOf(ctx context.Context, c *aCase, pod *freezerecord.Pod) (*laterFreeze, error) {
	records, err := r.deps.Records.List(ctx)
	if err != nil {
		return nil, fmt.Errorf("looking whether another backup has the pod frozen by now: %w", err)
	}
	for _, record := range records {
		entry := entryOf(record, pod)
		if record.UID == c.uid || entry == nil {
			continue
		}
		inHand, doubtful, err := r.isInHand(ctx, record)
		if err != nil {
			return nil, err
		}
		// Of two records whose servers nothing is known of, the earlier one waits for the later one, and not each for the other.
		if inHand && (!doubtful || entry.FrozenSince.After(pod.FrozenSince.Time)) {
			return &laterFreeze{backup: record.Backup, since: entry.FrozenSince.Time}, nil
		}
	}
	return nil, nil
}

// entryOf is what a record has of a pod that has still to be thawed; nil when it has nothing. A pod of the same name that was made later
// is another one.
func entryOf(record *freezerecord.Stored, pod *freezerecord.Pod) *freezerecord.Pod {
	for _, other := range record.Pods {
		if other.ThawedAt == nil && other.UID == pod.UID && other.String() == pod.String() {
			return other
		}
	}
	return nil
}

// isInHand says whether the backup of a record is in progress, with a server that lives, or may live, and sees to it; doubtful, that
// this can't be known, ever. What is left of a backup that is over is a debt, whoever lives: two of them must not wait for each other.
func (r *Recovery) isInHand(ctx context.Context, record *freezerecord.Stored) (inHand, doubtful bool, err error) {
	server := instance.ID(record.Server)
	switch {
	case r.deps.Records.IsOpen(record.UID):
		return true, false, nil
	case server == r.deps.Self, server.IsNamesake(r.deps.Self): // of a run that is over
		return false, false, nil
	}
	b := new(velerov1.Backup)
	reading, cancel := context.WithTimeout(ctx, oneTry)
	defer cancel()
	err = r.deps.Client.Get(reading, client.ObjectKey{Namespace: r.deps.Namespace, Name: record.Backup}, b)
	switch {
	case apierrors.IsNotFound(err), err == nil && b.UID != record.UID, err == nil && isOver(b):
		return false, false, nil
	case err != nil:
		return false, false, fmt.Errorf("looking whether backup %s, which has the pod frozen, is over: %w", record.Backup, err)
	}
	state, lookErr := r.deps.Instances.Look(ctx, server)
	return lookErr != nil || state != instance.Dead, apierrors.IsForbidden(lookErr), nil
}

// isOver says whether nobody runs a backup any more. One that reads Failed is still run when it names its server.
func isOver(b *velerov1.Backup) bool {
	switch b.Status.Phase {
	case "", velerov1.BackupPhaseNew, velerov1.BackupPhaseQueued, velerov1.BackupPhaseReadyToStart, velerov1.BackupPhaseInProgress:
		return false
	default:
		return ServerOf(b) == ""
	}
}

// thawUnlessFrozen thaws a pod, unless another backup has it frozen.
func (r *Recovery) thawUnlessFrozen(ctx context.Context, c *aCase, pod *freezerecord.Pod) (thawKind, string) {
	if pod.ThawedAt != nil { // by a recovery that was killed
		return kindOf(pod.Outcome), pod.Outcome
	}
	release := r.deps.Records.Hold(ctx, pod.Entry)
	if release == nil {
		return deferred, "another backup has it frozen now"
	}
	defer release()
	later, err := r.laterFreezeOf(ctx, c, pod)
	if err != nil { // it isn't known whether it may be thawed
		return owed, err.Error()
	}
	if later != nil {
		note := fmt.Sprintf("backup %s has had it frozen since %s", later.backup, later.since.UTC().Format(time.TimeOnly))
		c.log.WithField("pod", pod.String()).Infof("The pod is owed a thaw, which waits: %s", note)
		return deferred, note
	}
	return r.thaw(ctx, c, pod)
}
