// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package backup_test

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/vmware-tanzu/velero/pkg/apis/velero/shared"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	velerov2alpha1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v2alpha1"
	"github.com/vmware-tanzu/velero/pkg/builder"
	"github.com/vmware-tanzu/velero/pkg/itemoperation"
	"github.com/vmware-tanzu/velero/pkg/persistence"
	"github.com/vmware-tanzu/velero/pkg/persistence/mocks"
	"github.com/vmware-tanzu/velero/pkg/plugin/framework"
	velero "github.com/vmware-tanzu/velero/pkg/plugin/velero"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/velero-clipper/clipper/pkg/backup"
	"github.com/velero-clipper/clipper/pkg/backup/archive"
)

// storedVolumes is the volume information of a backup in object storage.
type storedVolumes struct {
	c      *cluster
	text   string
	err    error
	onRead func()
	after  []byte
}

func newStoredVolumes(c *cluster, text string) *storedVolumes {
	return &storedVolumes{c: c, text: text}
}

// BackupStore has nothing else.
func (s *storedVolumes) BackupStore() persistence.BackupStore {
	const anything = "mock.Anything" // as the mocks have it
	store := &mocks.BackupStore{}
	store.On("GetBackupVolumeInfos", anything).Return(reading(s, store.GetBackupVolumeInfos))
	store.On("PutBackupVolumeInfos", anything, anything).Return(func(_ string, zipped io.Reader) error {
		unzipped, err := gzip.NewReader(zipped)
		if err == nil {
			s.after, err = io.ReadAll(unzipped)
		}
		return err
	})
	return store
}

// reading makes a function that returns a list of a type that can't be named.
func reading[T any](s *storedVolumes, _ func(string) (T, error)) func(string) (T, error) {
	return func(string) (list T, err error) {
		if s.onRead != nil {
			s.onRead()
		}
		s.c.Expect(json.Unmarshal([]byte(s.text), &list)).To(Succeed())
		return list, s.err
	}
}

func operationsOn(items ...velero.ResourceIdentifier) []*itemoperation.BackupOperation {
	return []*itemoperation.BackupOperation{{Spec: itemoperation.BackupOperationSpec{OperationID: "op", PostOperationItems: items}}}
}

// tarballOf is a tarball of config maps, each with one file.
func (c *cluster) tarballOf(names ...string) *bytes.Buffer {
	out := new(bytes.Buffer)
	w, err := archive.NewWriter(out, nil)
	c.Expect(err).NotTo(HaveOccurred())
	for _, name := range names {
		c.Expect(w.Add(archive.File{Path: "resources/configmaps/namespaces/app/" + name + ".json", Data: []byte(`{"before":true}`)})).To(Succeed())
	}
	c.Expect(w.Close()).To(Succeed())
	return out
}

// lookAgain finalizes the cluster's backup with operations on items; before has the config maps a, b and c.
func (c *cluster) lookAgain(items ...velero.ResourceIdentifier) *run {
	c.t.Helper()
	r, err := c.tryToLookAgain(newStoredVolumes(c, `[]`), operationsOn(items...))
	c.Expect(err).NotTo(HaveOccurred())
	return r
}

func (c *cluster) tryToLookAgain(store *storedVolumes, operations []*itemoperation.BackupOperation) (*run, error) {
	c.backup.Status.Phase = velerov1.BackupPhaseFinalizing
	r := &run{c: c}
	err := backup.NewFinalizer(backup.FinalizerDeps{Groups: c.settler, Dynamic: c.dynamic, Discovery: c.helper}).Look(c.ctx, backup.LookRequest{
		Backup: c.backup, Actions: framework.NewBackupItemActionResolverV2(c.actions), Operations: operations,
		Store: store.BackupStore(), StopPlugins: c.stopPlugins, Log: c.logger,
	}, c.tarballOf("a", "b", "c"), &r.tarball)
	return r, err
}

func configMaps(names ...string) (ids []velero.ResourceIdentifier) {
	for _, name := range names {
		ids = append(ids, named("configmaps", "app", name))
	}
	return ids
}

// renewed says whether a config map of the tarball is of the second look.
func (r *run) renewed(name string) bool {
	return r.object("configmaps/namespaces/app/" + name).Object["before"] == nil
}

