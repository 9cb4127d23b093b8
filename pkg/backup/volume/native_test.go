// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package volume_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/sirupsen/logrus"
	logrustest "github.com/sirupsen/logrus/hooks/test"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/builder"
	"github.com/vmware-tanzu/velero/pkg/features"
	vsv1 "github.com/vmware-tanzu/velero/pkg/plugin/velero/volumesnapshotter/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/velero-clipper/clipper/pkg/backup/volume"
)

// plugins are the native snapshot plugins by provider.
type plugins map[string]*plugin

func (p plugins) GetVolumeSnapshotter(provider string) (vsv1.VolumeSnapshotter, error) {
	if p[provider] == nil {
		return nil, errors.New("no plugin for " + provider)
	}
	return p[provider], nil
}

// plugin knows every volume under one ID, if it has one, and notes what it is asked.
type plugin struct {
	vsv1.VolumeSnapshotter
	id                      string
	idErr, infoErr, takeErr error
	panics                  bool
	inits, asked, informed  int
	taken                   []string
	tags                    map[string]string
}

func (p *plugin) Init(map[string]string) error { p.inits++; return nil }

func (p *plugin) GetVolumeID(runtime.Unstructured) (string, error) {
	p.asked++
	return p.id, p.idErr
}

func (p *plugin) GetVolumeInfo(id, zone string) (string, *int64, error) {
	p.informed++
	return "gp3", ptr.To[int64](100), p.infoErr
}

func (p *plugin) CreateSnapshot(id, zone string, tags map[string]string) (string, error) {
	if p.panics {
		panic("plugin")
	}
	p.taken, p.tags = append(p.taken, fmt.Sprintf("%s in %q", id, zone)), tags
	return "snap-of-" + id, p.takeErr
}

func location(provider string) *velerov1.VolumeSnapshotLocation {
	return builder.ForVolumeSnapshotLocation("velero", "at-"+provider).Provider(provider).Result()
}

// native is a Native, and what it writes into.
type native struct {
	*volume.Native
	ledger *volume.Ledger
	log    *logrustest.Hook
}

func newNative(t *testing.T, b *velerov1.Backup, plugins plugins, at ...string) native {
	t.Helper()
	var locations []*velerov1.VolumeSnapshotLocation
	for _, provider := range at {
		locations = append(locations, location(provider))
	}
	n := native{ledger: volume.NewLedger(b)}
	n.Native = volume.NewNative(b, locations, plugins, n.ledger)
	n.Decider = decider{yes: true}
	n.Log, n.log = logrustest.NewNullLogger()
	return n
}

func (n native) protect(t *testing.T, pv *corev1.PersistentVolume) error {
	t.Helper()
	return n.Protect(context.Background(), toUnstructured(t, pv), pv)
}

func (n native) lines(level logrus.Level) []string {
	var found []string
	for _, entry := range n.log.AllEntries() {
		if entry.Level == level {
			found = append(found, fmt.Sprintf("%s: %v", entry.Message, entry.Data[logrus.ErrorKey]))
		}
	}
	return found
}

func (n native) records(g *WithT) string {
	records, _, _ := n.ledger.NativeSnapshots()
	encoded, err := json.Marshal(records)
	g.Expect(err).NotTo(HaveOccurred())
	return string(encoded)
}

func nightly() *builder.BackupBuilder {
	return builder.ForBackup("velero", "nightly").ObjectMeta(builder.WithLabels("team", "a"))
}

