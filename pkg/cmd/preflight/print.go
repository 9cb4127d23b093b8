// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/velero-clipper/clipper/pkg/preflight"
)

// printers are the values of --output.
var printers = map[string]func(io.Writer, preflight.Report) error{"table": printTable, "json": printJSON}

func printJSON(out io.Writer, report preflight.Report) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false) // the fixes hold commands
	return encoder.Encode(report)
}

// printTable prints an overview and, below it, a paragraph for each finding: sentences and commands don't fit into columns.
func printTable(out io.Writer, report preflight.Report) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "SEVERITY\tREASON\tOBJECT")
	for _, finding := range report.Findings {
		fmt.Fprintf(table, "%s\t%s\t%s\n", finding.Severity, finding.Reason, finding.Object)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	var text strings.Builder
	for _, finding := range report.Findings {
		fmt.Fprintf(&text, "\n%s %s\n  %s\n", finding.Severity, finding.Reason, finding.Message)
		if finding.Fix != "" {
			fmt.Fprintf(&text, "  Fix: %s\n", finding.Fix)
		}
	}
	_, err := fmt.Fprintf(out, "%s\n%s.\n", text.String(), report)
	return err
}
