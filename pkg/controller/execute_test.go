// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"io"
	"os"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/sirupsen/logrus"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	velero "github.com/vmware-tanzu/velero/pkg/plugin/velero"
	"github.com/vmware-tanzu/velero/pkg/util/results"

	"github.com/velero-clipper/clipper/pkg/backup"
	"github.com/velero-clipper/clipper/pkg/hook"
)

func TestPhaseAfterTheRun(t *testing.T) { // 57, 68, 69
	for _, c := range []struct {
		name     string
		errors   int
		warnings int
		running  bool
		err      error
		want     velerov1.BackupPhase
	}{
		{name: "nothing wrong", want: velerov1.BackupPhaseFinalizing},
		{name: "warnings change nothing", warnings: 3, want: velerov1.BackupPhaseFinalizing},
		{name: "an error line", errors: 1, want: velerov1.BackupPhaseFinalizingPartiallyFailed},
		{name: "operations go on", running: true, want: velerov1.BackupPhaseWaitingForPluginOperations},
		{name: "operations go on after an error line", errors: 2, warnings: 1, running: true, want: velerov1.BackupPhaseWaitingForPluginOperationsPartiallyFailed},
		{name: "the engine failed", err: errBoom, want: velerov1.BackupPhaseFailed},
		{name: "the engine failed while operations go on", errors: 1, running: true, err: errBoom, want: velerov1.BackupPhaseFailed},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := NewWithT(t)
			h := newHarness(t, with(ready("b")))
			h.plugins.actions["a"] = &action{progress: func(string) (velero.OperationProgress, error) {
				return velero.OperationProgress{Completed: !c.running}, nil
			}}
			h.engine.run = func(request backup.Request, _ io.Writer) (*backup.Result, error) {
				for range c.warnings {
					request.Log.Warn("something is odd")
				}
				for range c.errors {
					request.Log.Error("something is wrong")
				}
				return &backup.Result{Operations: operationsOf("a")}, c.err
			}
			ended := h.reconcile(t, "b")
			g.Expect(ended.Status.Phase).To(Equal(c.want))
			g.Expect(ended.Status.Warnings).To(Equal(c.warnings))
			g.Expect(h.tracker.calls).To(HaveLen(2))

			uploaded := new(velerov1.Backup)
			h.bucket.decode(t, "b", "velero-backup.json", uploaded)
			g.Expect(uploaded.Status.Phase).To(Equal(c.want), "75")
			if c.want == velerov1.BackupPhaseFailed {
				g.Expect(ended.Status.CompletionTimestamp.Time).To(BeTemporally("==", now))
				g.Expect(ended.Status.Errors).To(Equal(c.errors+1), "the engine's own error is an error line as well")
				g.Expect(ended.Status.Progress).To(BeNil(), "it didn't come to any item")
				g.Expect(ended.Status.HookStatus).To(BeNil())
				g.Expect(h.tracker.calls[1]).To(Equal("delete velero/b"))
				return
			}
			g.Expect(ended.Status.CompletionTimestamp).To(BeNil())
			g.Expect(ended.Status.FailureReason).To(BeEmpty())
			g.Expect(ended.Status.Errors).To(Equal(c.errors))
			g.Expect(h.tracker.calls[1]).To(Equal("post velero/b"))
		})
	}
}

