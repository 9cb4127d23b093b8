// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"github.com/sirupsen/logrus"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/kuberesource"
	"github.com/vmware-tanzu/velero/pkg/label"
	"github.com/vmware-tanzu/velero/pkg/persistence"
	"github.com/vmware-tanzu/velero/pkg/plugin/clientmgmt"
	velero "github.com/vmware-tanzu/velero/pkg/plugin/velero"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/velero-clipper/clipper/pkg/snapshot"
)

// ContentDeleteAction is the name of Velero's plugin that deletes the physical snapshots of a backup.
const ContentDeleteAction = "velero.io/csi-volumesnapshotcontent-delete"

// erasePatience is how long a deletion waits while nothing goes on.
const erasePatience = time.Minute

// mostNamed is how many snapshots a failed deletion names.
const mostNamed = 5

// Eraser deletes physical snapshots; snapshot.Remover is one.
type Eraser interface {
	// Erase returns those that are still there when nothing has gone on for as long as patience.
	Erase(ctx context.Context, namespace string, patience time.Duration, physical ...snapshot.Physical) []snapshot.Leftover
}

// DeleterDeps is what a Deleter works with. All fields are required.
type DeleterDeps struct {
	Eraser Eraser
	// Namespace of the installation.
	Namespace string
	// Actions are the names of all plugins that act on the items of a backup that is deleted.
	Actions func() []string
	// Life ends when the server stops. Velero's interfaces have no context for a single deletion.
	Life context.Context //nolint:containedctx // see above
}

// Deleter sees to it that a backup is deleted only when its CSI snapshots are. Velero's own plugin asks for their deletion and
// looks away; when the driver can't do it, the backup is gone and the snapshots are nobody's (field case F29). Deletion itself is
// Velero's controller: the Deleter takes note of the snapshots in the plugin's place, and erases them before the controller
// deletes the backup's files. When that fails, so does the request, the backup stays, and it can be asked for again.
type Deleter struct {
	DeleterDeps

	mu    sync.Mutex
	notes map[string]map[string]snapshot.Physical
}

// NewDeleter makes a Deleter.
func NewDeleter(deps DeleterDeps) *Deleter {
	return &Deleter{DeleterDeps: deps, notes: map[string]map[string]snapshot.Physical{}}
}

// WithNotes returns plugin managers for the deletion controller, whose action for contents takes note of the snapshots. All other
// plugins are those of the managers that newManager makes.
func (d *Deleter) WithNotes(newManager func(logrus.FieldLogger) clientmgmt.Manager) func(logrus.FieldLogger) clientmgmt.Manager {
	return func(log logrus.FieldLogger) clientmgmt.Manager {
		return deletingManager{Manager: newManager(log), deleter: d}
	}
}

// WithErasure returns stores that delete a backup only when its snapshots are gone.
func (d *Deleter) WithErasure(stores persistence.ObjectBackupStoreGetter) persistence.ObjectBackupStoreGetter {
	return erasingStores{ObjectBackupStoreGetter: stores, deleter: d}
}

func (d *Deleter) note(backup string, p snapshot.Physical) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.notes[backup] == nil {
		d.notes[backup] = map[string]snapshot.Physical{}
	}
	d.notes[backup][p.Driver+"/"+p.Handle] = p
}

func (d *Deleter) take(backup string) []snapshot.Physical {
	d.mu.Lock()
	defer d.mu.Unlock()
	var noted []snapshot.Physical
	for _, p := range d.notes[backup] {
		noted = append(noted, p)
	}
	delete(d.notes, backup)
	return noted
}

// erase deletes what was noted of a backup.
func (d *Deleter) erase(backup string) error {
	noted := d.take(backup)
	left := d.Eraser.Erase(d.Life, d.Namespace, erasePatience, noted...)
	if len(left) == 0 {
		return nil
	}
	var reasons []string
	for _, l := range left[:min(len(left), mostNamed)] {
		reasons = append(reasons, l.Reason)
	}
	if more := len(left) - len(reasons); more > 0 {
		reasons = append(reasons, fmt.Sprintf("and %d more", more))
	}
	return fmt.Errorf("%d of %d CSI snapshots are not deleted, so the backup is kept; delete it again when the cause is gone: %s",
		len(left), len(noted), strings.Join(reasons, "; "))
}

type deletingManager struct {
	clientmgmt.Manager
	deleter *Deleter
}

// GetDeleteItemActions returns the plugins' actions with one replaced.
func (m deletingManager) GetDeleteItemActions() ([]velero.DeleteItemAction, error) {
	var actions []velero.DeleteItemAction
	for _, name := range m.deleter.Actions() {
		if name == ContentDeleteAction {
			actions = append(actions, contentDeletion{deleter: m.deleter})
			continue
		}
		action, err := m.GetDeleteItemAction(name)
		if err != nil {
			return nil, fmt.Errorf("starting the delete item action plugin %s: %w", name, err)
		}
		actions = append(actions, action)
	}
	return actions, nil
}

// contentDeletion stands in for Velero's action.
type contentDeletion struct{ deleter *Deleter }

// AppliesTo implements velero.DeleteItemAction.
func (contentDeletion) AppliesTo() (velero.ResourceSelector, error) {
	return velero.ResourceSelector{IncludedResources: []string{kuberesource.VolumeSnapshotContents.String()}}, nil
}

// Execute takes note of the snapshot of a content that was made for the backup. One that was there before is its owner's.
func (c contentDeletion) Execute(input *velero.DeleteItemActionExecuteInput) error {
	content := new(snapshotv1.VolumeSnapshotContent)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(input.Item.UnstructuredContent(), content); err != nil {
		return fmt.Errorf("reading a VolumeSnapshotContent of backup %s: %w", input.Backup.Name, err)
	}
	if content.Labels[velerov1.BackupNameLabel] != label.GetValidName(input.Backup.Name) || content.Status == nil {
		return nil
	}
	if handle := ptr.Deref(content.Status.SnapshotHandle, ""); handle != "" {
		c.deleter.note(input.Backup.Name, snapshot.Physical{
			Driver: content.Spec.Driver, Handle: handle, Annotations: deletionSecret(content.Annotations),
		})
	}
	return nil
}

// deletionSecret keeps the annotations by which external-snapshotter finds the driver's secret.
func deletionSecret(annotations map[string]string) map[string]string {
	kept := map[string]string{}
	for key, value := range annotations {
		if strings.HasPrefix(key, "snapshot.storage.kubernetes.io/deletion-secret-") {
			kept[key] = value
		}
	}
	return kept
}

type erasingStores struct {
	persistence.ObjectBackupStoreGetter
	deleter *Deleter
}

// Get implements persistence.ObjectBackupStoreGetter.
func (s erasingStores) Get(location *velerov1.BackupStorageLocation, objects persistence.ObjectStoreGetter, log logrus.FieldLogger) (persistence.BackupStore, error) {
	store, err := s.ObjectBackupStoreGetter.Get(location, objects, log)
	if err != nil {
		return nil, err
	}
	return erasingStore{BackupStore: store, deleter: s.deleter}, nil
}

type erasingStore struct {
	persistence.BackupStore
	deleter *Deleter
}

// DeleteBackup deletes the snapshots, then the backup's files.
func (s erasingStore) DeleteBackup(name string) error {
	if err := s.deleter.erase(name); err != nil {
		return err
	}
	return s.BackupStore.DeleteBackup(name)
}