func TestTheSecondLookReplacesInPlaceAndAppends(t *testing.T) { // 331
	inCluster(t, func(c *cluster) {
		for _, name := range []string{"b", "new", "brought"} {
			c.add(builder.ForConfigMap("app", name).Data("k", "v").Result())
		}
		calls := map[string]int{}
		c.plugin("example.com/x", func(item *unstructured.Unstructured) (*answer, error) {
			calls[item.GetName()]++
			return bringsIn("b", configMaps("brought", "gone")...)(item)
		}, "configmaps")
		r := c.lookAgain(configMaps("missing", "new", "b", "brought", "b")...)
		c.Expect(r.files()).To(Equal([]string{"configmaps app/a", "configmaps app/b", "configmaps app/c", "configmaps app/new", "configmaps app/brought"}))
		c.Expect(r.renewed("a")).To(BeFalse())
		c.Expect(r.renewed("b")).To(BeTrue())
		c.Expect(calls).To(Equal(map[string]int{"b": 1, "new": 1, "brought": 1}), "each once")
		c.Expect(c.errors()).To(ConsistOf(And(HavePrefix("missing: "), ContainSubstring("not found"))))
		c.Expect(c.warnings()).To(ConsistOf(HavePrefix("gone: ")))
	})
}

func TestThePodsAreFirstInTheSecondLook(t *testing.T) { // 109, 329
	inCluster(t, func(c *cluster) {
		c.claims("data")
		c.add(pod("db", "data"), builder.ForConfigMap("app", "new").Result())
		c.actions = nil // Velero's own bring in claims and volumes first
		var order []string
		c.plugin("example.com/x", func(item *unstructured.Unstructured) (*answer, error) {
			order = append(order, item.GetKind())
			return nil, nil
		}, "*")
		r := c.lookAgain(named("configmaps", "app", "new"), named("persistentvolumes", "", volumeOf("data")),
			named("persistentvolumeclaims", "app", "data"), named("pods", "app", "db"))
		c.Expect(order).To(Equal([]string{"Pod", "PersistentVolumeClaim", "PersistentVolume", "ConfigMap"}))
		c.Expect(r.files()).To(ContainElements("pods app/db", "persistentvolumeclaims app/data", "persistentvolumes "+volumeOf("data")))
		c.Expect(c.errors()).To(BeEmpty())
		c.Expect(c.taker.requests()).To(BeEmpty(), "nothing is protected by the second look")
	})
}

func TestAPodWithVolumesIsOnlyWritten(t *testing.T) {
	inCluster(t, func(c *cluster) {
		p := hooked("db", "data")
		p.Annotations[velerov1.VolumesToBackupAnnotation] = "data,scratch"
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
		c.claims("data")
		c.add(p)
		r := c.lookAgain(named("pods", "app", "db"))
		c.Expect(r.files()).To(ContainElement("pods app/db"))
		c.Expect(c.errors()).To(BeEmpty())
		c.Expect(c.events.all()).To(BeEmpty(), "no hook is run (226)")
	})
}

func TestItemsThatFailInTheSecondLook(t *testing.T) {
	cases := map[string]struct {
		do    func(h *hanging) (*answer, error)
		error string
		stops []time.Duration
	}{
		"the plugin begins an operation (192)": {
			do:    func(*hanging) (*answer, error) { return &answer{operationID: "late"}, nil },
			error: "began operation late",
		},
		"the plugin hangs": {
			do:    func(h *hanging) (*answer, error) { return nil, h.hang() },
			error: "no answer for 4h0m0s", stops: []time.Duration{4 * time.Hour},
		},
		"the plugin panics": {
			do:    func(*hanging) (*answer, error) { panic("no such index") },
			error: "no such index",
		},
		"the plugin fails": {
			do:    func(*hanging) (*answer, error) { return nil, errors.New("full") },
			error: "action example.com/x on configmaps app/b: full",
		},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				h := c.withHanging()
				for _, name := range []string{"a", "b", "c"} {
					c.add(builder.ForConfigMap("app", name).Result())
				}
				c.plugin("example.com/x", func(item *unstructured.Unstructured) (*answer, error) {
					if item.GetName() == "b" {
						return test.do(h)
					}
					return nil, nil
				}, "configmaps")
				r := c.lookAgain(configMaps("a", "b", "c")...)
				c.Expect(h.stops).To(Equal(test.stops))
				c.Expect(r.renewed("a")).To(BeTrue())
				c.Expect(r.renewed("b")).To(BeFalse(), "it stays as it was")
				c.Expect(r.renewed("c")).To(BeTrue())
				c.Expect(c.errors()).To(ConsistOf(And(HavePrefix("b: "), ContainSubstring(test.error))))
			})
		})
	}
}

func TestALookThatIsInterruptedIsToBeRepeated(t *testing.T) {
	inCluster(t, func(c *cluster) {
		c.add(builder.ForConfigMap("app", "a").Result())
		shutdown := errors.New("shutting down")
		c.plugin("example.com/x", func(*unstructured.Unstructured) (*answer, error) { c.cancel(shutdown); return nil, nil }, "configmaps")
		_, err := c.tryToLookAgain(newStoredVolumes(c, `[]`), operationsOn(configMaps("a")...))
		c.Expect(err).To(MatchError(shutdown))
	})
}

