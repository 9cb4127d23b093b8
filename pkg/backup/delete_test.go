// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package backup_test

import (
	"context"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/sirupsen/logrus"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/label"
	"github.com/vmware-tanzu/velero/pkg/persistence"
	"github.com/vmware-tanzu/velero/pkg/plugin/clientmgmt"
	velero "github.com/vmware-tanzu/velero/pkg/plugin/velero"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/velero-clipper/clipper/pkg/backup"
	"github.com/velero-clipper/clipper/pkg/snapshot"
)

// eraser notes what it is asked to erase, and can't erase what is stuck.
type eraser struct {
	asked []snapshot.Physical
	stuck bool
}

func (e *eraser) Erase(_ context.Context, namespace string, patience time.Duration, physical ...snapshot.Physical) (left []snapshot.Leftover) {
	e.asked = append(e.asked, physical...)
	for _, p := range physical {
		if e.stuck {
			left = append(left, snapshot.Leftover{Reason: p.Handle + " in " + namespace + " after " + patience.String()})
		}
	}
	return left
}

// deletable has one other action.
type deletable struct{ clientmgmt.Manager }

type otherDeletion struct{ velero.DeleteItemAction }

func (deletable) GetDeleteItemAction(string) (velero.DeleteItemAction, error) {
	return otherDeletion{}, nil
}

// files counts the deletions of a backup's files.
type files struct {
	persistence.BackupStore
	deleted []string
}

func (f *files) DeleteBackup(name string) error {
	f.deleted = append(f.deleted, name)
	return nil
}

func (f *files) Get(*velerov1.BackupStorageLocation, persistence.ObjectStoreGetter, logrus.FieldLogger) (persistence.BackupStore, error) {
	return f, nil
}

func contentItem(backupLabel, handle string) *unstructured.Unstructured {
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotContent",
		"metadata": map[string]any{"name": "c", "labels": map[string]any{velerov1.BackupNameLabel: backupLabel}, "annotations": map[string]any{
			"snapshot.storage.kubernetes.io/deletion-secret-name": "s", "other": "x",
		}},
		"spec": map[string]any{"driver": "d"},
	}}
	if handle != "" {
		u.Object["status"] = map[string]any{"snapshotHandle": handle}
	}
	return u
}

func TestABackupIsDeletedWhenItsSnapshotsAre(t *testing.T) {
	g := NewWithT(t)
	name := strings.Repeat("long-", 16) + "name"
	erases, store := &eraser{stuck: true}, &files{}
	deleter := backup.NewDeleter(backup.DeleterDeps{
		Eraser: erases, Namespace: "velero", Life: t.Context(),
		Actions: func() []string { return []string{"other", backup.ContentDeleteAction} },
	})
	actions, err := deleter.WithNotes(func(logrus.FieldLogger) clientmgmt.Manager { return deletable{} })(logrus.New()).GetDeleteItemActions()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(actions).To(HaveLen(2))
	g.Expect(actions[0]).To(Equal(otherDeletion{}))
	selector, err := actions[1].AppliesTo()
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(selector.IncludedResources).To(Equal([]string{"volumesnapshotcontents.snapshot.storage.k8s.io"}))

	b := &velerov1.Backup{ObjectMeta: metav1.ObjectMeta{Name: name}}
	note := func() {
		for _, item := range []*unstructured.Unstructured{
			contentItem(label.GetValidName(name), "h1"), contentItem(label.GetValidName(name), "h1"),
			contentItem("another", "h2"), contentItem(label.GetValidName(name), ""),
		} {
			g.Expect(actions[1].Execute(&velero.DeleteItemActionExecuteInput{Item: item, Backup: b})).To(Succeed())
		}
	}
	note()
	wrapped, err := deleter.WithErasure(store).Get(nil, nil, nil)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(wrapped.DeleteBackup(name)).To(MatchError(And(
		ContainSubstring("1 of 1 CSI snapshots are not deleted"), ContainSubstring("h1 in velero after 1m0s"))))
	g.Expect(store.deleted).To(BeEmpty(), "the backup is kept")
	g.Expect(erases.asked).To(Equal([]snapshot.Physical{{
		Driver: "d", Handle: "h1", Annotations: map[string]string{"snapshot.storage.kubernetes.io/deletion-secret-name": "s"},
	}}))

	erases.stuck = false
	note()
	g.Expect(wrapped.DeleteBackup(name)).To(Succeed())
	g.Expect(store.deleted).To(Equal([]string{name}))
	g.Expect(wrapped.DeleteBackup("without-snapshots")).To(Succeed())
}
