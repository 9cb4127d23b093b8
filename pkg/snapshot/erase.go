// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// contentFinalizer is external-snapshotter's: with it a content stays until its sidecar has deleted the physical snapshot.
const contentFinalizer = "snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection"

// unknownSnapshot is how external-snapshotter says that a driver's list doesn't have a handle.
var unknownSnapshot = regexp.MustCompile(`can ?not find snapshot for snapshotID`)

// Physical is a snapshot in a storage system, without objects in the cluster.
type Physical struct {
	// Driver and Handle name it; both required.
	Driver, Handle string
	// Annotations of the content that it had; the driver's secret for deletion is named there.
	Annotations map[string]string
}

// Erase deletes physical snapshots, and returns those that are still there when nothing has gone on for as long as patience, or
// when ctx ends. namespace is the installation's.
//
// Each gets a VolumeSnapshotContent of its own, which is deleted as soon as the sidecar knows it, and followed by the
// tracker's watch until it is gone. Its name is derived from the handle: asking again goes on where the last time ended. A
// snapshot that the storage doesn't know any more counts as erased.
func (r *Remover) Erase(ctx context.Context, namespace string, patience time.Duration, physical ...Physical) []Leftover {
	e := &erasing{Remover: r, woken: newMailbox[*erasure](), open: map[*erasure]bool{}}
	defer e.end()
	for _, p := range physical {
		e.begin(namespace, p)
	}
	timer := r.clock.NewTimer(patience)
	defer func() { timer.Stop() }()
	for len(e.open) > 0 && ctx.Err() == nil {
		if e.advance(ctx) {
			timer.Stop()
			timer = r.clock.NewTimer(patience)
		}
		if len(e.open) == 0 {
			break
		}
		select {
		case <-e.woken.signal:
		case <-timer.C():
			return e.left()
		case <-ctx.Done():
		}
	}
	return e.left()
}

// erasing is one call of Erase.
type erasing struct {
	*Remover
	woken *mailbox[*erasure]
	open  map[*erasure]bool
	order []*erasure
}

// erasure is one physical snapshot on its way out.
type erasure struct {
	Physical
	key               types.NamespacedName
	sub               *subscription
	uid               types.UID
	created, deleting bool
	failed            error
}

func (e *erasing) begin(namespace string, p Physical) {
	sum := sha256.Sum256([]byte(p.Driver + "/" + p.Handle))
	made := &erasure{Physical: p, key: types.NamespacedName{Namespace: namespace, Name: "velero-erase-" + hex.EncodeToString(sum[:16])}}
	for other := range e.open {
		if other.key == made.key {
			return
		}
	}
	made.sub = e.tracker.subscribe(made.key, func() { e.woken.put(made) })
	e.open[made] = true
	e.order = append(e.order, made)
	e.woken.put(made)
}

func (e *erasing) end() {
	for _, one := range e.order {
		e.tracker.unsubscribe(one.sub)
	}
}

// advance takes each one whose state has changed a step further; true when one came to its end.
func (e *erasing) advance(ctx context.Context) (progress bool) {
	for _, one := range e.woken.take() {
		if e.open[one] && e.step(ctx, one) {
			delete(e.open, one)
			e.tracker.unsubscribe(one.sub)
			progress = true
		}
	}
	return progress
}

// step returns true when the snapshot is erased.
func (e *erasing) step(ctx context.Context, one *erasure) bool {
	if !one.created {
		if one.failed = e.create(ctx, one); one.failed != nil {
			return false
		}
		one.created = true
	}
	content := e.tracker.content(one.key.Name)
	switch {
	case content == nil:
		return e.tracker.sawDeletion(one.sub, one.uid)
	case content.DeletionTimestamp == nil && !one.deleting && (handleOf(content) != "" || isUnknownToStorage(content)):
		// Before the sidecar has taken the handle over, it would let the content go and leave the snapshot.
		one.deleting = true
		one.failed = e.retry(ctx, func(ctx context.Context) error {
			err := e.client.VolumeSnapshotContents().Delete(ctx, content.Name, deleteOptions(content.UID))
			if isGone(err) {
				return nil
			}
			return err
		})
	}
	return false
}

func (e *erasing) create(ctx context.Context, one *erasure) error {
	want := &snapshotv1.VolumeSnapshotContent{
		ObjectMeta: metav1.ObjectMeta{Name: one.key.Name, Annotations: one.Annotations, Finalizers: []string{contentFinalizer}},
		Spec: snapshotv1.VolumeSnapshotContentSpec{
			Driver: one.Driver, DeletionPolicy: snapshotv1.VolumeSnapshotContentDelete,
			Source: snapshotv1.VolumeSnapshotContentSource{SnapshotHandle: ptr.To(one.Handle)},
			VolumeSnapshotRef: corev1.ObjectReference{
				APIVersion: snapshotv1.SchemeGroupVersion.String(), Kind: "VolumeSnapshot", Namespace: one.key.Namespace, Name: one.key.Name,
			},
		},
	}
	err := e.retry(ctx, func(ctx context.Context) error {
		made, err := e.client.VolumeSnapshotContents().Create(ctx, want, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) { // of an earlier try
			made, err = e.client.VolumeSnapshotContents().Get(ctx, want.Name, metav1.GetOptions{})
		}
		if err == nil {
			one.uid = made.UID
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("creating VolumeSnapshotContent %s: %w", want.Name, err)
	}
	return nil
}

// isUnknownToStorage says that the sidecar has looked for the snapshot and hasn't found it.
func isUnknownToStorage(content *snapshotv1.VolumeSnapshotContent) bool {
	return handleOf(content) == "" && unknownSnapshot.MatchString(errorOf(nil, content))
}

// left names what isn't erased.
func (e *erasing) left() []Leftover {
	var left []Leftover
	for _, one := range e.order {
		if e.open[one] {
			left = append(left, Leftover{Ref: Ref{ContentName: one.key.Name}, Reason: e.reason(one)})
		}
	}
	return left
}

func (e *erasing) reason(one *erasure) string {
	what := fmt.Sprintf("snapshot %s of CSI driver %s", one.Handle, one.Driver)
	content := e.tracker.content(one.key.Name)
	switch {
	case one.failed != nil:
		return fmt.Sprintf("%s: %v", what, one.failed)
	case content == nil:
		return fmt.Sprintf("%s: VolumeSnapshotContent %s was created for its deletion and hasn't been seen since", what, one.key.Name)
	case errorOf(nil, content) != "":
		return fmt.Sprintf("%s: VolumeSnapshotContent %s%s", what, one.key.Name, because(errorOf(nil, content)))
	default:
		return fmt.Sprintf("%s: nobody has deleted it; VolumeSnapshotContent %s waits for that: is the driver's csi-snapshotter sidecar running?", what, one.key.Name)
	}
}
