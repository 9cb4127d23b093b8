// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package volume_test

import (
	"errors"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	. "github.com/onsi/gomega"
	gomegatypes "github.com/onsi/gomega/types"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/builder"
	"github.com/vmware-tanzu/velero/pkg/kuberesource"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"github.com/velero-clipper/clipper/pkg/backup/volume"
	"github.com/velero-clipper/clipper/pkg/snapshot"
)

const driver = "csi.example.com"

// decider gives one answer for everything.
type decider struct {
	yes bool
	err error
	// action of the volume policy that matches everything but claims that aren't bound; empty when there is none.
	action    string
	actionErr error
}

func (d decider) ShouldPerformSnapshot(runtime.Unstructured, schema.GroupResource) (bool, error) {
	return d.yes, d.err
}

func (d decider) GetActionParameters(object runtime.Unstructured, gr schema.GroupResource) (bool, string, map[string]any, error) {
	phase, _, _ := unstructured.NestedString(object.UnstructuredContent(), "status", "phase")
	if d.action == "" || gr == kuberesource.PersistentVolumeClaims && phase != string(corev1.ClaimBound) {
		return false, "", nil, d.actionErr
	}
	return true, d.action, nil, d.actionErr
}

// refusingOne answers no for one claim.
type refusingOne struct {
	decider
	claim string
}

func (r refusingOne) ShouldPerformSnapshot(object runtime.Unstructured, gr schema.GroupResource) (bool, error) {
	if name, _, _ := unstructured.NestedString(object.UnstructuredContent(), "metadata", "name"); name == r.claim {
		return false, nil
	}
	return r.decider.ShouldPerformSnapshot(object, gr)
}

// scene is a claim with its volume, and the cluster round it.
type scene struct {
	backup  *velerov1.Backup
	claim   *corev1.PersistentVolumeClaim
	volume  *corev1.PersistentVolume
	classes []*snapshotv1.VolumeSnapshotClass
	decider decider

	groupVersion string
	groupErr     error
	groupClasses []*unstructured.Unstructured
	others       []runtime.Object
	// refuse is a claim of which no snapshot is wanted.
	refuse string
}

func newScene() *scene {
	return &scene{
		backup: builder.ForBackup("velero", "nightly").CSISnapshotTimeout(7 * time.Minute).
			VolumeGroupSnapshotLabelKey("velero.io/volume-group").Result(),
		claim: builder.ForPersistentVolumeClaim("app", "data").ObjectMeta(builder.WithUID("uid-of-data")).VolumeName("pv").
			StorageClass("standard").Phase(corev1.ClaimBound).Result(),
		volume:   builder.ForPersistentVolume("pv").ClaimRef("app", "data").CSI(driver, "disk").Result(),
		classes:  []*snapshotv1.VolumeSnapshotClass{class("fast", driver)},
		decider:  decider{yes: true},
		groupErr: errors.New("no match"),
	}
}

func class(name, driver string, metadata ...builder.ObjectMetaOpt) *snapshotv1.VolumeSnapshotClass {
	return builder.ForVolumeSnapshotClass(name).Driver(driver).ObjectMeta(metadata...).Result()
}

func (s *scene) plan(t *testing.T) (volume.Plan, error) {
	objects := []runtime.Object{s.backup}
	if s.volume != nil {
		objects = append(objects, s.volume)
	}
	for _, class := range s.groupClasses {
		objects = append(objects, class)
	}
	objects = append(append(objects, s.others...), s.claim)
	for _, class := range s.classes {
		objects = append(objects, class)
	}
	planner := &volume.Planner{
		Backup: s.backup, Owner: snapshot.Owner{Name: "nightly", UID: "backup-uid", Limit: 3},
		Objects: volume.NewObjects(newClient(t, objects...)), Decider: refusingOne{s.decider, s.refuse},
		GroupVersion: func() (string, error) { return s.groupVersion, s.groupErr },
	}
	return planner.Plan(t.Context(), toUnstructured(t, s.claim))
}

func toUnstructured(t *testing.T, object any) *unstructured.Unstructured {
	t.Helper()
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return &unstructured.Unstructured{Object: content}
}

func TestTheRequestForAClaim(t *testing.T) {
	g := NewWithT(t)
	s := newScene()
	s.claim.Labels = map[string]string{
		"app": "db", velerov1.RestoreNameLabel: "old", velerov1.VolumeSnapshotLabel: "old", velerov1.BackupNameLabel: "old",
		velerov1.BackupUIDLabel: "old",
	}
	plan, err := s.plan(t)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(plan).To(Equal(volume.Plan{
		Method: volume.CSISnapshot, Volume: "pv",
		Request: snapshot.Request{
			Owner: snapshot.Owner{Name: "nightly", UID: "backup-uid", Limit: 3}, Namespace: "app", PVC: "data", PVCUID: "uid-of-data",
			Driver: driver, Class: "fast", StorageClass: "standard", Timeout: 7 * time.Minute,
			Labels: map[string]string{"app": "db"}, // without what earlier backups and restores left
		},
	}))
}

