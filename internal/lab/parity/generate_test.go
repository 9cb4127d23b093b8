// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package parity

import (
	"encoding/json"
	"testing"

	. "github.com/onsi/gomega"
)

func TestGenerateIsRepeatable(t *testing.T) {
	g := NewWithT(t)
	different := map[string]bool{}
	for seed := range uint64(200) {
		first, err := Generate(seed)
		g.Expect(err).NotTo(HaveOccurred())
		second, err := Generate(seed)
		g.Expect(err).NotTo(HaveOccurred())
		one, err := json.Marshal(first)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(json.Marshal(second)).To(BeEquivalentTo(one))
		first.Name, first.File = "", ""
		one, err = json.Marshal(first)
		g.Expect(err).NotTo(HaveOccurred())
		different[string(one)] = true
	}
	g.Expect(len(different)).To(BeNumerically(">", 190))
}
