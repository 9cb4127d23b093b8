// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"github.com/sirupsen/logrus"
	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
)

// External-snapshotter's marks on a VolumeSnapshotContent.
const (
	// annBeingCreated: a CreateSnapshot call is under way, or its end is unknown. Nothing is deleted before it is off.
	annBeingCreated = "snapshot.storage.kubernetes.io/volumesnapshot-being-created"
	// annBeingDeleted: the VolumeSnapshot is to be deleted. The sidecar doesn't act on the deletion of a content whose
	// VolumeSnapshot is gone unless it is there.
	annBeingDeleted = "snapshot.storage.kubernetes.io/volumesnapshot-being-deleted"
	// annNudge is our own mark on a content that the sidecar had forgotten; its value is the time.
	annNudge = "velero.io/removal-nudged-at"
)

// Ref names a VolumeSnapshot to be removed, with its content and the physical snapshot.
type Ref struct {
	// Namespace and Name of the VolumeSnapshot; required.
	Namespace, Name string
	// UID of the VolumeSnapshot. With it, an object of the same name that was made later is left alone. Optional.
	UID types.UID
	// ContentName is its VolumeSnapshotContent, for when that can't be found from the VolumeSnapshot any more. Optional.
	ContentName string
}

func (r Ref) key() types.NamespacedName {
	return types.NamespacedName{Namespace: r.Namespace, Name: r.Name}
}

// RemoverOptions are the settings of a Remover.
type RemoverOptions struct {
	// Clock; the default is the real one.
	Clock clock.WithTicker
	// Logger; the default is logrus's standard logger.
	Logger logrus.FieldLogger
	// Groups reaches the API of VolumeGroupSnapshots; without it they are left when their last member is removed.
	Groups dynamic.Interface
}

// Remover removes snapshots: Remove asks for it, Settle follows it for as long as somebody waits, and what the Taker removes is
// followed to its end. It never takes finalizers off: an object
// that stays says that something is still there. All methods may be called from any goroutine.
type Remover struct {
	client  Client
	tracker *Tracker
	clock   clock.WithTicker
	log     logrus.FieldLogger
	groups  *groups

	// toFollow has refs whose removal was asked for and that nobody waits for.
	toFollow *mailbox[Ref]

	mu sync.Mutex
	// pending counts, by VolumeSnapshot, the removals that were announced and not asked for yet.
	pending map[types.NamespacedName]int
	// followed has what follow has in hand, so that asking twice costs nothing.
	followed map[followKey]bool
}

// NewRemover makes a Remover.
func NewRemover(client Client, tracker *Tracker, opts RemoverOptions) *Remover {
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	if opts.Logger == nil {
		opts.Logger = logrus.StandardLogger()
	}
	r := &Remover{
		client: client, tracker: tracker, clock: opts.Clock, log: opts.Logger,
		toFollow: newMailbox[Ref](), pending: map[types.NamespacedName]int{}, followed: map[followKey]bool{},
	}
	r.groups = &groups{
		api: opts.Groups, client: client, tracker: tracker, clock: opts.Clock, log: opts.Logger, judge: PatientJudge, retry: r.retry,
	}
	return r
}

// LeaveGroup takes a VolumeSnapshot out of its group, if it is in one, so that it can be deleted by itself. It must be ready, or
// its deletion must have been asked for.
func (r *Remover) LeaveGroup(ctx context.Context, namespace, name string) error {
	return r.groups.leave(ctx, types.NamespacedName{Namespace: namespace, Name: name})
}

// pend announces a removal, so that Settle doesn't take the time before it for its end. The function returned says that
// it has been asked for; calling it twice is harmless. The removal is followed from now on: who has seen the objects go needn't ask
// the API whether they are gone.
func (r *Remover) pend(ref Ref) (done func()) {
	key := ref.key()
	if ref.UID != "" {
		defer r.toFollow.put(ref)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pending[key]++
	return sync.OnceFunc(func() {
		r.mu.Lock()
		r.pending[key]--
		if r.pending[key] == 0 {
			delete(r.pending, key)
		}
		r.mu.Unlock()
		r.tracker.wake(key, "")
	})
}

func (r *Remover) isPending(key types.NamespacedName) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.pending[key] > 0
}

// Remove asks for the removal of snapshots: it makes the content follow its VolumeSnapshot (deletion policy Delete), so
// that the physical snapshot goes too, and deletes the VolumeSnapshot; a content that was left alone is deleted itself.
// What is gone already is no error; transient API errors are retried until ctx ends. It returns when the API has taken
// the deletions in, which isn't yet when the objects are gone; the error joins those of all refs.
func (r *Remover) Remove(ctx context.Context, refs ...Ref) error {
	return errors.Join(r.removeAll(ctx, refs)...)
}