func TestWarningsAndErrorsAreInTheResultsFile(t *testing.T) { // 56, 346
	g := NewWithT(t)
	h := newHarness(t, with(ready("b")))
	h.engine.run = func(request backup.Request, _ io.Writer) (*backup.Result, error) {
		request.Log.Info("all is well")
		request.Log.WithField("namespace", "app").WithField("name", "data").WithField("resource", "persistentvolumeclaims").WithError(errBoom).Error("can't be backed up")
		request.Log.Warn("not in a namespace")
		return &backup.Result{}, nil
	}
	h.reconcile(t, "b")

	found := map[string]results.Result{}
	h.bucket.decode(t, "b", "b-results.gz", &found)
	g.Expect(found).To(HaveLen(2))
	g.Expect(found["errors"].Namespaces["app"]).To(ConsistOf(And(
		ContainSubstring("persistentvolumeclaims"), ContainSubstring("data"), ContainSubstring("can't be backed up"), ContainSubstring("boom"))))
	g.Expect(found["errors"].Velero).To(BeEmpty())
	g.Expect(found["warnings"].Velero).To(ConsistOf(ContainSubstring("not in a namespace")))
	g.Expect(string(h.bucket.read(t, "b", "b-logs.gz"))).To(And(ContainSubstring("all is well"), ContainSubstring("backup=velero/b")))
}

func TestFreezeWindowsAreInTheResultsFile(t *testing.T) {
	g := NewWithT(t)
	h := newHarness(t, with(ready("b")))
	h.engine.returns(&backup.Result{FreezeWindows: []hook.Window{
		{Namespace: "app", Pod: "db-0", Start: now, End: now.Add(2345 * time.Millisecond)},
		{Namespace: "app", Pod: "db-1", Start: now, End: now.Add(time.Second)},
		{Namespace: "shop", Pod: "db-0", Start: now, End: now.Add(time.Second)},
	}}, nil)
	h.reconcile(t, "b")

	found := map[string]results.Result{} // as Velero reads it
	h.bucket.decode(t, "b", "b-results.gz", &found)
	windows := found["freezeWindows"].Namespaces
	g.Expect(windows).To(HaveLen(2))
	g.Expect(windows["app"]).To(ConsistOf(ContainSubstring("pod db-0 was frozen for 2.345 s"), ContainSubstring("pod db-1 was frozen for 1.000 s")))
	g.Expect(windows["app"][0]).To(ContainSubstring(now.UTC().Format(time.RFC3339)[:19]))
}

func TestExistingBackupIsNotOverwritten(t *testing.T) { // 60
	const metadata = "backups/b/velero-backup.json"
	for _, c := range []struct {
		name   string
		before func(*harness)
		want   string
	}{
		{"exists", func(h *harness) { h.bucket.objects[metadata] = []byte("old") }, "storage location default has a backup named b already; choose another name"},
		{"can't be looked for", func(h *harness) { h.bucket.existsErr = errBoom }, "looking for a backup named b in storage location default: boom"},
		{"the store can't be opened", func(h *harness) { h.plugins.storeErr = errBoom }, "opening storage location default: boom"},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := NewWithT(t)
			h := newHarness(t, with(ready("b")))
			c.before(h)
			before := len(h.bucket.objects)
			failed := h.reconcile(t, "b")
			g.Expect(failed.Status.Phase).To(Equal(velerov1.BackupPhaseFailed))
			g.Expect(failed.Status.FailureReason).To(Equal("the backup could not be completed: " + c.want))
			g.Expect(failed.Status.CompletionTimestamp.Time).To(BeTemporally("==", now))
			g.Expect(h.engine.requests).To(BeEmpty())
			g.Expect(h.bucket.objects).To(HaveLen(before), "nothing is written")
			g.Expect(h.tracker.calls).To(Equal([]string{"add velero/b", "delete velero/b"}))
			g.Expect(h.plugins.cleanedUp).To(Equal(2))
			if before > 0 {
				g.Expect(string(h.bucket.objects[metadata])).To(Equal("old"))
			}
		})
	}

	t.Run("looked for where it will be written", func(t *testing.T) {
		g := NewWithT(t)
		slashes := storageLocation("default", func(l *velerov1.BackupStorageLocation) {
			l.Spec.ObjectStorage = &velerov1.ObjectStorageLocation{Bucket: "/bucket/", Prefix: "cluster"}
		})
		h := newHarness(t, withoutLocation, with(slashes, ready("b")))
		g.Expect(h.reconcile(t, "b").Status.Phase).To(Equal(velerov1.BackupPhaseFinalizing))
		g.Expect(h.bucket.asked).To(Equal([]string{"bucket:cluster/backups/b/velero-backup.json"}))
	})
}

