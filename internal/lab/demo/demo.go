// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/velero-clipper/clipper/internal/lab/result"
	"github.com/velero-clipper/clipper/internal/lab/runner"
	"github.com/velero-clipper/clipper/internal/lab/scenario"
)

// comparisonTimeout leaves Velero's own engine the time that a hundred volumes cost it.
const comparisonTimeout = 20 * time.Minute

// Options of a comparison.
type Options struct {
	// Load gives the scenario, a new value at each call; its first backup is compared. Default: Workload, that of the
	// demonstration.
	Load func() (*scenario.Scenario, error)
	// Introduction is printed first. Default: that of the demonstration.
	Introduction string
	// Runner has everything but the scenario and the engine.
	Runner runner.Options
	// Out gets progress, table and timeline.
	Out io.Writer
}

// row is a variant and what came out of it.
type row struct {
	variant
	result *result.Result
}

// Run makes the four runs, each in a fresh cluster, and prints the table. It returns the failures of the last one, Clipper's own.
func Run(ctx context.Context, opts Options) ([]result.Failure, error) {
	if opts.Load == nil {
		opts.Load, opts.Introduction = Workload, introduction
	}
	s, err := opts.Load()
	if err != nil {
		return nil, err
	}
	if len(s.Backups) == 0 {
		return nil, fmt.Errorf("scenario %s has no backup to compare; add one to its backups", s.Name)
	}
	backup := s.Backups[0].Name
	fmt.Fprint(opts.Out, opts.Introduction)
	var rows []row
	for i, v := range variants() {
		fmt.Fprintf(opts.Out, "\n[%d/%d] %s: %s\n", i+1, len(variants()), v.name, v.explanation)
		r, err := one(ctx, opts, v)
		if err != nil {
			return nil, fmt.Errorf("demo, run %q: %w", v.name, err)
		}
		rows = append(rows, row{variant: v, result: r})
	}
	last := rows[len(rows)-1].result
	fmt.Fprintln(opts.Out)
	if err := writeTable(opts.Out, rows, backup); err != nil {
		return nil, err
	}
	fmt.Fprintf(opts.Out, "\nTimeline of the last run\n\n")
	result.WriteTimeline(opts.Out, last, backup)
	result.WriteFailures(opts.Out, last)
	if opts.Introduction == introduction {
		fmt.Fprint(opts.Out, lookAround)
	}
	return last.Failures, nil
}

func one(ctx context.Context, opts Options, v variant) (*result.Result, error) {
	s, err := opts.Load()
	if err != nil {
		return nil, err
	}
	s.Events, s.Then = nil, nil
	if opts.Introduction != introduction {
		s.Expect = nil // they are about one engine and the floor of its own run
		s.Timeout = max(s.Timeout, scenario.Duration(comparisonTimeout))
	}
	if v.floor {
		yes := true
		s.Floor = &yes
	} else {
		no := false
		s.Floor, s.Server = &no, v.server
	}
	s.Name = "  " + v.name
	run := opts.Runner
	run.Scenario, run.FloorOnly, run.Progress = s, v.floor, opts.Out
	return runner.Run(ctx, run)
}

const introduction = `Three pods that a backup hook freezes, with 3, 2 and 2 volumes, and twelve plain pods with one volume each.
The storage needs 2 s for a snapshot. The same backup is made in four fresh clusters on this machine.
`

const lookAround = `
To look around in such a cluster, with a Velero server to play with:

    bin/velero-lab up                    keeps a cluster until Ctrl-C and prints its kubeconfig
    bin/velero-lab run SCENARIO.yaml     runs one experiment; examples are in test/scenarios
`

func writeTable(w io.Writer, rows []row, backup string) error {
	table := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "\tin progress\tto its last phase\tlongest freeze\tpods frozen at once\tAPI requests per PVC\tphase")
	for _, r := range rows {
		fmt.Fprintln(table, r.cells(backup))
	}
	return table.Flush()
}

// cells is the row with a tab between its columns.
func (r row) cells(backup string) string {
	if r.floor {
		return fmt.Sprintf("%s\t%.1f s\t-\t-\t-\t-\t-", r.name, r.result.FloorSeconds)
	}
	b := r.result.Backups[backup]
	return fmt.Sprintf("%s\t%.1f s\t%.1f s\t%.1f s\t%d\t%.1f\t%s",
		r.name, b.SecondsInProgress, b.SecondsToTerminal, longestFreeze(r.result), r.result.Order.MostFrozenPods, r.result.API.PerPVC, b.Phase)
}

func longestFreeze(r *result.Result) float64 {
	longest := []float64{0}
	for _, pod := range r.Pods {
		longest = append(longest, pod.FreezeSeconds)
	}
	return slices.Max(longest)
}
