// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package scenario_test

import (
	"path/filepath"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/velero-clipper/clipper/internal/lab/scenario"
)

// TestScenarioFiles loads every scenario of the project, so that a change of the format or of the result can't break one unseen.
func TestScenarioFiles(t *testing.T) {
	g := NewWithT(t)
	files, err := filepath.Glob(filepath.Join("..", "..", "..", "test", "scenarios", "*.yaml"))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(files).NotTo(BeEmpty())
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			g := NewWithT(t)
			s, err := scenario.Load(file)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(s.Name).To(Equal(strings.TrimSuffix(filepath.Base(file), ".yaml")), "a scenario is named like its file")
			g.Expect(s.Description).NotTo(BeEmpty())
			g.Expect(s.Expect).NotTo(BeEmpty())
		})
	}
}
