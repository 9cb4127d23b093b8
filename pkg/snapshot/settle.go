// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"fmt"
	"strings"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"k8s.io/apimachinery/pkg/types"
)

// lastLookTimeout bounds the requests by which Settle finds out, after its context ended, what is left.
const lastLookTimeout = 5 * time.Second

// Leftover is a snapshot whose removal hasn't come to its end.
type Leftover struct {
	Ref
	// Reason says in words what is waited for.
	Reason string
}

// Settle waits, by the tracker's watch, until the VolumeSnapshots and their contents are gone, or until ctx ends, and
// returns what is left. On the way it finishes what Remove could not know: a content that appeared after the deletion,
// with policy Retain, is deleted too. The refs' removal must have been asked for, by Remove or by the Taker.
func (r *Remover) Settle(ctx context.Context, refs ...Ref) []Leftover {
	woken := newMailbox[int]()
	open := map[int]*settling{}
	for i, ref := range refs {
		s := &settling{Remover: r, ref: ref, helped: map[string]bool{}}
		s.sub = r.tracker.subscribe(ref.key(), func() { woken.put(i) })
		defer r.tracker.unsubscribe(s.sub)
		open[i] = s
		woken.put(i)
	}
	for len(open) > 0 && ctx.Err() == nil {
		for _, i := range woken.take() {
			if s := open[i]; s != nil && s.advance(ctx) {
				delete(open, i)
			}
		}
		if len(open) == 0 {
			break
		}
		select {
		case <-woken.signal:
		case <-ctx.Done():
		}
	}
	if len(open) == 0 {
		return nil
	}
	return r.leftovers(ctx, refs, open)
}

// leftovers takes a last look at what is open. Objects that are gone by now are no leftovers.
func (r *Remover) leftovers(ctx context.Context, refs []Ref, open map[int]*settling) []Leftover {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastLookTimeout)
	defer cancel()
	var left []Leftover
	for i := range refs {
		if s := open[i]; s != nil {
			if reason := s.reason(ctx); reason != "" {
				left = append(left, Leftover{Ref: s.ref, Reason: reason})
			}
		}
	}
	return left
}

// settling is one ref on its way out.
type settling struct {
	*Remover
	ref Ref
	sub *subscription
	// helped has what was done already, so that each help is given once.
	helped map[string]bool
	// snapshotUID and contentUID are of the objects as they were seen.
	snapshotUID, contentUID types.UID
	// cutBefore: the content was seen cut before its deletion was asked for. Its sidecar isn't one that forgets then.
	cutBefore bool
	// failed is why a help didn't work.
	failed error
}

// advance looks where the removal stands, and returns true when it has come to its end.
func (s *settling) advance(ctx context.Context) bool {
	vs, content := s.tracker.look(s.ref.key(), s.ref.UID)
	if content != nil && s.ref.ContentName == "" {
		s.ref.ContentName = content.Name
	}
	if vs != nil {
		s.snapshotUID = vs.UID
	}
	if content != nil {
		s.contentUID = content.UID
		s.cutBefore = s.cutBefore || content.DeletionTimestamp == nil && isCutAndDone(content)
	}
	if s.isPending(s.ref.key()) {
		return false // its end wakes us
	}
	if vs != nil || content != nil {
		s.help(ctx, vs, content)
		return false
	}
	if s.tracker.sawDeletion(s.sub, s.snapshotUID) && s.tracker.sawDeletion(s.sub, s.contentUID) {
		return true
	}
	// The cache may not have heard of the objects yet: only the API knows that they are gone.
	vs, content, err := s.live(ctx)
	return err == nil && vs == nil && content == nil
}

// help does for a content what Remove does, when it was made or seen only later.
func (s *settling) help(ctx context.Context, vs *snapshotv1.VolumeSnapshot, content *snapshotv1.VolumeSnapshotContent) {
	if content == nil {
		return
	}
	var err error
	switch {
	case vs == nil && s.once("orphan "+content.Name):
		// From a lagging cache the VolumeSnapshot may only seem to be gone.
		if live, readErr := s.getSnapshot(ctx, s.ref); readErr != nil || live != nil {
			delete(s.helped, "orphan "+content.Name)
			err = readErr
			break
		}
		err = s.deleteOrphan(ctx, content)
	case vs != nil && vs.DeletionTimestamp != nil && s.once("policy "+content.Name):
		err = s.makeFollow(ctx, content)
	}
	if err == nil && !s.cutBefore && isForgotten(content) && handleOf(content) != "" && s.once("nudge "+content.Name) {
		err = s.nudge(ctx, content)
	}
	s.failed = err
	if err != nil {
		clear(s.helped) // all of it may be done again
		s.log.WithError(err).Warnf("Removing VolumeSnapshot %s is not making progress", s.ref.key())
	}
}

