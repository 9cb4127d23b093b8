// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"bytes"
	"errors"
	"io"
	"testing"

	. "github.com/onsi/gomega"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/builder"
	"github.com/vmware-tanzu/velero/pkg/util/encode"

	"github.com/velero-clipper/clipper/internal/velero"
	"github.com/velero-clipper/clipper/pkg/backup"
	"github.com/velero-clipper/clipper/pkg/backup/volume"
)

// takeVolumes makes the engine return a backup that has everything that can be uploaded.
func takeVolumes(h *harness) {
	h.engine.run = func(request backup.Request, out io.Writer) (*backup.Result, error) {
		_, err := io.WriteString(out, "tarball")
		return &backup.Result{
			Resources: map[string][]string{"v1/Pod": {"app/a"}},
			Volumes:   volume.NewLedger(request.Backup),
		}, err
	}
}

func TestUploadedFiles(t *testing.T) { // 70 to 72, 75
	g := NewWithT(t)
	h := newHarness(t, with(ready("b")))
	takeVolumes(h)
	h.reconcile(t, "b")

	g.Expect(h.bucket.files(t, "b")).To(ConsistOf(
		"velero-backup.json", "b.tar.gz", "b-logs.gz", "b-podvolumebackups.json.gz", "b-volumesnapshots.json.gz", "b-itemoperations.json.gz",
		"b-resource-list.json.gz", "b-results.gz", "b-volumeinfo.json.gz",
	))
	g.Expect(string(h.bucket.read(t, "b", "b.tar.gz"))).To(Equal("tarball"))
	resources := map[string][]string{}
	h.bucket.decode(t, "b", "b-resource-list.json.gz", &resources)
	g.Expect(resources).To(Equal(map[string][]string{"v1/Pod": {"app/a"}}))
	uploaded := new(velerov1.Backup)
	h.bucket.decode(t, "b", "velero-backup.json", uploaded)
	g.Expect(uploaded.Kind).To(Equal("Backup"))
	g.Expect(uploaded.Status.Phase).To(Equal(velerov1.BackupPhaseFinalizing))
	g.Expect(uploaded.Spec.IncludedNamespaces).To(Equal([]string{"*"}))
	for _, list := range []string{"b-podvolumebackups.json.gz", "b-volumesnapshots.json.gz", "b-itemoperations.json.gz"} {
		var empty []any
		h.bucket.decode(t, "b", list, &empty)
		g.Expect(empty).To(BeEmpty())
	}
	var operations any
	h.bucket.decode(t, "b", "b-itemoperations.json.gz", &operations)
	g.Expect(operations).To(Equal([]any{}), "an empty list, not null")
	g.Expect(h.bucket.opened).To(Equal(2), "credentials may have changed while the backup ran")
}

func TestUploadedVolumes(t *testing.T) { // 71, 257, 269, 347
	g := NewWithT(t)
	h := newHarness(t, with(ready("b"), builder.ForPod("app", "db").Volumes(builder.ForVolume("files").Result()).Result()))
	h.engine.run = func(request backup.Request, _ io.Writer) (*backup.Result, error) {
		volumes := volume.NewLedger(request.Backup)
		volumes.Volume(builder.ForPersistentVolume("pv").ClaimRef("app", "data").Result())
		volumes.NativeSnapshot(velero.NativeSnapshot{Location: "native", Volume: "pv", VolumeID: "vol-1", SnapshotID: "snap-1"})
		pvb := builder.ForPodVolumeBackup("velero", "b-1").PodName("db").PodNamespace("app").Volume("files").Phase(velerov1.PodVolumeBackupPhaseFailed).Result()
		volumes.PodVolumeBackups([]*velerov1.PodVolumeBackup{pvb})
		return &backup.Result{Volumes: volumes, PodVolumeBackups: []*velerov1.PodVolumeBackup{pvb}}, nil
	}
	h.reconcile(t, "b")

	var snapshots, pvbs, info []map[string]any
	h.bucket.decode(t, "b", "b-volumesnapshots.json.gz", &snapshots)
	g.Expect(snapshots).To(HaveLen(1))
	g.Expect(snapshots[0]["status"]).To(Equal(map[string]any{"providerSnapshotID": "snap-1", "phase": "Completed"}))
	h.bucket.decode(t, "b", "b-podvolumebackups.json.gz", &pvbs)
	g.Expect(pvbs).To(HaveLen(1))
	h.bucket.decode(t, "b", "b-volumeinfo.json.gz", &info)
	g.Expect(info).To(ConsistOf(
		And(HaveKeyWithValue("backupMethod", "NativeSnapshot"), HaveKeyWithValue("pvcName", "data"), HaveKeyWithValue("result", "succeeded")),
		And(HaveKeyWithValue("backupMethod", "PodVolumeBackup"), HaveKeyWithValue("result", "failed")),
	))
}

