// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package server

import (
	"context"
	"testing"

	. "github.com/onsi/gomega"
	"github.com/sirupsen/logrus"
	logtest "github.com/sirupsen/logrus/hooks/test"
	"github.com/vmware-tanzu/velero/pkg/features"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/velero-clipper/clipper/pkg/preflight"
)

// discovery serves nothing, or fails.
type discovery struct{ err error }

func (d discovery) ServerResourcesForGroupVersion(string) (*metav1.APIResourceList, error) {
	return &metav1.APIResourceList{}, d.err
}

func TestPreflightOnlyWritesToTheLog(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	tests := map[string]struct {
		ctx       context.Context
		discovery discovery
		levels    []logrus.Level
		says      string
	}{
		"what was found":   {t.Context(), discovery{}, []logrus.Level{logrus.ErrorLevel, logrus.ErrorLevel, logrus.ErrorLevel, logrus.InfoLevel}, "3 errors"},
		"no cluster":       {t.Context(), discovery{err: errBoom}, []logrus.Level{logrus.WarnLevel}, "can't be made"},
		"the server ended": {ended, discovery{}, nil, ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			log, hook := logtest.NewNullLogger()
			own := preflight.Server{Found: true, CSI: true}
			logPreflight(test.ctx, preflight.Sources{Cluster: noObjects(), Discovery: test.discovery, Namespace: "velero", Server: &own}, log)
			var levels []logrus.Level
			for _, entry := range hook.AllEntries() {
				if entry.Data["reason"] == "NotReadable" {
					continue // the fake knows no Velero objects
				}
				levels = append(levels, entry.Level)
			}
			g.Expect(levels).To(Equal(test.levels))
			if last := hook.LastEntry(); last != nil {
				g.Expect(last.Message).To(ContainSubstring(test.says))
			}
		})
	}
}

func noObjects() client.Reader { return fake.NewClientBuilder().Build() }

func TestPreflightIsLeftOutWithoutTheCSIFeature(t *testing.T) {
	features.NewFeatureFlagSet()
	defer features.NewFeatureFlagSet()
	NewWithT(t).Expect((&second{}).preflight()).To(Succeed(), "neither clients nor a manager are asked for")
}
