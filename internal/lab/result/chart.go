// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package result

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

const (
	// chartColumns is the width of the part of a chart that stands for time.
	chartColumns = 60
	// chartRows is how many claims without hooks get a row; of more, only a count is shown.
	chartRows = 24
)

// WriteTimeline draws one backup: a row for each freeze window and for each claim over a common axis of seconds, and
// below it the turning points in words.
func WriteTimeline(w io.Writer, r *Result, backup string) {
	b, ok := r.Backups[backup]
	if !ok {
		fmt.Fprintf(w, "There is no backup %s in the result.\n", backup)
		return
	}
	c := newChart(w, r, b)
	c.axis()
	c.hookedPods()
	c.plainClaims()
	fmt.Fprintf(w, "\n  [ pre hooks   = frozen   ] post hooks   . VolumeSnapshot created   # driver at work   | cut   - not ready yet\n\n")
	writeTurningPoints(w, r)
}

// chart maps seconds to columns.
type chart struct {
	w          io.Writer
	result     *Result
	backup     *Backup
	start, end float64
	name       int
}

func newChart(w io.Writer, r *Result, b *Backup) *chart {
	c := &chart{w: w, result: r, backup: b, start: b.CreatedAt, end: b.CreatedAt + b.SecondsToTerminal, name: len("seconds")}
	for name, pvc := range b.PVCs {
		c.end = max(c.end, pvc.CutAt, pvc.ReadyAt)
		c.name = max(c.name, len(name)+2)
	}
	for name := range r.Pods {
		c.name = max(c.name, len(name))
	}
	if c.end <= c.start {
		c.end = c.start + 1
	}
	return c
}

func (c *chart) column(at float64) int {
	return min(max(int((at-c.start)/(c.end-c.start)*(chartColumns-1)), 0), chartColumns-1)
}

// axis writes the seconds over the columns, at about six places.
func (c *chart) axis() {
	row := []byte(strings.Repeat(" ", chartColumns+8))
	for i := range 6 {
		at := c.start + (c.end-c.start)*float64(i)/5
		copy(row[c.column(at):], fmt.Sprintf("%.1f", at))
	}
	fmt.Fprintf(c.w, "  %-*s %s\n", c.name, "seconds", strings.TrimRight(string(row), " "))
}

// bar is one row under construction.
type bar struct {
	chart *chart
	cells []byte
}

func (c *chart) bar() bar { return bar{chart: c, cells: []byte(strings.Repeat(" ", chartColumns))} }

// span fills the columns between two times; zero times stand for what never happened.
func (b bar) span(from, to float64, mark byte) {
	if from == 0 && to == 0 {
		return
	}
	if to == 0 {
		to = b.chart.end
	}
	for i := b.chart.column(from); i <= b.chart.column(to); i++ {
		b.cells[i] = mark
	}
}

func (b bar) point(at float64, mark byte) {
	if at != 0 {
		b.cells[b.chart.column(at)] = mark
	}
}

func (b bar) String() string { return string(b.cells) }

func (c *chart) hookedPods() {
	for _, name := range c.podNames() {
		pod := c.result.Pods[name]
		for _, window := range pod.Windows {
			row := c.bar()
			row.span(window.StartedAt, window.EndedAt, '=')
			row.point(window.StartedAt, '[')
			row.point(window.EndedAt, ']')
			fmt.Fprintf(c.w, "  %-*s %s frozen %.2f s\n", c.name, name, row, window.Seconds)
		}
		for _, claim := range pod.PVCs {
			if pvc, ok := c.backup.PVCs[claim]; ok {
				c.claim("  "+claim, pvc)
			}
		}
	}
}

// podNames lists the pods that were frozen, in the order in which that happened.
func (c *chart) podNames() []string {
	var names []string
	for name, pod := range c.result.Pods {
		if len(pod.Windows) > 0 {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(c.result.Pods[a].Windows[0].StartedAt, c.result.Pods[b].Windows[0].StartedAt), strings.Compare(a, b))
	})
	return names
}

