// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package scenario_test

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/velero-clipper/clipper/internal/lab/scenario"
)

func TestExpand(t *testing.T) {
	g := NewWithT(t)
	s, err := scenario.Parse("s.yaml", []byte(`
name: shared
workload:
- namespace: app
  pvcs: [{name: "own-{i}", count: 2}, {name: all}]
  pods:
  - {name: a, pvcs: 2, mounts: [all], hooks: {pre: {command: freeze}}}
  - {name: "p-{i}", count: 2, mounts: ["own-{i}", all]}
backups: [{name: b1}]
`))
	g.Expect(err).NotTo(HaveOccurred())

	workload := s.Expand()
	pods := map[string][]string{}
	for _, pod := range workload.Pods {
		pods[pod.Key()] = pod.Claims
		g.Expect(pod.Hooked()).To(Equal(pod.Pod.Name == "a"))
	}
	claims := map[string][]string{}
	for _, claim := range workload.Claims {
		claims[claim.Key()] = claim.Pods
	}
	g.Expect(pods).To(Equal(map[string][]string{
		"app/a":   {"a-0", "a-1", "all"},
		"app/p-0": {"own-0", "all"},
		"app/p-1": {"own-1", "all"},
	}))
	g.Expect(claims).To(Equal(map[string][]string{
		"app/a-0": {"app/a"}, "app/a-1": {"app/a"},
		"app/own-0": {"app/p-0"}, "app/own-1": {"app/p-1"},
		"app/all": {"app/a", "app/p-0", "app/p-1"},
	}))
}

func TestMatchName(t *testing.T) {
	tests := []struct {
		pattern, name string
		matches       bool
	}{
		{"*", "app/a-0", true},
		{"app/a-0", "app/a-0", true},
		{"app/a-0", "app/a-01", false},
		{"app/*", "app/a-0", true},
		{"app/*", "apple/a-0", false},
		{"*/a-*", "app/a-0", true},
		{"*-0", "app/a-0", true},
		{"a-0", "app/a-0", true},
		{"*-0", "app/a-1", false},
		{"app/*-*-0", "app/plain-3-0", true},
		{"a*a", "app/a", false},
		{"[", "app/a", false},
	}
	for _, test := range tests {
		NewWithT(t).Expect(scenario.MatchName(test.pattern, test.name)).To(Equal(test.matches), "%s on %s", test.pattern, test.name)
	}
}
