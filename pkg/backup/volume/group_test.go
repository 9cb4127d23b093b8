// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package volume_test

import (
	"testing"

	. "github.com/onsi/gomega"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/builder"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/velero-clipper/clipper/pkg/snapshot"
)

func groupClass(name, of string, labelled bool) *unstructured.Unstructured {
	class := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": snapshot.GroupAPI + "/v1", "kind": "VolumeGroupSnapshotClass", "metadata": map[string]any{"name": name}, "driver": of,
	}}
	if labelled {
		class.SetLabels(map[string]string{velerov1.VolumeGroupSnapshotClassDefaultLabel: "true"})
	}
	return class
}

// groupScene is a scene whose claim is in a group with another one, other.
func groupScene() (s *scene, other *corev1.PersistentVolumeClaim) {
	s = newScene()
	s.groupVersion, s.groupErr = "v1", nil
	s.groupClasses = []*unstructured.Unstructured{groupClass("one", driver, true), groupClass("two", driver, false), groupClass("foreign", "other.example.com", true)}
	s.claim.Labels = map[string]string{"velero.io/volume-group": "db"}
	other = builder.ForPersistentVolumeClaim("app", "wal").VolumeName("pv-wal").Phase(corev1.ClaimBound).
		ObjectMeta(builder.WithLabels("velero.io/volume-group", "db")).Result()
	s.others = []runtime.Object{other, builder.ForPersistentVolume("pv-wal").ClaimRef("app", "wal").CSI(driver, "disk-wal").Result()}
	return s, other
}

func TestTheClassOfAGroup(t *testing.T) { // 305
	onBackup := velerov1.VolumeGroupSnapshotClassAnnotationBackupPrefix + driver
	for name, test := range map[string]struct {
		change func(*scene, *corev1.PersistentVolumeClaim)
		class  string
		err    string
	}{
		"the driver's labelled one": {class: "one"},
		"the backup's annotation": {
			change: func(s *scene, _ *corev1.PersistentVolumeClaim) {
				s.backup.Annotations = map[string]string{onBackup: "two"}
			}, class: "two",
		},
		"a claim's annotation comes first": {
			change: func(s *scene, other *corev1.PersistentVolumeClaim) {
				s.backup.Annotations = map[string]string{onBackup: "one"}
				other.Annotations = map[string]string{velerov1.VolumeGroupSnapshotClassAnnotationPVC: "two"}
			}, class: "two",
		},
		"annotations that differ": {
			change: func(s *scene, other *corev1.PersistentVolumeClaim) {
				s.claim.Annotations = map[string]string{velerov1.VolumeGroupSnapshotClassAnnotationPVC: "one"}
				other.Annotations = map[string]string{velerov1.VolumeGroupSnapshotClassAnnotationPVC: "two"}
			}, err: "name different classes",
		},
		"a class of another driver": {
			change: func(s *scene, _ *corev1.PersistentVolumeClaim) {
				s.claim.Annotations = map[string]string{velerov1.VolumeGroupSnapshotClassAnnotationPVC: "foreign"}
			}, err: "no VolumeGroupSnapshotClass foreign for CSI driver",
		},
		"two labelled ones": {
			change: func(s *scene, _ *corev1.PersistentVolumeClaim) {
				s.groupClasses = append(s.groupClasses, groupClass("three", driver, true))
			}, err: "[one three]",
		},
		"none": {change: func(s *scene, _ *corev1.PersistentVolumeClaim) { s.groupClasses = s.groupClasses[1:] }, err: "exactly one must have the label"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			s, other := groupScene()
			if test.change != nil {
				test.change(s, other)
			}
			plan, err := s.plan(t)
			if test.err != "" {
				g.Expect(err).To(MatchError(ContainSubstring(test.err)))
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(plan.Request.Group).To(Equal(&snapshot.Group{
				LabelKey: "velero.io/volume-group", Name: "db", Version: "v1", Class: test.class, VolumeHandle: "disk",
			}))
			g.Expect(plan.Request.Class).To(Equal("fast"), "for the time after the group")
			g.Expect(plan.Warning).To(BeEmpty())
		})
	}
}

func TestWhoIsInAGroup(t *testing.T) { // 304
	for name, test := range map[string]struct {
		change func(*scene, *corev1.PersistentVolumeClaim)
		err    string
	}{
		"a claim that isn't bound": {
			change: func(_ *scene, other *corev1.PersistentVolumeClaim) { other.Status.Phase = corev1.ClaimPending }, err: "claim wal of the group isn't bound",
		},
		"a claim of another driver": {
			change: func(s *scene, _ *corev1.PersistentVolumeClaim) {
				s.others[1] = builder.ForPersistentVolume("pv-wal").CSI("other.example.com", "disk").Result()
			}, err: "a group has one driver",
		},
		"a claim of another group": {
			change: func(_ *scene, other *corev1.PersistentVolumeClaim) {
				other.Labels["velero.io/volume-group"], other.Status.Phase = "other", corev1.ClaimPending
			},
		},
		"of another namespace": {
			change: func(_ *scene, other *corev1.PersistentVolumeClaim) {
				other.Namespace, other.Status.Phase = "other", corev1.ClaimPending
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, other := groupScene()
			test.change(s, other)
			_, err := s.plan(t)
			if test.err == "" {
				NewWithT(t).Expect(err).NotTo(HaveOccurred())
				return
			}
			NewWithT(t).Expect(err).To(MatchError(And(ContainSubstring("volume group db"), ContainSubstring(test.err))))
		})
	}
}

func TestAClaimThatIsRefusedIsWarnedOf(t *testing.T) { // 304
	g := NewWithT(t)
	s, _ := groupScene()
	s.refuse = "wal"
	plan, err := s.plan(t)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(plan.Request.Group).NotTo(BeNil())
	g.Expect(plan.Warning).To(And(ContainSubstring("volume group db"), HaveSuffix(": wal")))
}
