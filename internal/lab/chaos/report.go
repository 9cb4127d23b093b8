// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Report is what is written of a run.
type Report struct {
	// Seed of the first random point.
	Seed     uint64     `json:"seed"`
	Outcomes []*Outcome `json:"outcomes"`
	Leaks    *Leaks     `json:"leaks,omitempty"`
}

// Write writes the report as JSON.
func (r *Report) Write(file string) error {
	content, err := json.MarshalIndent(r, "", "  ")
	if err == nil {
		err = os.MkdirAll(filepath.Dir(file), 0o755)
	}
	if err == nil {
		err = os.WriteFile(file, append(content, '\n'), 0o644)
	}
	if err != nil {
		return fmt.Errorf("writing the report of the chaos suite: %w", err)
	}
	return nil
}

// String is a table for people.
func (r *Report) String() string {
	var b strings.Builder
	passed := 0
	fmt.Fprintf(&b, "%-60s %6s %8s %7s  %s\n", "point", "seed", "seconds", "frozen", "outcome")
	for _, o := range r.Outcomes {
		outcome := "ok: " + strings.Join(o.Phases, ", ")
		if o.Passed() {
			passed++
		} else {
			outcome = "FAILED: " + strings.Join(o.Failures, "; ")
		}
		seed := ""
		if o.Seed > 0 {
			seed = fmt.Sprint(o.Seed)
		}
		fmt.Fprintf(&b, "%-60s %6s %8.1f %7d  %s\n", o.Point, seed, o.Seconds, o.Frozen, outcome)
	}
	fmt.Fprintf(&b, "%d of %d points passed\n", passed, len(r.Outcomes))
	if r.Leaks != nil {
		fmt.Fprintf(&b, "leaks: after the first backups %s, after the last %s\n", r.Leaks.First, r.Leaks.Last)
	}
	return b.String()
}