// removeAll is Remove with the error of each ref, nil for those that went well.
func (r *Remover) removeAll(ctx context.Context, refs []Ref) []error {
	errs := make([]error, len(refs))
	var group errgroup.Group
	group.SetLimit(maxRemovers)
	for i, ref := range refs {
		group.Go(func() error {
			if err := r.remove(ctx, ref); err != nil {
				errs[i] = fmt.Errorf("removing VolumeSnapshot %s: %w", ref.key(), err)
			}
			return nil
		})
	}
	_ = group.Wait() // the errors are in errs
	return errs
}

func (r *Remover) remove(ctx context.Context, ref Ref) error {
	content, err := r.findContent(ctx, ref)
	if err != nil {
		return err
	}
	if err := r.makeFollow(ctx, content); err != nil {
		return err
	}
	member := r.isGroupMember(ref)
	gone, err := r.deleteSnapshot(ctx, ref)
	if err == nil && !gone && member {
		err = r.groups.leave(ctx, ref.key())
	}
	if err != nil || !gone || content == nil {
		return err
	}
	return r.deleteOrphan(ctx, content)
}

// isGroupMember says whether a VolumeSnapshot was taken in a group. Without being taken out of it it would not go.
func (r *Remover) isGroupMember(ref Ref) bool {
	vs, _ := r.tracker.look(ref.key(), ref.UID)
	return vs != nil && groupOf(vs) != nil
}

// findContent finds the content in the cache, and asks the API only where the cache can't know.
func (r *Remover) findContent(ctx context.Context, ref Ref) (*snapshotv1.VolumeSnapshotContent, error) {
	vs, content := r.tracker.look(ref.key(), ref.UID)
	if content != nil {
		return content, nil
	}
	name := ref.ContentName
	if vs == nil && !r.tracker.hasSynced() {
		live, err := r.getSnapshot(ctx, ref)
		if err != nil {
			return nil, err
		}
		vs = live
	}
	if bound := boundContent(vs); bound != "" {
		name = bound
	}
	if name == "" {
		return nil, nil
	}
	return r.getContent(ctx, ref, name)
}

// makeFollow sets the deletion policy to Delete.
func (r *Remover) makeFollow(ctx context.Context, content *snapshotv1.VolumeSnapshotContent) error {
	if err := r.leaveGroup(ctx, content); err != nil {
		return err
	}
	if content == nil || content.Spec.DeletionPolicy == snapshotv1.VolumeSnapshotContentDelete {
		return nil
	}
	return r.patchContent(ctx, content, contentPatch{policy: snapshotv1.VolumeSnapshotContentDelete})
}

// leaveGroup makes a content one whose physical snapshot is deleted with it.
func (r *Remover) leaveGroup(ctx context.Context, content *snapshotv1.VolumeSnapshotContent) error {
	if content == nil || content.Status == nil || content.Status.VolumeGroupSnapshotHandle == nil {
		return nil
	}
	if err := r.retry(ctx, func(ctx context.Context) error { return r.groups.ungroup(ctx, content.Name) }); err != nil {
		return fmt.Errorf("taking VolumeSnapshotContent %s out of its group: %w", content.Name, err)
	}
	return nil
}

// deleteSnapshot reports gone when there is no such VolumeSnapshot, or only a later one of the same name.
func (r *Remover) deleteSnapshot(ctx context.Context, ref Ref) (gone bool, err error) {
	err = r.retry(ctx, func(ctx context.Context) error {
		err := r.client.VolumeSnapshots(ref.Namespace).Delete(ctx, ref.Name, deleteOptions(ref.UID))
		gone = isGone(err)
		if gone {
			return nil
		}
		return err
	})
	if err != nil {
		return false, fmt.Errorf("deleting it: %w", err)
	}
	return gone, nil
}

// isGone reads the answer to a DELETE that names a UID: a conflict says that the name now belongs to another object.
func isGone(err error) bool { return apierrors.IsNotFound(err) || apierrors.IsConflict(err) }

