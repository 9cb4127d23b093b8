// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package result_test

import (
	"bytes"
	"strings"
	"testing"

	. "github.com/onsi/gomega"

	"github.com/velero-clipper/clipper/internal/lab/result"
)

func charted() *result.Result {
	return &result.Result{
		Scenario: "demo", Engine: "parallel", FloorSeconds: 2.2,
		Backups: map[string]*result.Backup{"b1": {
			Phase: "Completed", SecondsToTerminal: 6, SecondsInProgress: 5.5, Cuts: 2,
			PVCs: map[string]*result.PVC{
				"app/a-0":     {Hooked: true, CreatedAt: 0.5, CallStartedAt: 0.6, CallEndedAt: 2.6, CutAt: 2.7, ReadyAt: 2.7, CutSeconds: 2.2},
				"app/plain-0": {CreatedAt: 3, CallStartedAt: 3.1, CallEndedAt: 5.1, CutAt: 5.2, ReadyAt: 5.9, CutSeconds: 2.2},
				"app/plain-1": {CreatedAt: 3, Verdict: result.VerdictFailed},
			},
		}},
		Pods: map[string]*result.Pod{
			"app/a": {
				Hooked: true, PVCs: []string{"app/a-0"}, FreezeSeconds: 2.5, SlowestCutSeconds: 2.2,
				Windows: []result.Window{{StartedAt: 0.4, EndedAt: 2.9, Seconds: 2.5}},
			},
			"app/plain-0": {PVCs: []string{"app/plain-0"}},
		},
		Timeline: []result.Event{
			{At: 0, Kind: result.KindBackup, Object: "b1", Message: "created"},
			{At: 2.7, Kind: result.KindSnapshot, Object: "app/a-0", Message: "cut"},
			{At: 6, Kind: result.KindBackup, Object: "b1", Message: "Completed"},
		},
		Failures: []result.Failure{{Expression: "result.volumes == 9"}},
	}
}

func TestWriteTimeline(t *testing.T) {
	g := NewWithT(t)
	var out bytes.Buffer
	result.WriteTimeline(&out, charted(), "b1")
	lines := strings.Split(out.String(), "\n")

	row := func(name string) string {
		for _, line := range lines {
			if strings.HasPrefix(strings.TrimSpace(line), name+" ") {
				return line
			}
		}
		return ""
	}
	axis := strings.Index(lines[0], "0.0")
	second := func(line string, column int) float64 { return float64(column-axis) * 6 / 59 }

	frozen := row("app/a")
	g.Expect(second(frozen, strings.Index(frozen, "["))).To(BeNumerically("~", 0.4, 0.11))
	g.Expect(second(frozen, strings.Index(frozen, "]"))).To(BeNumerically("~", 2.9, 0.11))
	g.Expect(frozen).To(HaveSuffix("frozen 2.50 s"))

	cut := row("app/plain-0")
	g.Expect(second(cut, strings.Index(cut, "."))).To(BeNumerically("~", 3, 0.11))
	g.Expect(second(cut, strings.Index(cut, "|"))).To(BeNumerically("~", 5.2, 0.11))
	g.Expect(second(cut, strings.LastIndex(cut, "-"))).To(BeNumerically("~", 5.9, 0.11))
	g.Expect(row("app/plain-1")).To(HaveSuffix("failed"))
	g.Expect(strings.Index(out.String(), "app/a-0")).To(BeNumerically("<", strings.Index(out.String(), "app/plain-0")))

	g.Expect(out.String()).To(ContainSubstring("0.000 s  backup   b1           created"))
	g.Expect(out.String()).NotTo(ContainSubstring("2.700 s"), "single cuts are in the rows")
}

func TestWriteTimelineShortensLongLists(t *testing.T) {
	g := NewWithT(t)
	r := charted()
	for i := range 30 {
		r.Backups["b1"].PVCs["app/x-"+strings.Repeat("i", i+1)] = &result.PVC{CreatedAt: 1, CutAt: 2}
	}
	var out bytes.Buffer
	result.WriteTimeline(&out, r, "b1")
	g.Expect(out.String()).To(ContainSubstring("... and 8 more claims without hooks"))
}

func TestWriteTextNamesFailures(t *testing.T) {
	g := NewWithT(t)
	var out bytes.Buffer
	r := charted()
	r.Unfinished = "backup b1 is still New"
	result.WriteText(&out, r)
	g.Expect(out.String()).To(ContainSubstring("backup b1: Completed, 5.50 s in progress"))
	g.Expect(out.String()).To(ContainSubstring("did not come to its end: backup b1 is still New"))
	g.Expect(out.String()).To(ContainSubstring("1 expectations failed:\n  - result.volumes == 9"))
}
