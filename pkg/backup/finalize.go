// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"
	"fmt"
	"sync"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"github.com/sirupsen/logrus"
	"github.com/vmware-tanzu/velero/pkg/discovery"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/velero-clipper/clipper/pkg/snapshot"
)

const (
	// releases bounds how many snapshots are released at once.
	releases = 16
	// releaseTimeout bounds the requests for one snapshot, so that a connection that hangs is noticed.
	releaseTimeout = time.Minute
)

// Finalizer takes the second look at a backup's items when everything that went on after the walk has ended. Velero's CSI
// snapshot action would remove the objects of each snapshot on the way, one request after the other; the Finalizer only takes note
// of them, and releases them together when Release is called: when the finalized backup is in object storage. A look that has to
// be repeated finds them where they were.
type Finalizer struct {
	deps   FinalizerDeps
	client client.Client
	groups GroupLeaver

	mu    sync.Mutex
	notes map[types.UID][]*unstructured.Unstructured
}

// FinalizerDeps is what a Finalizer works with. All fields are required unless they say otherwise.
type FinalizerDeps struct {
	// Client releases snapshots.
	Client client.Client
	Groups GroupLeaver
	// Dynamic gets items of any type, and Discovery knows the types.
	Dynamic   dynamic.Interface
	Discovery discovery.Helper
	// Clock tells the time. Default: the real clock.
	Clock clock.WithTicker
}

// GroupLeaver takes VolumeSnapshots out of their groups; snapshot.Remover is one.
type GroupLeaver interface {
	LeaveGroup(ctx context.Context, namespace, name string) error
}

// NewFinalizer returns a Finalizer.
func NewFinalizer(deps FinalizerDeps) *Finalizer {
	if deps.Clock == nil {
		deps.Clock = clock.RealClock{}
	}
	return &Finalizer{deps: deps, client: deps.Client, groups: deps.Groups, notes: map[types.UID][]*unstructured.Unstructured{}}
}

// Release lets go of the snapshots of a backup that was finalized. What can't be released stays in the cluster, with a warning.
func (f *Finalizer) Release(backup types.UID, log logrus.FieldLogger) {
	var group errgroup.Group
	group.SetLimit(releases)
	for _, object := range f.take(backup) {
		group.Go(func() error {
			if err := f.release(object); err != nil {
				log.WithError(err).WithFields(logrus.Fields{"namespace": object.GetNamespace(), "name": object.GetName()}).
					Warn("The objects of a snapshot that is in the backup stay in the cluster")
			}
			return nil
		})
	}
	_ = group.Wait() // none of them returns an error
}

func (f *Finalizer) note(backup types.UID, vs *unstructured.Unstructured) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.notes[backup] = append(f.notes[backup], vs)
}

func (f *Finalizer) take(backup types.UID) []*unstructured.Unstructured {
	f.mu.Lock()
	defer f.mu.Unlock()
	noted := f.notes[backup]
	delete(f.notes, backup)
	return noted
}

// release lets go of a snapshot: its objects leave the cluster, the physical snapshot stays (298).
//
// It goes on when the server is told to stop, and repeats what the API server is too busy for: the backup is completed
// next, whatever comes of this, and nobody looks at the objects again. As long as they are there with policy Delete, the
// deletion of their namespace takes the backup's data with it.
func (f *Finalizer) release(object *unstructured.Unstructured) error {
	ctx, cancel := context.WithTimeout(context.Background(), releaseTimeout)
	defer cancel()
	name, _, _ := unstructured.NestedString(object.Object, "status", "boundVolumeSnapshotContentName")
	if name == "" {
		return fmt.Errorf("VolumeSnapshot %s/%s is bound to no content", object.GetNamespace(), object.GetName())
	}
	content := &snapshotv1.VolumeSnapshotContent{ObjectMeta: metav1.ObjectMeta{Name: name}}
	retain := fmt.Appendf(nil, `{"spec":{"deletionPolicy":%q}}`, snapshotv1.VolumeSnapshotContentRetain)
	// Nothing is deleted before this has succeeded: with policy Delete the physical snapshot would go, too.
	err := untilAnswered(ctx, func() error { return f.client.Patch(ctx, content, client.RawPatch(types.MergePatchType, retain)) })
	if err != nil {
		return fmt.Errorf("setting the deletion policy of VolumeSnapshotContent %s to Retain: %w", name, err)
	}
	if err := f.delete(ctx, content); err != nil {
		return fmt.Errorf("deleting VolumeSnapshotContent %s: %w", name, err)
	}
	vs := &snapshotv1.VolumeSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: object.GetNamespace(), Name: object.GetName()}}
	if err := f.delete(ctx, vs); err != nil {
		return fmt.Errorf("deleting VolumeSnapshot %s/%s: %w", vs.Namespace, vs.Name, err)
	}
	if object.GetAnnotations()[snapshot.AnnGroup] == "" {
		return nil
	}
	return f.groups.LeaveGroup(ctx, vs.Namespace, vs.Name)
}

// delete deletes an object that may be gone already.
func (f *Finalizer) delete(ctx context.Context, object client.Object) error {
	return untilAnswered(ctx, func() error { return client.IgnoreNotFound(f.client.Delete(ctx, object)) })
}