// The driver is read from the volume; a storage class is only a hint (field case F23).
func TestClaimsWithoutAUsefulStorageClass(t *testing.T) {
	for name, storageClass := range map[string]*string{
		"none, of a static volume": ptr.To(""), "never set": nil, "one that was deleted": ptr.To("gone"),
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			s := newScene()
			s.claim.Spec.StorageClassName, s.volume.Spec.StorageClassName = storageClass, ptr.Deref(storageClass, "")
			plan, err := s.plan(t)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(plan.Method).To(Equal(volume.CSISnapshot))
			g.Expect(plan.Request.Driver).To(Equal(driver))
			g.Expect(plan.Request.Class).To(Equal("fast"))
		})
	}
}

func TestPlansWithoutASnapshot(t *testing.T) { // of unbound claims: field case F21
	cases := map[string]struct {
		change   func(*scene)
		approach volume.Approach
		volume   string
		warning  gomegatypes.GomegaMatcher
		reason   string
	}{
		"pending": {
			change:   func(s *scene) { s.claim.Status.Phase, s.claim.Spec.VolumeName = corev1.ClaimPending, "" },
			approach: volume.ApproachAny, warning: And(ContainSubstring("app/data"), ContainSubstring("Pending")),
		},
		"lost": {
			change:   func(s *scene) { s.claim.Status.Phase, s.volume = corev1.ClaimLost, nil },
			approach: volume.ApproachAny, warning: ContainSubstring("Lost"),
		},
		"not wanted": {
			change:   func(s *scene) { s.decider.yes = false },
			approach: volume.ApproachSnapshot, volume: "pv", warning: BeEmpty(), reason: "backup's spec",
		},
		"skipped by policy": {
			change:   func(s *scene) { s.decider = decider{action: "skip"} },
			approach: volume.ApproachAny, volume: "pv", warning: BeEmpty(), reason: "policy says that the volume is skipped",
		},
		"a file-system backup by policy": {
			change:   func(s *scene) { s.decider = decider{action: "fs-backup"} },
			approach: volume.ApproachSnapshot, volume: "pv", warning: BeEmpty(), reason: "policy asks for a file-system backup",
		},
		"a custom action by policy": {
			change:   func(s *scene) { s.decider = decider{action: "custom"} },
			approach: volume.ApproachSnapshot, volume: "pv", warning: BeEmpty(), reason: "custom action",
		},
		"pending, and a policy has spoken (240)": {
			change: func(s *scene) {
				s.claim.Status.Phase, s.claim.Spec.VolumeName = corev1.ClaimPending, ""
				s.decider.yes = false
			},
			approach: volume.ApproachAny, warning: BeEmpty(),
		},
		"pending, and no policy matches (230)": {
			change: func(s *scene) {
				s.claim.Status.Phase, s.claim.Spec.VolumeName = corev1.ClaimPending, ""
				s.decider = decider{err: errors.New("the claim has no volume")}
			},
			approach: volume.ApproachAny, warning: ContainSubstring("app/data"),
		},
		"not CSI": {
			change:   func(s *scene) { s.volume = builder.ForPersistentVolume("pv").AWSEBSVolumeID("vol").Result() },
			approach: volume.ApproachCSI, volume: "pv", warning: BeEmpty(),
		},
		"not CSI, though in a group": {
			change: func(s *scene) {
				s.volume = builder.ForPersistentVolume("pv").AWSEBSVolumeID("vol").Result()
				s.claim.Labels = map[string]string{"velero.io/volume-group": "db"}
			},
			approach: volume.ApproachCSI, volume: "pv", warning: BeEmpty(),
		},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			s := newScene()
			test.change(s)
			plan, err := s.plan(t)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(plan.Method).To(Equal(volume.Skipped))
			g.Expect(plan.Approach).To(Equal(test.approach))
			g.Expect(plan.Volume).To(Equal(test.volume))
			g.Expect(plan.Warning).To(test.warning)
			g.Expect(plan.Reason).To(And(Not(BeEmpty()), ContainSubstring(test.reason)))
		})
	}
}

