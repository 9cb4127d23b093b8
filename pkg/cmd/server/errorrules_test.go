// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"testing"

	. "github.com/onsi/gomega"
	"github.com/sirupsen/logrus"
	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
	"github.com/vmware-tanzu/velero/pkg/client"
	"github.com/vmware-tanzu/velero/pkg/features"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/record"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/velero-clipper/clipper/pkg/snapshot"
	"github.com/velero-clipper/clipper/pkg/snapshot/rules"
)

func TestErrorRulesFlag(t *testing.T) {
	g := NewWithT(t)
	s := newStock()
	Extend(s.server)
	flag := s.server.Flag(ErrorRulesFlag)
	g.Expect(flag.DefValue).To(Equal("clipper-snapshot-error-rules"))
	g.Expect(s.server.ParseFlags([]string{"--" + ErrorRulesFlag, "mine.v2"})).To(Succeed())
	g.Expect(flag.Value.String()).To(Equal("mine.v2"))
	for _, bad := range []string{"", "Mine", "velero/mine", "a_b"} {
		output, err := s.execute("--" + ErrorRulesFlag + "=" + bad)
		g.Expect(err).To(HaveOccurred(), bad)
		g.Expect(output).To(ContainSubstring("can't be the name of a ConfigMap in the server's namespace"))
	}
	g.Expect(s.runs).To(BeEmpty())
}

// recordingManager notes what is to be run.
type recordingManager struct {
	manager.Manager
	added []manager.Runnable
}

func (m *recordingManager) Add(r manager.Runnable) error { m.added = append(m.added, r); return nil }

func (m *recordingManager) GetEventRecorderFor(string) record.EventRecorder {
	return &record.FakeRecorder{}
}

func TestErrorRulesAreFollowedOnlyWithTheCSIFeature(t *testing.T) {
	for name, enabled := range map[string]bool{"on": true, "off": false} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			features.NewFeatureFlagSet()
			defer features.NewFeatureFlagSet()
			if enabled {
				features.Enable(velerov1.CSIFeatureFlag)
			}
			mgr := &recordingManager{}
			s := &second{secondDeps: secondDeps{
				settings: &settings{errorRules: rules.DefaultConfigMap}, factory: client.NewFactory("velero", client.VeleroConfig{}),
			}, mgr: mgr, kube: fake.NewClientset()}
			judge, err := s.errorRules(logrus.New())
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(judge.Judge(snapshot.Observation{Code: "Unimplemented"}).Verdict).To(Equal(snapshot.Terminal), "built-in rules are in force at once")
			if enabled {
				g.Expect(mgr.added).To(HaveExactElements(BeIdenticalTo(judge)), "the judge itself follows the ConfigMap")
			} else {
				g.Expect(mgr.added).To(BeEmpty())
			}
		})
	}
}