func TestFailedRunIsUploadedAllTheSame(t *testing.T) { // 61; 59 with a log
	for _, c := range []struct {
		name    string
		before  func(*harness)
		want    string
		tarball string
	}{
		{"the engine failed", func(h *harness) {
			h.engine.returns(&backup.Result{Resources: map[string][]string{"v1/Pod": {"app/a"}}}, errBoom)
		}, "boom", "tarball"},
		{"no item actions", func(h *harness) { h.plugins.itemErr = errBoom }, "starting the backup item action plugins: boom", ""},
		{"no block actions", func(h *harness) { h.plugins.blockErr = errBoom }, "starting the item block action plugins: boom", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := NewWithT(t)
			h := newHarness(t, with(ready("b")))
			c.before(h)
			failed := h.reconcile(t, "b")
			g.Expect(failed.Status.Phase).To(Equal(velerov1.BackupPhaseFailed))
			g.Expect(failed.Status.FailureReason).To(Equal("the backup could not be completed: " + c.want))
			g.Expect(failed.Status.Errors).To(Equal(1))
			g.Expect(h.bucket.files(t, "b")).To(ContainElements("b-logs.gz", "b-results.gz", "b.tar.gz", "b-resource-list.json.gz", "velero-backup.json"))
			g.Expect(string(h.bucket.read(t, "b", "b-logs.gz"))).To(ContainSubstring(c.want))
			g.Expect(string(h.bucket.read(t, "b", "b.tar.gz"))).To(Equal(c.tarball))
			uploaded := new(velerov1.Backup)
			h.bucket.decode(t, "b", "velero-backup.json", uploaded)
			g.Expect(uploaded.Status.FailureReason).To(Equal(failed.Status.FailureReason))
		})
	}
}

func TestTemporaryFilesAreRemoved(t *testing.T) { // 78
	for _, c := range []struct {
		name   string
		before func(*harness)
	}{
		{"after a run", func(h *harness) { h.engine.returns(&backup.Result{}, nil) }},
		{"after a refusal", func(h *harness) { h.bucket.existsErr = errBoom }},
		{"after a panic", func(h *harness) {
			h.engine.run = func(backup.Request, io.Writer) (*backup.Result, error) { panic("boom") }
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := NewWithT(t)
			dir := t.TempDir()
			t.Setenv("TMPDIR", dir)
			h := newHarness(t, with(ready("b")))
			c.before(h)
			h.reconcile(t, "b")
			g.Expect(os.ReadDir(dir)).To(BeEmpty())
			g.Expect(h.log.AllEntries()).NotTo(ContainElement(HaveField("Level", logrus.WarnLevel)))
		})
	}

	t.Run("no room for them", func(t *testing.T) {
		g := NewWithT(t)
		h := newHarness(t, with(ready("b")))
		t.Setenv("TMPDIR", t.TempDir()+"/missing")
		failed := h.reconcile(t, "b")
		g.Expect(failed.Status.Phase).To(Equal(velerov1.BackupPhaseFailed))
		g.Expect(failed.Status.FailureReason).To(ContainSubstring("creating the backup's log"))
	})
}

func TestCompletionTimeIsThatOfTheFailure(t *testing.T) {
	g := NewWithT(t)
	h := newHarness(t, with(ready("b")))
	h.engine.run = func(backup.Request, io.Writer) (*backup.Result, error) {
		h.clock.SetTime(now.Add(90 * time.Second))
		return &backup.Result{}, errBoom
	}
	failed := h.reconcile(t, "b")
	g.Expect(failed.Status.StartTimestamp.Time).To(BeTemporally("==", now))
	g.Expect(failed.Status.CompletionTimestamp.Time).To(BeTemporally("==", now.Add(90*time.Second)))
}
