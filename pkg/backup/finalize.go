// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"github.com/sirupsen/logrus"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	velerobackup "github.com/vmware-tanzu/velero/pkg/backup"
	"github.com/vmware-tanzu/velero/pkg/itemoperation"
	"github.com/vmware-tanzu/velero/pkg/kuberesource"
	"github.com/vmware-tanzu/velero/pkg/persistence"
	"github.com/vmware-tanzu/velero/pkg/plugin/clientmgmt"
	"github.com/vmware-tanzu/velero/pkg/plugin/framework"
	velero "github.com/vmware-tanzu/velero/pkg/plugin/velero"
	biav2 "github.com/vmware-tanzu/velero/pkg/plugin/velero/backupitemaction/v2"
	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/velero-clipper/clipper/pkg/snapshot"
)

const (
	// releases bounds how many snapshots are released at once.
	releases = 16
	// releaseTimeout bounds the requests for one snapshot, so that a connection that hangs is noticed.
	releaseTimeout = time.Minute
)

// Finalizer takes the second look at a backup's items when everything that went on after the walk has ended. The look
// itself is Velero's. Velero's CSI snapshot action would remove the objects of each snapshot on the way, one request after
// the other; the Finalizer only takes note of them, and releases them together when Release is called: when the finalized backup
// is in object storage. A look that has to be repeated finds them where they were.
type Finalizer struct {
	velerobackup.Backupper
	client client.Client
	groups GroupLeaver

	mu    sync.Mutex
	notes map[types.UID][]*unstructured.Unstructured
}

// GroupLeaver takes VolumeSnapshots out of their groups; snapshot.Remover is one.
type GroupLeaver interface {
	LeaveGroup(ctx context.Context, namespace, name string) error
}

// NewFinalizer returns a Finalizer that looks through Velero's backupper.
func NewFinalizer(backupper velerobackup.Backupper, c client.Client, groups GroupLeaver) *Finalizer {
	return &Finalizer{Backupper: backupper, client: c, groups: groups, notes: map[types.UID][]*unstructured.Unstructured{}}
}

// FinalizeBackup implements Velero's Backupper.
func (f *Finalizer) FinalizeBackup(
	log logrus.FieldLogger,
	request *velerobackup.Request,
	in io.Reader,
	out io.Writer,
	actions framework.BackupItemActionResolverV2,
	operations []*itemoperation.BackupOperation,
	store persistence.BackupStore,
) error {
	f.take(request.UID) // of a look before, of which nothing came
	err := f.Backupper.FinalizeBackup(log, request, in, out, actions, operations, store)
	if err != nil {
		f.take(request.UID) // the finalizer controller tries again
	}
	return err
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

// WithNotes returns plugin managers for the finalizer controller, whose CSI snapshot action takes note of the snapshots
// to be released. All other plugins are those of the managers that newManager makes.
func (f *Finalizer) WithNotes(newManager func(logrus.FieldLogger) clientmgmt.Manager) func(logrus.FieldLogger) clientmgmt.Manager {
	return func(log logrus.FieldLogger) clientmgmt.Manager {
		return notingManager{Manager: newManager(log), finalizer: f}
	}
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

type notingManager struct {
	clientmgmt.Manager
	finalizer *Finalizer
}

// GetBackupItemActionsV2 returns the plugins' actions with one replaced.
func (m notingManager) GetBackupItemActionsV2() ([]biav2.BackupItemAction, error) {
	actions, err := m.Manager.GetBackupItemActionsV2()
	if err != nil {
		return nil, err
	}
	for i, action := range actions {
		if action.Name() == snapshotActionName {
			actions[i] = notingAction{BackupItemAction: action, finalizer: m.finalizer}
		}
	}
	return actions, nil
}

// notingAction stands in for Velero's CSI snapshot action when a backup is finalized.
type notingAction struct {
	biav2.BackupItemAction
	finalizer *Finalizer
}

// AppliesTo implements biav2.BackupItemAction without a call of the plugin's process.
func (a notingAction) AppliesTo() (velero.ResourceSelector, error) {
	return velero.ResourceSelector{IncludedResources: []string{kuberesource.VolumeSnapshots.String()}}, nil
}

// Execute takes note of the snapshot and returns it unchanged.
func (a notingAction) Execute(item runtime.Unstructured, backup *velerov1.Backup) (runtime.Unstructured, []velero.ResourceIdentifier, string, []velero.ResourceIdentifier, error) {
	a.finalizer.note(backup.UID, &unstructured.Unstructured{Object: item.UnstructuredContent()})
	return item, nil, "", nil, nil
}
