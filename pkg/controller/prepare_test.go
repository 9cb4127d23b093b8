// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package controller

import (
	"context"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	"github.com/sirupsen/logrus"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

func TestDefaultsFillOnlyWhatTheSpecLeavesOpen(t *testing.T) { // 29 to 31, 33
	t.Run("open", func(t *testing.T) {
		g := NewWithT(t)
		h := newHarness(t)
		original := ready("b")
		j := h.prepare(t, original)

		g.Expect(j.backup.Status.ValidationErrors).To(BeEmpty())
		spec := j.backup.Spec
		g.Expect(spec.TTL.Duration).To(Equal(720 * time.Hour))
		g.Expect(spec.VolumeGroupSnapshotLabelKey).To(Equal("velero.io/volume-group"))
		g.Expect(spec.CSISnapshotTimeout.Duration).To(Equal(10 * time.Minute))
		g.Expect(spec.ItemOperationTimeout.Duration).To(Equal(4 * time.Hour))
		g.Expect(spec.DefaultVolumesToFsBackup).To(HaveValue(BeFalse()))
		g.Expect(spec.SnapshotMoveData).To(HaveValue(BeFalse()))
		g.Expect(spec.IncludedNamespaces).To(Equal([]string{"*"}), "46")
		g.Expect(j.backup.Status.Version).To(Equal(1))
		g.Expect(j.backup.Status.FormatVersion).To(Equal("1.1.0"))
		g.Expect(j.backup.Status.Expiration.Time).To(Equal(now.Add(720 * time.Hour)))
		g.Expect(original).To(Equal(ready("b")), "the cached object must not change (26)")
	})
	t.Run("server's other defaults", func(t *testing.T) {
		g := NewWithT(t)
		h := newHarness(t, func(s *setup) { s.options.Defaults.VolumesToFsBackup, s.options.Defaults.SnapshotMoveData = true, true })
		spec := h.prepare(t, ready("b")).backup.Spec
		g.Expect(spec.DefaultVolumesToFsBackup).To(HaveValue(BeTrue()))
		g.Expect(spec.SnapshotMoveData).To(HaveValue(BeTrue()))
	})
	t.Run("set", func(t *testing.T) {
		g := NewWithT(t)
		h := newHarness(t, func(s *setup) { s.options.Defaults.VolumesToFsBackup, s.options.Defaults.SnapshotMoveData = true, true })
		j := h.prepare(t, ready("b", func(b *velerov1.Backup) {
			b.Spec = velerov1.BackupSpec{
				TTL: metav1.Duration{Duration: time.Hour}, VolumeGroupSnapshotLabelKey: "group",
				CSISnapshotTimeout: metav1.Duration{Duration: time.Minute}, ItemOperationTimeout: metav1.Duration{Duration: 2 * time.Minute},
				DefaultVolumesToFsBackup: ptr.To(false), SnapshotMoveData: ptr.To(false), IncludedNamespaces: []string{"app"},
			}
		}))
		g.Expect(j.backup.Status.ValidationErrors).To(BeEmpty())
		spec := j.backup.Spec
		g.Expect(spec.TTL.Duration).To(Equal(time.Hour))
		g.Expect(spec.VolumeGroupSnapshotLabelKey).To(Equal("group"))
		g.Expect(spec.CSISnapshotTimeout.Duration).To(Equal(time.Minute))
		g.Expect(spec.ItemOperationTimeout.Duration).To(Equal(2 * time.Minute))
		g.Expect(spec.DefaultVolumesToFsBackup).To(HaveValue(BeFalse()))
		g.Expect(spec.SnapshotMoveData).To(HaveValue(BeFalse()))
		g.Expect(spec.IncludedNamespaces).To(Equal([]string{"app"}))
		g.Expect(j.backup.Status.Expiration.Time).To(Equal(now.Add(time.Hour)))
	})
}

func TestDeprecatedResticField(t *testing.T) { // 32
	for _, c := range []struct {
		name     string
		restic   *bool
		fsBackup *bool
		want     bool
		warnings int
	}{
		{"true overrides", ptr.To(true), ptr.To(false), true, 1},
		{"false says nothing", ptr.To(false), ptr.To(true), true, 0},
		{"false leaves the default", ptr.To(false), nil, false, 0},
		{"absent", nil, ptr.To(true), true, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := NewWithT(t)
			h := newHarness(t)
			j := h.prepare(t, ready("b", func(b *velerov1.Backup) {
				b.Spec.DefaultVolumesToRestic, b.Spec.DefaultVolumesToFsBackup = c.restic, c.fsBackup //nolint:staticcheck // the old field is what is tested
			}))
			g.Expect(j.backup.Spec.DefaultVolumesToFsBackup).To(HaveValue(Equal(c.want)))
			g.Expect(h.log.AllEntries()).To(HaveLen(c.warnings))
			for _, entry := range h.log.AllEntries() {
				g.Expect(entry.Level).To(Equal(logrus.WarnLevel))
				g.Expect(entry.Message).To(ContainSubstring("defaultVolumesToRestic is deprecated"))
			}
		})
	}
}

