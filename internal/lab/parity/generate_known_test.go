// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package parity

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/velero-clipper/clipper/internal/lab/recorder"
)

func TestKnownDifferencesAreSidestepped(t *testing.T) {
	claim := Item{Object: "PersistentVolumeClaim app/v", Volume: volumeCSI}
	share := Item{Object: "PersistentVolumeClaim app/n", Volume: volumeNFS}
	pod, other := Item{Object: "Pod app/p"}, Item{Object: "ConfigMap app/c"}
	g := NewWithT(t)
	made := &generator{}
	for _, item := range []Item{claim, share, pod, other} {
		g.Expect(item.parse()).To(Succeed())
		made.namespaced = append(made.namespaced, item)
	}
	c := &Case{}
	c.Plugins.Actions = map[string]recorder.Action{
		"recorder-v1": {Rules: []recorder.Rule{
			{Match: "PersistentVolumeClaim app/v", Skip: true},
			{Match: "PersistentVolumeClaim app/n", Skip: true},
			{Match: "Pod app/p", Items: []string{"configmaps app/c", "persistentvolumeclaims app/v", "pods app/p"}},
		}},
		"recorder-v2":    {Rules: []recorder.Rule{{Match: "ConfigMap app/c", Error: "broken"}}},
		"recorder-block": {Rules: []recorder.Rule{{Match: "Pod app/p", Items: []string{"pods app/p", "persistentvolumeclaims app/v"}}}},
	}
	made.sidestep(c)
	v1, block := c.Plugins.Actions["recorder-v1"].Rules, c.Plugins.Actions["recorder-block"].Rules
	g.Expect(v1[0].Skip).To(BeFalse(), "stock would take its snapshot again and again")
	g.Expect(v1[1].Skip).To(BeTrue(), "there is no snapshot of it")
	g.Expect(v1[2].Items).To(Equal([]string{"persistentvolumeclaims app/v", "pods app/p"}), "without what fails")
	g.Expect(block[0].Items).To(Equal([]string{"persistentvolumeclaims app/v"}), "without itself")
}