func (c *chart) plainClaims() {
	var names []string
	for name, pvc := range c.backup.PVCs {
		if !pvc.Hooked {
			names = append(names, name)
		}
	}
	slices.SortFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(c.backup.PVCs[a].CreatedAt, c.backup.PVCs[b].CreatedAt), strings.Compare(a, b))
	})
	for i, name := range names {
		if i == chartRows {
			fmt.Fprintf(c.w, "  ... and %d more claims without hooks\n", len(names)-i)
			return
		}
		c.claim(name, c.backup.PVCs[name])
	}
}

func (c *chart) claim(name string, pvc *PVC) {
	row := c.bar()
	row.span(pvc.CreatedAt, pvc.CutAt, '.')
	if pvc.ReadyAt > pvc.CutAt {
		row.span(pvc.CutAt, pvc.ReadyAt, '-')
	}
	row.span(pvc.CallStartedAt, pvc.CallEndedAt, '#')
	row.point(pvc.CutAt, '|')
	note := pvc.Verdict
	if pvc.CutAt != 0 && !pvc.TooLate {
		note = fmt.Sprintf("cut in %.2f s", pvc.CutSeconds)
	}
	fmt.Fprintf(c.w, "  %-*s %s %s\n", c.name, name, row, note)
}

// writeTurningPoints writes the events that are not about a single volume or hook.
func writeTurningPoints(w io.Writer, r *Result) {
	for _, e := range r.Timeline {
		switch e.Kind {
		case KindBackup, KindRestore, KindServer, KindScenario:
			fmt.Fprintf(w, "  %8.3f s  %-8s %-12s %s\n", e.At, e.Kind, e.Object, e.Message)
		}
	}
}

// WriteText writes what a person wants to know of a result first.
func WriteText(w io.Writer, r *Result) {
	fmt.Fprintf(w, "Scenario %s, engine %s\n\n", r.Scenario, r.Engine)
	if r.FloorSeconds > 0 {
		fmt.Fprintf(w, "  floor (no Velero): %.2f s\n", r.FloorSeconds)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Backups)) {
		b := r.Backups[name]
		fmt.Fprintf(w, "  backup %s: %s, %.2f s in progress, %.2f s to its last phase, %d errors, %d warnings, %d of %d volumes cut\n",
			name, b.Phase, b.SecondsInProgress, b.SecondsToTerminal, b.Errors, b.Warnings, b.Cuts, len(b.PVCs))
	}
	for _, name := range slices.Sorted(maps.Keys(r.Pods)) {
		if pod := r.Pods[name]; len(pod.Windows) > 0 {
			fmt.Fprintf(w, "  pod %s: frozen %.2f s, slowest cut %.2f s\n", name, pod.FreezeSeconds, pod.SlowestCutSeconds)
		}
	}
	fmt.Fprintf(w, "  API requests: %d (%.1f for each volume); peak memory %d MiB; left over after %.0f s of rest: %d\n",
		r.API.Total, r.API.PerPVC, r.Server.PeakMemoryBytes>>20, r.Leftovers.SettleSeconds, r.Leftovers.Total)
	for _, name := range r.Leftovers.Names {
		fmt.Fprintf(w, "    left over: %s\n", name)
	}
	for _, name := range slices.Sorted(maps.Keys(r.Backups)) {
		fmt.Fprintf(w, "\nBackup %s\n\n", name)
		WriteTimeline(w, r, name)
	}
	WriteFailures(w, r)
}

// WriteFailures names the expectations that did not hold.
func WriteFailures(w io.Writer, r *Result) {
	if r.Unfinished != "" {
		fmt.Fprintf(w, "\nThe experiment did not come to its end: %s.\n", r.Unfinished)
	}
	if len(r.Failures) == 0 {
		return
	}
	fmt.Fprintf(w, "\n%d expectations failed:\n", len(r.Failures))
	for _, failure := range r.Failures {
		fmt.Fprintf(w, "  - %s\n", failure)
	}
}