func TestStorageLocation(t *testing.T) { // 34 to 36
	isDefault := func(l *velerov1.BackupStorageLocation) { l.Spec.Default = true }
	elsewhere := func(l *velerov1.BackupStorageLocation) { l.Namespace = "other" }
	readOnly := func(l *velerov1.BackupStorageLocation) {
		l.Spec.AccessMode = velerov1.BackupStorageLocationAccessModeReadOnly
	}
	unavailable := func(l *velerov1.BackupStorageLocation) {
		l.Status = velerov1.BackupStorageLocationStatus{Phase: velerov1.BackupStorageLocationPhaseUnavailable, Message: "no such bucket"}
	}
	unchecked := func(l *velerov1.BackupStorageLocation) { l.Status.Phase = "" }
	long := strings.Repeat("l", 70)

	for _, c := range []struct {
		name    string
		asked   string
		objects []client.Object
		getErr  error
		want    string
		refused []string
	}{
		{name: "the server's default", objects: []client.Object{storageLocation("default"), storageLocation("other")}, want: "default"},
		{name: "a default location wins", objects: []client.Object{storageLocation("default"), storageLocation("main", isDefault)}, want: "main"},
		{name: "not that of another namespace", objects: []client.Object{storageLocation("default"), storageLocation("main", isDefault, elsewhere)}, want: "default"},
		{name: "the spec wins", asked: "mine", objects: []client.Object{storageLocation("mine"), storageLocation("main", isDefault)}, want: "mine"},
		{name: "long name", asked: long, objects: []client.Object{storageLocation(long)}, want: long},
		{name: "no default", want: "default", refused: []string{`names no storage location and the default location "default" doesn't exist`}},
		{name: "missing", asked: "gone", objects: []client.Object{storageLocation("default")}, want: "gone", refused: []string{`spec.storageLocation: location "gone" doesn't exist`}},
		{name: "unreadable", asked: "mine", getErr: errBoom, want: "mine", refused: []string{`storage location "mine" can't be read: boom`}},
		{name: "read-only", objects: []client.Object{storageLocation("default", readOnly)}, want: "default", refused: []string{`"default" is in read-only mode`}},
		{name: "unavailable", objects: []client.Object{storageLocation("default", unavailable)}, want: "default", refused: []string{`"default" is unavailable: no such bucket`}},
		{name: "not checked yet", objects: []client.Object{storageLocation("default", unchecked)}, want: "default", refused: []string{`"default" is unavailable`}},
		{name: "both", objects: []client.Object{storageLocation("default", readOnly, unavailable)}, want: "default", refused: []string{"read-only", "unavailable"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := NewWithT(t)
			h := newHarness(t, withoutLocation, with(c.objects...), intercepting(interceptor.Funcs{
				Get: func(ctx context.Context, cl client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
					if _, ok := object.(*velerov1.BackupStorageLocation); ok && c.getErr != nil {
						return c.getErr
					}
					return cl.Get(ctx, key, object, options...)
				},
			}))
			j := h.prepare(t, ready("b", func(b *velerov1.Backup) { b.Spec.StorageLocation = c.asked }))

			g.Expect(j.backup.Spec.StorageLocation).To(Equal(c.want))
			expectRefusals(t, j, c.refused...)
			stored := j.backup.Labels[velerov1.StorageLocationLabel]
			g.Expect(len(stored)).To(And(BeNumerically(">", 0), BeNumerically("<=", 63)))
			g.Expect(c.want).To(HavePrefix(stored[:min(len(stored), 40)]))
			if len(c.refused) == 0 {
				g.Expect(j.location.Name).To(Equal(c.want))
			}
		})
	}
}

// expectRefusals checks that there is one validation error for each text, in order.
func expectRefusals(t testing.TB, j *job, texts ...string) {
	t.Helper()
	g := NewWithT(t)
	g.Expect(j.backup.Status.ValidationErrors).To(HaveLen(len(texts)))
	for i, text := range texts {
		g.Expect(j.backup.Status.ValidationErrors[i]).To(ContainSubstring(text))
	}
}

func TestAnnotationsSayWhereABackupComesFrom(t *testing.T) { // 40
	g := NewWithT(t)
	h := newHarness(t)
	j := h.prepare(t, ready("b", func(b *velerov1.Backup) { b.Annotations = map[string]string{"mine": "stays"} }))
	g.Expect(j.backup.Annotations).To(Equal(map[string]string{
		"mine": "stays",
		"velero.io/source-cluster-k8s-gitversion":    "v1.34.4",
		"velero.io/source-cluster-k8s-major-version": "1",
		"velero.io/source-cluster-k8s-minor-version": "34",
		"velero.io/resource-timeout":                 "10m0s",
	}))
}

func TestLabelledNamespacesAreExcluded(t *testing.T) { // 41
	labelled := func(name, value string) *corev1.Namespace {
		return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{velerov1.ExcludeFromBackupLabel: value}}}
	}
	t.Run("appended", func(t *testing.T) {
		h := newHarness(t, with(labelled("cache", "true"), labelled("app", "false"), labelled("scratch", "true")))
		j := h.prepare(t, ready("b", func(b *velerov1.Backup) { b.Spec.ExcludedNamespaces = []string{"mine"} }))
		expectRefusals(t, j)
		NewWithT(t).Expect(j.backup.Spec.ExcludedNamespaces).To(HaveExactElements("mine", "cache", "scratch"))
	})
	t.Run("can't be listed", func(t *testing.T) {
		h := newHarness(t, intercepting(failingList(new(corev1.NamespaceList))))
		expectRefusals(t, h.prepare(t, ready("b")), "the namespaces with label velero.io/exclude-from-backup=true can't be listed: boom")
	})
}

// failingList makes lists of one type fail.
func failingList[T client.ObjectList](T) interceptor.Funcs {
	return interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
		if _, fails := list.(T); fails {
			return errBoom
		}
		return c.List(ctx, list, options...)
	}}
}