func TestTheSnapshotClass(t *testing.T) {
	const (
		ofClaim  = velerov1.VolumeSnapshotClassDriverPVCAnnotation
		ofBackup = velerov1.VolumeSnapshotClassDriverBackupAnnotationPrefix + "_" + driver
	)
	labelled := class("labelled", driver, builder.WithLabels(velerov1.VolumeSnapshotClassSelectorLabel, "true"))
	byDefault := class("default", driver, builder.WithAnnotations(velerov1.VolumeSnapshotClassKubernetesAnnotation, "true"))
	plain, other := class("plain", driver), class("other", "other.example.com")
	cases := map[string]struct {
		classes   []*snapshotv1.VolumeSnapshotClass
		onClaim   string
		onBackup  string
		want      string
		complains []string
	}{
		"the only one":                     {classes: list(plain, other), want: "plain"},
		"the labelled one":                 {classes: list(plain, byDefault, labelled), want: "labelled"},
		"the default":                      {classes: list(plain, byDefault), want: "default"},
		"the backup's":                     {classes: list(plain, labelled), onBackup: "plain", want: "plain"},
		"the claim's before the backup's":  {classes: list(plain, byDefault, labelled), onBackup: "plain", onClaim: "default", want: "default"},
		"the claim's in another case":      {classes: list(plain, labelled), onClaim: "PLAIN", want: "plain"},
		"none for the driver":              {classes: list(other), complains: []string{driver, "create one", velerov1.VolumeSnapshotClassSelectorLabel}},
		"none at all":                      {complains: []string{driver, "create one"}},
		"several, none marked":             {classes: list(plain, class("second", driver)), complains: []string{driver, velerov1.VolumeSnapshotClassSelectorLabel}},
		"the claim's isn't there":          {classes: list(plain), onClaim: "gone", complains: []string{"gone", "app/data", "correct or remove the annotation"}},
		"the claim's is another driver's":  {classes: list(plain, other), onClaim: "other", complains: []string{"other", "correct or remove"}},
		"the backup's isn't there":         {classes: list(plain), onBackup: "gone", complains: []string{"gone", "correct or remove"}},
		"the backup's is another driver's": {classes: list(plain, other), onBackup: "other", complains: []string{"other", "correct or remove"}},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			s := newScene()
			s.classes = test.classes
			if test.onClaim != "" {
				s.claim.Annotations = map[string]string{ofClaim: test.onClaim}
			}
			if test.onBackup != "" {
				s.backup.Annotations = map[string]string{ofBackup: test.onBackup}
			}
			plan, err := s.plan(t)
			if test.complains != nil {
				for _, word := range test.complains {
					g.Expect(err).To(MatchError(ContainSubstring(word)))
				}
				return
			}
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(plan.Request.Class).To(Equal(test.want))
		})
	}
}

func list(classes ...*snapshotv1.VolumeSnapshotClass) []*snapshotv1.VolumeSnapshotClass {
	return classes
}

func TestClaimsThatCannotBePlanned(t *testing.T) {
	cases := map[string]struct {
		change    func(*scene)
		complains []string
	}{
		"the decision fails": {
			change:    func(s *scene) { s.decider.err = errors.New("pods can't be listed") },
			complains: []string{"app/data", "pods can't be listed"},
		},
		"the policy can't be told": {
			change:    func(s *scene) { s.decider = decider{actionErr: errors.New("no such volume type")} },
			complains: []string{"app/data", "no such volume type"},
		},
		"the volume is gone": {
			change:    func(s *scene) { s.volume = nil },
			complains: []string{"app/data", "pv"},
		},
		"a group": {
			change:    func(s *scene) { s.claim.Labels = map[string]string{"velero.io/volume-group": "db"} },
			complains: []string{"app/data", "db", "velero.io/volume-group", "no CRD volumegroupsnapshots.groupsnapshot.storage.k8s.io", "take the group label off"},
		},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			s := newScene()
			test.change(s)
			_, err := s.plan(t)
			for _, word := range test.complains {
				NewWithT(t).Expect(err).To(MatchError(ContainSubstring(word)))
			}
		})
	}
}

func TestAGroupLabelMeansNothingWithoutAKey(t *testing.T) {
	for name, change := range map[string]func(*scene){
		"no key in the spec": func(s *scene) { s.backup.Spec.VolumeGroupSnapshotLabelKey = "" },
		"an empty value":     func(s *scene) { s.claim.Labels["velero.io/volume-group"] = "" },
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			s := newScene()
			s.claim.Labels = map[string]string{"velero.io/volume-group": "db", "": "empty key"}
			change(s)
			plan, err := s.plan(t)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(plan.Method).To(Equal(volume.CSISnapshot))
		})
	}
}
