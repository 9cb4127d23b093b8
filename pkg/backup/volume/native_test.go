// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package volume_test

import (
	"errors"
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

type plugin struct {
	vsv1.VolumeSnapshotter
	id    string
	err   error
	inits int
	asked int
}

func (p *plugin) Init(map[string]string) error { p.inits++; return nil }

func (p *plugin) GetVolumeID(runtime.Unstructured) (string, error) {
	p.asked++
	return p.id, p.err
}

func location(provider string) *velerov1.VolumeSnapshotLocation {
	return builder.ForVolumeSnapshotLocation("velero", "at-"+provider).Provider(provider).Result()
}

func TestNativeSnapshots(t *testing.T) {
	ebs := builder.ForPersistentVolume("pv").AWSEBSVolumeID("vol-1").Result()
	csi := builder.ForPersistentVolume("pv").CSI(driver, "disk").Result()
	cases := map[string]struct {
		pv         *corev1.PersistentVolume
		decider    decider
		csiFeature bool
		plugins    plugins
		at         []string
		skip       string
		refused    []string
		errors     []string
		warnings   int
	}{
		"not wanted": {pv: ebs, skip: "isn't wanted"},
		"a CSI volume": {
			pv: csi, decider: decider{yes: true}, csiFeature: true, plugins: plugins{"aws": {id: "vol-1"}}, at: []string{"aws"},
		},
		"a CSI volume without the CSI feature": {
			pv: csi, decider: decider{yes: true}, plugins: plugins{"aws": {id: "vol-1"}}, at: []string{"aws"},
			refused: []string{"pv", "at-aws", "--csi-snapshot-parallelism=0", "spec.snapshotVolumes"},
		},
		"a volume that a plugin knows": {
			pv: ebs, decider: decider{yes: true}, csiFeature: true, plugins: plugins{"gcp": {}, "aws": {id: "vol-1"}}, at: []string{"gcp", "aws"},
			refused: []string{"pv", "at-aws"}, warnings: 1,
		},
		"a volume that no plugin knows": {
			pv: ebs, decider: decider{yes: true}, plugins: plugins{"gcp": {}, "aws": {}}, at: []string{"gcp", "aws"},
			skip: "no volume snapshotter plugin", warnings: 2,
		},
		"no location": {pv: ebs, decider: decider{yes: true}, skip: "no volume snapshotter plugin"},
		"plugins that can't tell": {
			pv: ebs, decider: decider{yes: true}, plugins: plugins{"gcp": {err: errors.New("no credentials")}}, at: []string{"gcp", "missing"},
			skip: "no volume snapshotter plugin", errors: []string{"no credentials", "no plugin for missing"},
		},
		"the next one is asked when one can't tell": {
			pv: ebs, decider: decider{yes: true}, plugins: plugins{"aws": {id: "vol-1"}}, at: []string{"missing", "aws"},
			refused: []string{"at-aws"}, errors: []string{"no plugin for missing"},
		},
		"the decision fails": {pv: ebs, decider: decider{err: errors.New("pods can't be listed")}, refused: []string{"pv", "pods can't be listed"}},
	}
	for name, test := range cases {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			features.NewFeatureFlagSet()
			if test.csiFeature {
				features.Enable(velerov1.CSIFeatureFlag)
			}
			t.Cleanup(func() { features.NewFeatureFlagSet() })
			var locations []*velerov1.VolumeSnapshotLocation
			for _, provider := range test.at {
				locations = append(locations, location(provider))
			}
			n := volume.NewNative(locations, test.plugins)
			n.Decider = test.decider
			logger, log := logrustest.NewNullLogger()
			n.Log = logger

			skip, err := n.Check(t.Context(), toUnstructured(t, test.pv), test.pv)
			if test.refused == nil {
				g.Expect(err).NotTo(HaveOccurred())
			}
			for _, word := range test.refused {
				g.Expect(err).To(MatchError(ContainSubstring(word)))
			}
			if test.skip == "" {
				g.Expect(skip).To(BeEmpty())
			} else {
				g.Expect(skip).To(ContainSubstring(test.skip))
			}
			var errs, warnings []string
			for _, entry := range log.AllEntries() {
				switch entry.Level {
				case logrus.ErrorLevel:
					errs = append(errs, entry.Data[logrus.ErrorKey].(error).Error())
				case logrus.WarnLevel:
					warnings = append(warnings, entry.Message)
				}
			}
			g.Expect(errs).To(HaveLen(len(test.errors)))
			for _, text := range test.errors {
				g.Expect(errs).To(ContainElement(ContainSubstring(text)))
			}
			g.Expect(warnings).To(HaveLen(test.warnings))
		})
	}
}

func TestAPluginIsStartedOncePerLocation(t *testing.T) {
	g := NewWithT(t)
	aws := &plugin{}
	n := volume.NewNative([]*velerov1.VolumeSnapshotLocation{location("aws")}, plugins{"aws": aws})
	n.Decider = decider{yes: true}
	n.Log, _ = logrustest.NewNullLogger()
	pv := builder.ForPersistentVolume("pv").Result()
	for range 3 {
		_, err := n.Check(t.Context(), toUnstructured(t, pv), pv)
		g.Expect(err).NotTo(HaveOccurred())
	}
	g.Expect(aws.inits).To(Equal(1))
	g.Expect(aws.asked).To(Equal(3))
}