func TestNativeSnapshots(t *testing.T) { // 259 to 270
	ebs := builder.ForPersistentVolume("pv").AWSEBSVolumeID("vol-1").Result()
	csi := builder.ForPersistentVolume("pv").CSI(driver, "disk").Result()
	broken := errors.New("no credentials")
	cases := map[string]struct {
		pv         *corev1.PersistentVolume
		decider    *decider
		csiFeature bool
		plugins    plugins
		at         []string
		// completed and failed count the records.
		completed, failed int
		skip              string
		failure           []string
		errors            []string
		warnings          int
	}{
		"not wanted": {pv: ebs, decider: &decider{}, plugins: plugins{"aws": {id: "vol-1"}}, at: []string{"aws"}, skip: "isn't wanted"},
		"a CSI volume": {
			pv: csi, csiFeature: true, plugins: plugins{"aws": {id: "vol-1"}}, at: []string{"aws"},
		},
		"a CSI volume without the CSI feature": {pv: csi, plugins: plugins{"aws": {id: "vol-1"}}, at: []string{"aws"}, completed: 1},
		"a volume that the second plugin knows": {
			pv: ebs, csiFeature: true, plugins: plugins{"gcp": {}, "aws": {id: "vol-1"}}, at: []string{"gcp", "aws"}, completed: 1, warnings: 1,
		},
		"a volume that no plugin knows": {
			pv: ebs, plugins: plugins{"gcp": {}, "aws": {}}, at: []string{"gcp", "aws"}, skip: "no volume snapshotter plugin", warnings: 2,
		},
		"no location": {pv: ebs, skip: "no volume snapshotter plugin"},
		"plugins that can't tell": {
			pv: ebs, plugins: plugins{"gcp": {idErr: broken}}, at: []string{"gcp", "missing"},
			skip: "no volume snapshotter plugin", errors: []string{"no credentials", "no plugin for missing"},
		},
		"the next one is asked when one can't tell": {
			pv: ebs, plugins: plugins{"aws": {id: "vol-1"}}, at: []string{"missing", "aws"}, completed: 1, errors: []string{"no plugin for missing"},
		},
		"the decision fails": {pv: ebs, decider: &decider{err: errors.New("pods can't be listed")}, failure: []string{"pv", "pods can't be listed"}},
		"the plugin has no information (267)": {
			pv: ebs, plugins: plugins{"aws": {id: "vol-1", infoErr: broken}}, at: []string{"aws"}, failure: []string{"pv", "vol-1", "at-aws", "no credentials"},
		},
		"the snapshot fails (269)": {
			pv: ebs, plugins: plugins{"aws": {id: "vol-1", takeErr: broken}}, at: []string{"aws"}, failed: 1,
			failure: []string{"pv", "vol-1", "at-aws", "no credentials"},
		},
		"the plugin panics (369)": {
			pv: ebs, plugins: plugins{"aws": {id: "vol-1", panics: true}}, at: []string{"aws"}, failed: 1, failure: []string{"pv", "panic"},
		},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			features.NewFeatureFlagSet()
			if test.csiFeature {
				features.Enable(velerov1.CSIFeatureFlag)
			}
			t.Cleanup(func() { features.NewFeatureFlagSet() })
			n := newNative(t, nightly().Result(), test.plugins, test.at...)
			if test.decider != nil {
				n.Decider = *test.decider
			}

			err := n.protect(t, test.pv)
			if test.failure == nil {
				g.Expect(err).NotTo(HaveOccurred())
			}
			for _, word := range test.failure {
				g.Expect(err).To(MatchError(ContainSubstring(word)))
			}
			_, attempted, completed := n.ledger.NativeSnapshots()
			g.Expect(completed).To(Equal(test.completed))
			g.Expect(attempted - completed).To(Equal(test.failed))
			if attempted == 0 {
				g.Expect(n.records(g)).To(Equal("null"), "as Velero writes it")
			}

			skipped, err := n.ledger.SkippedSummary()
			g.Expect(err).NotTo(HaveOccurred())
			if test.skip == "" {
				g.Expect(skipped).NotTo(ContainSubstring(`"pv"`))
			} else {
				g.Expect(skipped).To(And(ContainSubstring(`"pv"`), ContainSubstring("volumeSnapshot"), ContainSubstring(test.skip)))
			}
			g.Expect(n.lines(logrus.ErrorLevel)).To(HaveLen(len(test.errors)))
			for _, text := range test.errors {
				g.Expect(n.lines(logrus.ErrorLevel)).To(ContainElement(ContainSubstring(text)))
			}
			g.Expect(n.lines(logrus.WarnLevel)).To(HaveLen(test.warnings))
		})
	}
}

func TestWhatANativeSnapshotIsTakenWith(t *testing.T) { // 263, 266
	g := NewWithT(t)
	aws := &plugin{id: "vol-1"}
	backup := nightly().Result()
	n := newNative(t, backup, plugins{"aws": aws}, "aws")
	g.Expect(n.protect(t, builder.ForPersistentVolume("pv").ObjectMeta(builder.WithLabels("topology.kubernetes.io/zone", "z1")).Result())).To(Succeed())
	g.Expect(aws.taken).To(Equal([]string{`vol-1 in "z1"`}))
	g.Expect(aws.tags).To(Equal(map[string]string{"team": "a", "velero.io/backup": "nightly", "velero.io/pv": "pv"}))
	g.Expect(backup.Labels).To(Equal(map[string]string{"team": "a"}), "the Backup's own labels stay")
	g.Expect(n.records(g)).To(And(ContainSubstring(`"snap-of-vol-1"`), ContainSubstring(`"gp3"`), ContainSubstring(`"volumeAZ":"z1"`)))
}

func TestATakenVolumeIsNoSkippedOne(t *testing.T) { // 268
	for name, failure := range map[string]error{"taken": nil, "failed": errors.New("quota")} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			n := newNative(t, nightly().Result(), plugins{"aws": {id: "vol-1", takeErr: failure}}, "aws")
			n.ledger.Skip("pv", volume.ApproachPodVolume, "opted out")
			_ = n.protect(t, builder.ForPersistentVolume("pv").Result())
			g.Expect(n.ledger.SkippedSummary()).NotTo(ContainSubstring("pv"))
		})
	}
}

