// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/sirupsen/logrus"
)

// Severity says how bad a finding is.
type Severity string

const (
	// Error: CSI snapshots fail, all of them or those of a driver.
	Error Severity = "error"
	// Warning: they are slow, or depend on luck, or it can't be seen whether they will work.
	Warning Severity = "warning"
	// Info: nothing needs to be done.
	Info Severity = "info"
)

// rank puts the worst first.
var rank = map[Severity]int{Error: 0, Warning: 1, Info: 2}

// Finding is one thing that a check has to say.
type Finding struct {
	Severity Severity `json:"severity"`
	// Reason is the same for the same kind of finding, in CamelCase.
	Reason string `json:"reason"`
	// Object is what it is about, as kind and name.
	Object string `json:"object"`
	// Message is one sentence that names the object.
	Message string `json:"message"`
	// Fix is the line to change: a flag, a line of YAML or a kubectl command. Empty where there is nothing to change.
	Fix string `json:"fix,omitempty"`
}

// Report is what all checks found, the worst first.
type Report struct {
	Findings []Finding `json:"findings"`
	// Errors, Warnings and Infos count the findings by severity.
	Errors   int `json:"errors"`
	Warnings int `json:"warnings"`
	Infos    int `json:"infos"`
}

// checks are all checks there are.
var checks = []func(*State) []Finding{
	checkCRDs, checkServer, checkVolumes, checkClasses, checkControllers, checkSidecars, checkRights, checkNodeAgent,
}

// Examine gives a State to all checks.
func Examine(state *State) Report {
	report := Report{Findings: []Finding{}}
	for _, check := range checks {
		report.Findings = append(report.Findings, check(state)...)
	}
	slices.SortStableFunc(report.Findings, func(a, b Finding) int { return cmp.Compare(rank[a.Severity], rank[b.Severity]) })
	for _, finding := range report.Findings {
		switch finding.Severity {
		case Error:
			report.Errors++
		case Warning:
			report.Warnings++
		default:
			report.Infos++
		}
	}
	return report
}

// Log writes one line for each error and warning, and one that sums up.
func (r Report) Log(log logrus.FieldLogger) {
	for _, finding := range r.Findings {
		line := log.WithFields(logrus.Fields{"reason": finding.Reason, "object": finding.Object})
		if finding.Fix != "" {
			line = line.WithField("fix", finding.Fix)
		}
		switch finding.Severity {
		case Error:
			line.Error(finding.Message)
		case Warning:
			line.Warn(finding.Message)
		case Info:
		}
	}
	log.Infof("Pre-flight checks of CSI snapshots: %s; \"velero preflight\" shows all of it", r)
}

// String sums up.
func (r Report) String() string {
	return fmt.Sprintf("%d errors, %d warnings, %d notes", r.Errors, r.Warnings, r.Infos)
}

// notReadable is the finding for a part of the cluster that couldn't be read.
func notReadable(severity Severity, what string, err error, fix string) []Finding {
	return []Finding{{
		Severity: severity, Reason: "NotReadable", Object: what,
		Message: fmt.Sprintf("%s can't be read, so nothing is known about them: %s.", what, err), Fix: fix,
	}}
}
