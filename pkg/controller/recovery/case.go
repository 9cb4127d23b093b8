// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package recovery

import (
	"context"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/velero-clipper/clipper/pkg/snapshot"
)

// Reasons of events.
const (
	eventRecovered = "BackupRecovered"
	eventRetried   = "BackupRetried"
	eventNotThawed = "PodNotThawed"
	eventFailed    = "RecoveryIncomplete"
)

// outcome is what was done about a case.
type outcome struct {
	thawed, needless, failed, owed, deferred []podResult
	unreadable                               []error

	snapshots int
	left      []snapshot.Leftover
	removeErr error
}

// podResult is a pod and what there is to say about its thaw.
type podResult struct{ pod, note string }

// isComplete says whether nothing is left to be done.
func (o *outcome) isComplete() bool {
	return len(o.owed) == 0 && len(o.deferred) == 0 && len(o.unreadable) == 0 && len(o.left) == 0 && o.removeErr == nil
}

// recover takes a case through its steps.
func (r *Recovery) recover(ctx context.Context, c *aCase) {
	o := new(outcome)
	if !r.refresh(ctx, c) {
		return
	}
	if c.unended() {
		c.log.Warnf("The server %s died while the backup was in progress; recovering", c.server)
	}
	if c.record != nil {
		r.thawAll(ctx, c, o)
	}
	if ctx.Err() != nil {
		return // the next start goes on from here
	}
	if c.unended() {
		if !r.end(ctx, c, o) {
			return
		}
	} else if c.record != nil && (len(o.thawed) > 0 || len(o.failed) > 0) {
		c.log.Warnf("After the backup: %s", o.pods())
	}
	r.closeRecord(ctx, c, o)
}

// end removes the snapshots of a backup that is in progress, and gives it its end. It returns false when that couldn't be written, or
// when it isn't for us to write.
func (r *Recovery) end(ctx context.Context, c *aCase, o *outcome) bool {
	if !r.refresh(ctx, c) { // thaws take their time
		return false
	}
	if !c.unended() {
		return true
	}
	if !r.claim(ctx, c) {
		return false
	}
	if r.deps.Snapshots != nil {
		removing, cancel := context.WithTimeout(ctx, removeLimit)
		o.snapshots, o.left, o.removeErr = r.deps.Snapshots.RemoveOwned(removing, c.uid)
		cancel()
	}
	if ctx.Err() != nil {
		return false
	}
	if err := r.mark(ctx, c, o); err != nil {
		c.log.WithError(err).Error("The backup whose server died can't be given its end; that is tried again")
		return false
	}
	return true
}

// claim takes a Backup over from its dead server. Should that live all the same, and come to the end of its run at this moment, it sees
// that its backup isn't its own any more: one whose snapshots are removed must not look complete.
func (r *Recovery) claim(ctx context.Context, c *aCase) bool {
	before := c.backup.DeepCopy()
	metav1.SetMetaDataAnnotation(&c.backup.ObjectMeta, AnnRecoverer, string(r.deps.Self))
	ctx, cancel := context.WithTimeout(ctx, oneTry)
	defer cancel()
	err := r.deps.Client.Patch(ctx, c.backup, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if err == nil {
		return true
	}
	// One that can't be written for another reason must not keep the server from starting.
	if c.postponed = apierrors.IsConflict(err) || apierrors.IsNotFound(err); !c.postponed {
		c.log.WithError(err).Error("The backup whose server died can't be taken over; that is tried again while the server runs")
	}
	return false
}

// refresh reads a Backup that was in progress from the API server: what was listed may be old, and its server may have brought it to
// its end before it went. It returns false when the case must be left alone: another server runs the backup by now, or that isn't known.
func (r *Recovery) refresh(ctx context.Context, c *aCase) bool {
	if !c.unended() {
		return true
	}
	live := new(velerov1.Backup)
	err := retry.OnError(retry.DefaultBackoff, func(err error) bool { return ctx.Err() == nil && client.IgnoreNotFound(err) != nil }, func() error {
		ctx, cancel := context.WithTimeout(ctx, oneTry)
		defer cancel()
		return r.deps.Client.Get(ctx, client.ObjectKeyFromObject(c.backup), live)
	})
	switch {
	case apierrors.IsNotFound(err), err == nil && live.UID != c.uid:
		c.backup = nil
		return true
	case err != nil:
		c.log.WithError(err).Error("The backup whose server died can't be read; it is recovered later")
		return false
	case live.Status.Phase == velerov1.BackupPhaseInProgress && ServerOf(live) != ServerOf(c.backup):
		c.log.Infof("The backup is run by server %s by now; it is left alone", ServerOf(live))
		c.postponed = true
		return false
	}
	c.backup = live
	return true
}

// closeRecord deletes the record, or says why it stays.
func (r *Recovery) closeRecord(ctx context.Context, c *aCase, o *outcome) {
	if c.record == nil {
		return
	}
	for _, p := range o.owed {
		c.log.WithField("pod", p.pod).Errorf("The pod is still frozen, and can't be thawed: %s. That is tried again", p.note)
		r.event(c, corev1.EventTypeWarning, eventNotThawed, "pod "+p.pod+" is still frozen: "+p.note)
	}
	for _, err := range o.unreadable {
		c.log.WithError(err).Error("The record of a frozen pod can't be understood. Thaw the pod by hand, and remove the entry")
		r.event(c, corev1.EventTypeWarning, eventFailed, "the record of a frozen pod can't be understood: "+err.Error())
	}
	if !c.record.IsSettled() {
		return
	}
	if err := c.record.Delete(ctx); err != nil {
		c.log.WithError(err).Warn("All pods of the backup are thawed, but the record of that can't be removed; that is tried again")
	}
}

// event tells about a case, on its Backup if that is there.
func (r *Recovery) event(c *aCase, kind, reason, message string) {
	if r.deps.Events == nil {
		return
	}
	var about runtime.Object = &corev1.ObjectReference{Kind: "Namespace", Name: r.deps.Namespace, Namespace: r.deps.Namespace, APIVersion: "v1"}
	if c.backup != nil {
		about = &corev1.ObjectReference{
			Kind: "Backup", APIVersion: "velero.io/v1", Namespace: c.backup.Namespace, Name: c.backup.Name, UID: c.backup.UID,
		}
	}
	r.deps.Events.Event(about, kind, reason, message)
}
