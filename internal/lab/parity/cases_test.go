// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package parity

import (
	"os"
	"testing"

	. "github.com/onsi/gomega"
	"sigs.k8s.io/yaml"
)

const (
	caseFiles = "../../../test/parity/*.case.yaml"
	// lastBehaviour is the highest number of the list of behaviours.
	lastBehaviour = 370
	// leastCases is how many hand-written cases there must be.
	leastCases = 120
)

func TestEveryBehaviourIsCoveredOrExplained(t *testing.T) {
	g := NewWithT(t)
	cases, err := Load(caseFiles)
	g.Expect(err).NotTo(HaveOccurred())
	covered := map[int]string{}
	for _, c := range cases {
		g.Expect(c.Covers).NotTo(BeEmpty(), "case %s names no behaviour", c.Name)
		for _, number := range c.Covers {
			g.Expect(number).To(BeNumerically("<=", lastBehaviour), c.Name)
			covered[number] = c.Name
		}
	}
	g.Expect(len(cases)).To(BeNumerically(">=", leastCases))

	content, err := os.ReadFile("../../../test/parity/coverage.yaml")
	g.Expect(err).NotTo(HaveOccurred())
	var elsewhere []struct {
		Where   string `json:"where"`
		Numbers []int  `json:"numbers"`
	}
	g.Expect(yaml.UnmarshalStrict(content, &elsewhere)).To(Succeed())
	for _, entry := range elsewhere {
		for _, number := range entry.Numbers {
			g.Expect(covered).NotTo(HaveKey(number), "%d is covered by a case; take it out of coverage.yaml", number)
			covered[number] = entry.Where
		}
	}
	for number := 1; number <= lastBehaviour; number++ {
		g.Expect(covered).To(HaveKey(number), "no case covers %d, and coverage.yaml doesn't say why", number)
	}
}

func TestAllowedDifferencesCanBeRead(t *testing.T) {
	_, err := LoadAllowed("../../../test/parity/allowed.yaml")
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
}