// deleteOrphan deletes a content whose VolumeSnapshot is gone. The mark comes first: without it the sidecar would let the
// object go, or keep it, and leave the physical snapshot.
func (r *Remover) deleteOrphan(ctx context.Context, content *snapshotv1.VolumeSnapshotContent) error {
	if err := r.leaveGroup(ctx, content); err != nil {
		return err
	}
	patch := contentPatch{policy: snapshotv1.VolumeSnapshotContentDelete, annotations: map[string]string{annBeingDeleted: "yes"}}
	if content.Annotations[annBeingDeleted] == "" || content.Spec.DeletionPolicy != snapshotv1.VolumeSnapshotContentDelete {
		if err := r.patchContent(ctx, content, patch); err != nil {
			return err
		}
	}
	if content.DeletionTimestamp != nil {
		return nil
	}
	err := r.retry(ctx, func(ctx context.Context) error {
		err := r.client.VolumeSnapshotContents().Delete(ctx, content.Name, deleteOptions(content.UID))
		if isGone(err) {
			return nil
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("deleting VolumeSnapshotContent %s: %w", content.Name, err)
	}
	return nil
}

// protect sets the deletion policy to Retain: the physical snapshot stays, whatever is deleted.
func (r *Remover) protect(ctx context.Context, content *snapshotv1.VolumeSnapshotContent) error {
	if content == nil || content.Spec.DeletionPolicy == snapshotv1.VolumeSnapshotContentRetain {
		return nil
	}
	return r.patchContent(ctx, content, contentPatch{policy: snapshotv1.VolumeSnapshotContentRetain})
}

// nudge makes the sidecar look at a content again: it does so for a change of annotations that aren't its own. The deletion
// policy stays as it is, so it is harmless whoever asked for the deletion.
func (r *Remover) nudge(ctx context.Context, content *snapshotv1.VolumeSnapshotContent) error {
	now := r.clock.Now().UTC().Format(time.RFC3339)
	return r.patchContent(ctx, content, contentPatch{annotations: map[string]string{annNudge: now}})
}

// contentPatch is a change of a VolumeSnapshotContent. Empty fields leave things as they are.
type contentPatch struct {
	policy      snapshotv1.DeletionPolicy
	annotations map[string]string
}

// patchContent changes a content; one that is gone is no error.
func (r *Remover) patchContent(ctx context.Context, content *snapshotv1.VolumeSnapshotContent, patch contentPatch) error {
	change := map[string]any{}
	doing := "annotating VolumeSnapshotContent " + content.Name
	if patch.policy != "" {
		change["spec"] = map[string]any{"deletionPolicy": patch.policy}
		doing = fmt.Sprintf("setting the deletion policy of VolumeSnapshotContent %s to %s", content.Name, patch.policy)
	}
	if len(patch.annotations) > 0 {
		change["metadata"] = map[string]any{"annotations": patch.annotations}
	}
	body, err := json.Marshal(change)
	if err != nil {
		return fmt.Errorf("writing the patch of VolumeSnapshotContent %s: %w", content.Name, err)
	}
	err = r.retry(ctx, func(ctx context.Context) error {
		_, err := r.client.VolumeSnapshotContents().Patch(ctx, content.Name, types.MergePatchType, body, metav1.PatchOptions{})
		return err
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("%s: %w", doing, err)
	}
	return nil
}

// getSnapshot reads the VolumeSnapshot; nil when it is gone, or when a later one has its name.
func (r *Remover) getSnapshot(ctx context.Context, ref Ref) (*snapshotv1.VolumeSnapshot, error) {
	var vs *snapshotv1.VolumeSnapshot
	err := r.retry(ctx, func(ctx context.Context) (err error) {
		vs, err = r.client.VolumeSnapshots(ref.Namespace).Get(ctx, ref.Name, metav1.GetOptions{})
		return err
	})
	switch {
	case apierrors.IsNotFound(err), err == nil && ref.UID != "" && vs.UID != ref.UID:
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading it: %w", err)
	}
	return vs, nil
}

// getContent reads a VolumeSnapshotContent; nil when it is gone, or isn't that of the snapshot.
func (r *Remover) getContent(ctx context.Context, ref Ref, name string) (*snapshotv1.VolumeSnapshotContent, error) {
	var content *snapshotv1.VolumeSnapshotContent
	err := r.retry(ctx, func(ctx context.Context) (err error) {
		content, err = r.client.VolumeSnapshotContents().Get(ctx, name, metav1.GetOptions{})
		return err
	})
	switch {
	case apierrors.IsNotFound(err), err == nil && !belongs(content, ref.key(), ref.UID):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("reading VolumeSnapshotContent %s: %w", name, err)
	}
	return content, nil
}

// retry calls f until it succeeds, fails for good, or ctx ends.
func (r *Remover) retry(ctx context.Context, f func(context.Context) error) error {
	for n := 1; ; n++ {
		call, cancel := context.WithTimeout(ctx, callTimeout)
		err := f(call)
		cancel()
		if !isTransient(err) {
			return err
		}
		timer := r.clock.NewTimer(retryDelay(n, err))
		select {
		case <-timer.C():
		case <-ctx.Done():
			timer.Stop()
			return fmt.Errorf("%w (given up: %w)", err, context.Cause(ctx))
		}
	}
}

func deleteOptions(uid types.UID) metav1.DeleteOptions {
	if uid == "" {
		return metav1.DeleteOptions{}
	}
	return metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: ptr.To(uid)}}
}
