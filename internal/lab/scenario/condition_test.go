// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package scenario_test

import (
	"testing"

	. "github.com/onsi/gomega"

	"github.com/velero-clipper/clipper/internal/lab/scenario"
)

func TestCondition(t *testing.T) {
	progress := scenario.Progress{
		Created: 7, Cuts: 5, Calls: 6, Backups: 3, Hooks: 2, Frozen: 1,
		Phases:       map[string]string{"b1": "InProgress", "b2": "PartiallyFailed", "nightly-1": "Completed", "nightly-2": "InProgress"},
		Gone:         map[string]bool{"b2": true},
		ServerExited: true,
	}
	tests := []struct {
		name      string
		condition scenario.Condition
		missing   []string
	}{
		{"cuts reached", scenario.Condition{Cuts: 5}, nil},
		{"cuts not reached", scenario.Condition{Cuts: 6}, []string{"cuts: 6 (is 5)"}},
		{"every key counts", scenario.Condition{Created: 7, Cuts: 5, Calls: 6, Hooks: 2, Frozen: 1}, nil},
		{"two missing", scenario.Condition{Created: 8, Frozen: 2}, []string{"created: 8 (is 7)", "frozen: 2 (is 1)"}},
		{"calls and hooks missing", scenario.Condition{Calls: 9, Hooks: 9}, []string{"calls: 9 (is 6)", "hooks: 9 (is 2)"}},
		{"phase", scenario.Condition{Phase: map[string]string{"b1": "InProgress"}}, nil},
		{"another phase", scenario.Condition{Phase: map[string]string{"b1": "Completed"}}, []string{`phase: {b1: Completed} (is "InProgress")`}},
		{"any last phase", scenario.Condition{Phase: map[string]string{"b2": "terminal"}}, nil},
		{"not at its end", scenario.Condition{Phase: map[string]string{"b1": "terminal"}}, []string{`phase: {b1: terminal} (is "InProgress")`}},
		{"a backup not created yet", scenario.Condition{Phase: map[string]string{"b3": "New"}}, []string{`phase: {b3: New} (is "")`}},
		{"one of several", scenario.Condition{Phase: map[string]string{"nightly-*": "Completed"}}, nil},
		{"none of several", scenario.Condition{Phase: map[string]string{"nightly-*": "Failed"}}, []string{`phase: {nightly-*: Failed} (is "Completed, InProgress")`}},
		{"no backup of that pattern", scenario.Condition{Phase: map[string]string{"weekly-*": "terminal"}}, []string{`phase: {weekly-*: terminal} (is "")`}},
		{"number of backups", scenario.Condition{Backups: 3}, nil},
		{"too few backups", scenario.Condition{Backups: 4}, []string{"backups: 4 (is 3)"}},
		{"gone", scenario.Condition{Gone: []string{"b2"}}, nil},
		{"not gone", scenario.Condition{Gone: []string{"b1", "b2"}}, []string{"gone: b1"}},
		{"the server has exited", scenario.Condition{Server: "exited"}, nil},
		{"the server is not ready", scenario.Condition{Server: "ready"}, []string{"server: ready"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			g.Expect(test.condition.Missing(progress)).To(Equal(test.missing))
			g.Expect(test.condition.Met(progress)).To(Equal(test.missing == nil))
		})
	}
}

func TestConditionString(t *testing.T) {
	condition := scenario.Condition{Cuts: 5, Phase: map[string]string{"b1": "terminal"}}
	NewWithT(t).Expect(condition.String()).To(Equal("{cuts: 5, phase: {b1: terminal}}"))
}
