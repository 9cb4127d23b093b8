// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package result_test

import (
	"errors"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/velero-clipper/clipper/internal/lab/result"
)

func sample() *result.Result {
	return &result.Result{
		FloorSeconds: 2.2,
		Backups: map[string]*result.Backup{
			"b1": {
				Phase: "Completed", SecondsInProgress: 5.25, Errors: 3,
				Tarball: []string{"metadata/version", "resources/pods/namespaces/app/a.json"},
				PVCs:    map[string]*result.PVC{"app/a-0": {Verdict: result.VerdictReady, CutSeconds: 2.1}},
			},
		},
		Pods: map[string]*result.Pod{
			"app/a": {Hooked: true, FreezeSeconds: 2.3, SlowestCutSeconds: 2.1},
			"app/b": {Hooked: true, FreezeSeconds: 15.2, SlowestCutSeconds: 2.1},
		},
		Server:    result.Server{Exits: []result.Exit{{Status: "exit status 1"}}},
		Leftovers: result.Leftovers{VS: 1, Total: 1, Names: []string{"VolumeSnapshot app/x"}},
	}
}

func TestEvaluate(t *testing.T) {
	tests := []struct {
		name, expression string
		// holds says that the expectation is true; otherwise values and err say what the failure must show.
		holds  bool
		values map[string]string
		err    string
	}{
		{name: "equal phase", expression: `result.backups.b1.phase == "Completed"`, holds: true},
		{name: "index instead of a dot", expression: `result.backups["b1"].phase == "Completed"`, holds: true},
		{name: "whole number beside seconds", expression: `result.floorSeconds < 3`, holds: true},
		{name: "count", expression: `size(result.server.exits) == 1`, holds: true},
		{name: "any element", expression: `result.backups.b1.tarball.exists(f, f.endsWith("a.json"))`, holds: true},
		{name: "keys of a map", expression: `result.backups.b1.pvcs.all(p, result.backups.b1.pvcs[p].verdict == "ready")`, holds: true},
		{
			name: "a ratio to the floor", expression: `result.backups.b1.secondsInProgress < 1.05 * result.floorSeconds + 1.0`,
			values: map[string]string{"result.backups.b1.secondsInProgress": "5.250", "result.floorSeconds": "2.200"},
		},
		{
			name: "wrong phase", expression: `result.backups.b1.phase == "Failed"`,
			values: map[string]string{"result.backups.b1.phase": `"Completed"`},
		},
		{
			name: "the element that breaks an all", expression: `result.pods.all(p, result.pods[p].freezeSeconds <= result.pods[p].slowestCutSeconds + 0.4)`,
			values: map[string]string{"p": `"app/b"`, "result.pods[p].freezeSeconds": "15.200", "result.pods[p].slowestCutSeconds": "2.100"},
		},
		{
			name: "a size", expression: `size(result.leftovers.names) == 0`,
			values: map[string]string{"size(result.leftovers.names)": "1", "result.leftovers.names": `["VolumeSnapshot app/x"]`},
		},
		{name: "a backup that is not there", expression: `result.backups.b2.phase == "Completed"`, err: "no such key: b2"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			failures := result.Evaluate([]string{test.expression}, sample())
			if test.holds {
				g.Expect(failures).To(BeEmpty())
				return
			}
			g.Expect(failures).To(HaveLen(1))
			g.Expect(failures[0].Expression).To(Equal(test.expression))
			g.Expect(failures[0].Error).To(ContainSubstring(test.err))
			got := map[string]string{}
			for _, v := range failures[0].Values {
				got[v.Expression] = v.Value
			}
			for expression, value := range test.values {
				g.Expect(got).To(HaveKeyWithValue(expression, value), failures[0].String())
			}
		})
	}
}

func TestEvaluateKeepsTheOrderOfTheExpectations(t *testing.T) {
	g := NewWithT(t)
	failures := result.Evaluate([]string{"result.floorSeconds > 9.0", "result.floorSeconds > 1.0", "result.volumes == 9"}, sample())
	g.Expect(failures).To(HaveLen(2))
	g.Expect(failures[0].Expression).To(Equal("result.floorSeconds > 9.0"))
	g.Expect(failures[1].Expression).To(Equal("result.volumes == 9"))
}

func TestCheckFindsMistakesBeforeARun(t *testing.T) {
	tests := []struct {
		name, expression string
		column           int
		message          string
	}{
		{"a misspelt field", `result.backups.b1.phas == "Completed"`, 18, "undefined field 'phas'"},
		{"a missing bracket", `size(result.pods == 2`, 22, "missing ')'"},
		{"an unknown name", `results.volumes == 1`, 1, "undeclared reference to 'results'"},
		{"not a yes or no", `result.floorSeconds + 1.0`, 1, "must be true or false"},
		{"a whole number in arithmetic", `result.floorSeconds < 2 * result.floorSeconds`, 25, "write 2.0 instead of 2"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			err := result.Check(test.expression)
			var compileError *result.CompileError
			g.Expect(errors.As(err, &compileError)).To(BeTrue())
			g.Expect(compileError.Column).To(Equal(test.column))
			g.Expect(err).To(MatchError(ContainSubstring(test.message)))
		})
	}
}