// isForgotten says that a content's deletion was asked for and that the sidecar isn't doing anything about the snapshot. When
// that came while it was creating the snapshot, it takes its own mark off at the end, cut or refused, and may not look at
// the content again until its next resync, up to 15 minutes later (kubernetes-csi/external-snapshotter#1388, as of v8.7.0).
// The first moment of every deletion looks the same.
func isForgotten(content *snapshotv1.VolumeSnapshotContent) bool {
	return content.DeletionTimestamp != nil && content.Annotations[annBeingCreated] == ""
}

// isCutAndDone: there is a handle, and no call is under way any more.
func isCutAndDone(content *snapshotv1.VolumeSnapshotContent) bool {
	return handleOf(content) != "" && content.Annotations[annBeingCreated] == ""
}

func (s *settling) once(what string) bool {
	if s.helped[what] {
		return false
	}
	s.helped[what] = true
	return true
}

// live reads both objects from the API. A content that nobody has named yet would have the name that external-snapshotter
// derives from the VolumeSnapshot's UID.
func (s *settling) live(ctx context.Context) (*snapshotv1.VolumeSnapshot, *snapshotv1.VolumeSnapshotContent, error) {
	vs, err := s.getSnapshot(ctx, s.ref)
	if err != nil {
		return nil, nil, err
	}
	name := s.ref.ContentName
	if bound := boundContent(vs); bound != "" {
		name = bound
	}
	if name == "" && s.ref.UID != "" {
		name = "snapcontent-" + string(s.ref.UID)
	}
	if name == "" {
		return vs, nil, nil
	}
	content, err := s.getContent(ctx, s.ref, name)
	return vs, content, err
}

// reason says why the objects are still there; empty when they are not. The cache answers where it can, so that many
// leftovers don't mean many requests.
func (s *settling) reason(ctx context.Context) string {
	key := s.ref.key()
	vs, content := s.tracker.look(key, s.ref.UID)
	var err error
	if vs == nil && content == nil {
		vs, content, err = s.live(ctx)
	}
	switch {
	case err != nil:
		return fmt.Sprintf("it could not be found out whether VolumeSnapshot %s is gone: %v", key, err)
	case vs == nil && content == nil:
		return ""
	case s.isPending(key):
		return fmt.Sprintf("the deletion of VolumeSnapshot %s has not been asked for yet", key)
	case s.failed != nil:
		return fmt.Sprintf("VolumeSnapshot %s: %v", key, s.failed)
	case content != nil && content.Annotations[annBeingCreated] != "":
		return fmt.Sprintf("the driver %s has not answered CreateSnapshot yet; external-snapshotter keeps VolumeSnapshot %s and "+
			"VolumeSnapshotContent %s until it does%s", content.Spec.Driver, key, content.Name, because(errorOf(vs, content)))
	case vs != nil && vs.DeletionTimestamp == nil:
		return fmt.Sprintf("VolumeSnapshot %s is not being deleted: its deletion failed", key)
	case content != nil && errorOf(vs, content) != "":
		return fmt.Sprintf("VolumeSnapshotContent %s of VolumeSnapshot %s is still there%s", content.Name, key, because(errorOf(vs, content)))
	case content != nil:
		return fmt.Sprintf("the snapshot%s of driver %s has not been deleted yet; VolumeSnapshotContent %s of VolumeSnapshot %s "+
			"stays until it is: is the driver's csi-snapshotter sidecar running?", handleText(content), content.Spec.Driver, content.Name, key)
	default:
		return fmt.Sprintf("VolumeSnapshot %s still has the finalizers %s: is external-snapshotter's snapshot-controller running?",
			key, strings.Join(vs.Finalizers, ", "))
	}
}

func handleText(content *snapshotv1.VolumeSnapshotContent) string {
	if handle := handleOf(content); handle != "" {
		return " " + handle
	}
	return ""
}
