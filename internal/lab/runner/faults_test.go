// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/velero-clipper/clipper/internal/lab/cluster"
	"github.com/velero-clipper/clipper/internal/lab/scenario"
)

func TestProxied(t *testing.T) {
	for name, c := range map[string]struct {
		events []scenario.Event
		then   []scenario.Step
		want   []cluster.User
	}{
		"nobody when nothing is done to the API": {
			events: []scenario.Event{{Do: scenario.Action{Kill: scenario.TargetServer}}},
		},
		"each client once, from events and steps": {
			events: []scenario.Event{
				{Do: scenario.Action{API: &scenario.APIFault{Of: scenario.TargetServer}}},
				{Do: scenario.Action{API: &scenario.APIFault{Of: scenario.TargetServer}}},
			},
			then: []scenario.Step{{Do: &scenario.Action{API: &scenario.APIFault{Of: scenario.TargetSnapshotController}}}},
			want: []cluster.User{cluster.UserVelero, cluster.UserSnapshotController},
		},
	} {
		t.Run(name, func(t *testing.T) {
			NewWithT(t).Expect(proxied(&scenario.Scenario{Events: c.events, Then: c.then})).To(Equal(c.want))
		})
	}
}

func TestFaultText(t *testing.T) {
	g := NewWithT(t)
	g.Expect(faultText(scenario.APIFault{
		Answer: 429, Slow: scenario.Duration(time.Second), Verbs: []string{"create", "patch"}, Resources: []string{"volumesnapshots"},
		For: scenario.Duration(10 * time.Second), Times: 3,
	})).To(Equal("slow by 1s; answers 429; create, patch; volumesnapshots; for 10s; 3 times"))
}