func TestFailedUploadFailsTheBackup(t *testing.T) { // 74, 77
	for _, c := range []struct {
		file string
		// left is what stays in the store.
		left []string
	}{
		{"velero-backup.json", []string{"b-logs.gz"}},
		{"b.tar.gz", []string{"b-logs.gz"}},
	} {
		t.Run(c.file, func(t *testing.T) {
			g := NewWithT(t)
			h := newHarness(t, with(ready("b")))
			takeVolumes(h)
			h.bucket.failing[c.file] = errBoom
			failed := h.reconcile(t, "b")
			g.Expect(failed.Status.Phase).To(Equal(velerov1.BackupPhaseFailed))
			g.Expect(failed.Status.FailureReason).To(Equal("the backup could not be completed: uploading backup b to storage location default: boom"))
			g.Expect(failed.Status.CompletionTimestamp.Time).To(BeTemporally("==", now))
			g.Expect(h.bucket.files(t, "b")).To(Equal(c.left))
			g.Expect(h.tracker.calls).To(Equal([]string{"add velero/b", "delete velero/b"}))
		})
	}

	t.Run("another file", func(t *testing.T) {
		g := NewWithT(t)
		h := newHarness(t, with(ready("b")))
		takeVolumes(h)
		h.bucket.failing["b-results.gz"] = errBoom
		g.Expect(h.reconcile(t, "b").Status.Phase).To(Equal(velerov1.BackupPhaseFailed))
		g.Expect(h.bucket.files(t, "b")).NotTo(ContainElements("velero-backup.json", "b.tar.gz"))
	})
	t.Run("but not that of the log", func(t *testing.T) {
		g := NewWithT(t)
		h := newHarness(t, with(ready("b")))
		takeVolumes(h)
		h.bucket.failing["b-logs.gz"] = errBoom
		g.Expect(h.reconcile(t, "b").Status.Phase).To(Equal(velerov1.BackupPhaseFinalizing))
		g.Expect(h.bucket.files(t, "b")).To(ContainElements("velero-backup.json", "b.tar.gz"))
	})
	t.Run("with the engine's error", func(t *testing.T) {
		g := NewWithT(t)
		h := newHarness(t, with(ready("b")))
		h.engine.returns(&backup.Result{}, errors.New("no namespaces"))
		h.bucket.failing["velero-backup.json"] = errBoom
		g.Expect(h.reconcile(t, "b").Status.FailureReason).To(And(ContainSubstring("no namespaces"), ContainSubstring("boom")))
	})
	t.Run("the store is gone", func(t *testing.T) {
		g := NewWithT(t)
		h := newHarness(t, with(ready("b")))
		h.engine.run = func(backup.Request, io.Writer) (*backup.Result, error) {
			h.plugins.storeErr = errBoom
			return &backup.Result{}, nil
		}
		failed := h.reconcile(t, "b")
		g.Expect(failed.Status.Phase).To(Equal(velerov1.BackupPhaseFailed))
		g.Expect(failed.Status.FailureReason).To(ContainSubstring("opening storage location default for the upload: boom"))
	})
}

func TestFailedEncodingUploadsTheLogOnly(t *testing.T) { // 73
	for _, what := range []string{"native volume snapshots", "item operations", "resource list", "results", "volume information", "CSI snapshot classes"} {
		t.Run(what, func(t *testing.T) {
			g := NewWithT(t)
			h := newHarness(t, with(ready("b")))
			takeVolumes(h)
			h.reconciler.encode = func(data any, name string) (*bytes.Buffer, []error) {
				if name == what {
					return nil, []error{errBoom}
				}
				return encode.ToJSONGzip(data, name)
			}
			failed := h.reconcile(t, "b")
			g.Expect(failed.Status.Phase).To(Equal(velerov1.BackupPhaseFailed))
			g.Expect(failed.Status.FailureReason).To(Equal("the backup could not be completed: encoding the backup's files: boom"))
			g.Expect(h.bucket.files(t, "b")).To(ConsistOf("b-logs.gz", "b-podvolumebackups.json.gz"))
		})
	}
	t.Run("pod volume backups", func(t *testing.T) {
		g := NewWithT(t)
		h := newHarness(t, with(ready("b")))
		h.reconciler.encode = func(any, string) (*bytes.Buffer, []error) { return nil, []error{errBoom} }
		failed := h.reconcile(t, "b")
		g.Expect(failed.Status.Phase).To(Equal(velerov1.BackupPhaseFailed))
		g.Expect(failed.Status.FailureReason).To(And(ContainSubstring("boom"), Not(ContainSubstring("panic"))), "what wasn't encoded must not be uploaded")
		g.Expect(h.bucket.files(t, "b")).To(ConsistOf("b-logs.gz"))
	})
}