func TestVolumeInformationTellsTheEnd(t *testing.T) { // 332
	inCluster(t, func(c *cluster) {
		at := func(seconds int64) metav1.Time { return metav1.Unix(seconds, 0).Rfc3339Copy() }
		upload := func(name, claim string, phase velerov2alpha1.DataUploadPhase) *velerov2alpha1.DataUpload {
			done := at(1000)
			return &velerov2alpha1.DataUpload{
				ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: name},
				TypeMeta:   metav1.TypeMeta{APIVersion: "velero.io/v2alpha1", Kind: "DataUpload"},
				Spec:       velerov2alpha1.DataUploadSpec{SourceNamespace: "app", SourcePVC: claim, CSISnapshot: &velerov2alpha1.CSISnapshotSpec{VolumeSnapshot: "kept"}},
				Status: velerov2alpha1.DataUploadStatus{
					Phase: phase, SnapshotID: "id-of-" + claim, CompletionTimestamp: &done, IncrementalBytes: 7,
					Progress: shared.DataMoveOperationProgress{TotalBytes: 70},
				},
			}
		}
		failed := upload("u2", "cancelled", velerov2alpha1.DataUploadPhaseCanceled)
		failed.Spec.CSISnapshot = nil // another data mover
		c.add(upload("u1", "moved", velerov2alpha1.DataUploadPhaseCompleted), failed)
		updated := at(2000)
		operations := []*itemoperation.BackupOperation{
			{Spec: itemoperation.BackupOperationSpec{OperationID: "du-1", PostOperationItems: []velero.ResourceIdentifier{
				named("datauploads.velero.io", "velero", "u1"), named("datauploads.velero.io", "velero", "u2"),
			}}},
			{Spec: itemoperation.BackupOperationSpec{OperationID: "good"}, Status: itemoperation.OperationStatus{Updated: &updated}},
			{Spec: itemoperation.BackupOperationSpec{OperationID: "bad"}, Status: itemoperation.OperationStatus{Updated: &updated, Error: "deleted"}},
		}
		store := newStoredVolumes(c, `[
			{"pvcName":"moved","pvcNamespace":"app","backupMethod":"CSISnapshot","snapshotDataMovementInfo":{"dataMover":"velero","operationID":"du-1"}},
			{"pvcName":"cancelled","pvcNamespace":"app","backupMethod":"CSISnapshot","snapshotDataMovementInfo":{"dataMover":"other"}},
			{"pvcName":"moved","pvcNamespace":"elsewhere","snapshotDataMovementInfo":{}},
			{"pvcName":"ready","backupMethod":"CSISnapshot","csiSnapshotInfo":{"operationID":"good"}},
			{"pvcName":"gone","backupMethod":"CSISnapshot","csiSnapshotInfo":{"operationID":"bad"}},
			{"pvcName":"skipped","skipped":true}]`)
		_, err := c.tryToLookAgain(store, operations)
		c.Expect(err).NotTo(HaveOccurred())
		c.Expect(c.errors()).To(BeEmpty())
		type ended struct {
			PVCName, PVCNamespace, Result string
			CompletionTimestamp           *metav1.Time
			SnapshotDataMovementInfo      *struct {
				RetainedSnapshot, SnapshotHandle, Phase, DataMover string
				Size, IncrementalSize                              int64
			}
		}
		var got []ended
		c.Expect(json.Unmarshal(store.after, &got)).To(Succeed())
		c.Expect(got).To(HaveLen(6))
		for i, result := range []string{"succeeded", "failed", "", "succeeded", "failed", ""} {
			c.Expect(got[i].Result).To(Equal(result), got[i].PVCName)
		}
		c.Expect(got[0].CompletionTimestamp.Unix()).To(Equal(int64(1000)))
		c.Expect(got[3].CompletionTimestamp.Unix()).To(Equal(int64(2000)))
		c.Expect(got[5].CompletionTimestamp).To(BeNil())
		moved := got[0].SnapshotDataMovementInfo
		c.Expect([]any{moved.RetainedSnapshot, moved.SnapshotHandle, moved.Phase, moved.DataMover, moved.Size, moved.IncrementalSize}).
			To(Equal([]any{"kept", "id-of-moved", "Completed", "velero", int64(70), int64(7)}))
		c.Expect(got[1].SnapshotDataMovementInfo.RetainedSnapshot).To(BeEmpty())
	})
}