func TestAVolumeIsSnapshottedOnce(t *testing.T) {
	g := NewWithT(t)
	aws := &plugin{id: "vol-1", takeErr: errors.New("quota")}
	n := newNative(t, nightly().Result(), plugins{"aws": aws}, "aws")
	pv := builder.ForPersistentVolume("pv").Result()
	for range 3 {
		g.Expect(n.protect(t, pv)).To(MatchError(ContainSubstring("quota")))
	}
	g.Expect(aws.taken).To(HaveLen(1))
}

func TestAPluginIsStartedOncePerLocation(t *testing.T) { // 270
	g := NewWithT(t)
	aws := &plugin{}
	n := newNative(t, nightly().Result(), plugins{"aws": aws}, "aws")
	for _, name := range []string{"pv-1", "pv-2", "pv-3"} {
		g.Expect(n.protect(t, builder.ForPersistentVolume(name).Result())).To(Succeed())
	}
	g.Expect(aws.inits).To(Equal(1))
	g.Expect(aws.asked).To(Equal(3))
}

func TestNativeSnapshotsAreNotMoved(t *testing.T) { // 261
	for name, test := range map[string]struct {
		csi      bool
		warnings int
	}{"with the CSI feature": {csi: true, warnings: 2}, "without it": {warnings: 1}} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			features.NewFeatureFlagSet()
			if test.csi {
				features.Enable(velerov1.CSIFeatureFlag)
			}
			t.Cleanup(func() { features.NewFeatureFlagSet() })
			aws := &plugin{id: "vol-1"}
			n := newNative(t, nightly().SnapshotMoveData(true).Result(), plugins{"aws": aws}, "aws")
			g.Expect(n.protect(t, builder.ForPersistentVolume("pv").Result())).To(Succeed())
			g.Expect(n.lines(logrus.WarnLevel)).To(HaveLen(test.warnings))
			g.Expect(aws.taken).To(HaveLen(1), "it falls back to a native snapshot")
		})
	}
}

func TestZones(t *testing.T) { // 263
	in := func(key string, values ...string) corev1.NodeSelectorRequirement {
		return corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpIn, Values: values}
	}
	terms := func(requirements ...corev1.NodeSelectorRequirement) *corev1.VolumeNodeAffinity {
		selector := &corev1.NodeSelector{}
		for _, r := range requirements {
			selector.NodeSelectorTerms = append(selector.NodeSelectorTerms, corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{r}})
		}
		return &corev1.VolumeNodeAffinity{Required: selector}
	}
	for name, test := range map[string]struct {
		labels   []string
		affinity *corev1.VolumeNodeAffinity
		zone     string
	}{
		"none":                           {},
		"by label":                       {labels: []string{"topology.kubernetes.io/zone", "z1", "failure-domain.beta.kubernetes.io/zone", "z2"}, affinity: terms(in("topology.kubernetes.io/zone", "z3")), zone: "z1"},
		"by the old label":               {labels: []string{"failure-domain.beta.kubernetes.io/zone", "z2"}, zone: "z2"},
		"by an empty label":              {labels: []string{"topology.kubernetes.io/zone", ""}, affinity: terms(in("topology.kubernetes.io/zone", "z3")), zone: ""},
		"AWS":                            {affinity: terms(in("topology.ebs.csi.aws.com/zone", "z1", "z2")), zone: "z1"},
		"Azure":                          {affinity: terms(in("topology.disk.csi.azure.com/zone", "z1")), zone: "z1"},
		"Cinder":                         {affinity: terms(in("topology.cinder.csi.openstack.org/zone", "z1")), zone: "z1"},
		"Manila":                         {affinity: terms(in("topology.manila.csi.openstack.org/zone", "z1")), zone: "z1"},
		"generic":                        {affinity: terms(in("other", "x"), in("topology.kubernetes.io/zone", "z1")), zone: "z1"},
		"GKE":                            {affinity: terms(in("topology.gke.io/zone", "z1"), in("topology.gke.io/zone", "z2")), zone: "z1__z2"},
		"GKE and another":                {affinity: terms(in("topology.gke.io/zone", "z1"), in("topology.kubernetes.io/zone", "z2")), zone: "z2"},
		"not an In":                      {affinity: terms(corev1.NodeSelectorRequirement{Key: "topology.kubernetes.io/zone", Operator: corev1.NodeSelectorOpExists}), zone: ""},
		"affinity that requires nothing": {affinity: &corev1.VolumeNodeAffinity{}, zone: ""},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			aws := &plugin{id: "vol-1"}
			pv := builder.ForPersistentVolume("pv").ObjectMeta(builder.WithLabels(test.labels...)).Result()
			pv.Spec.NodeAffinity = test.affinity
			g.Expect(newNative(t, nightly().Result(), plugins{"aws": aws}, "aws").protect(t, pv)).To(Succeed())
			g.Expect(aws.taken).To(Equal([]string{fmt.Sprintf("vol-1 in %q", test.zone)}))
		})
	}
}
