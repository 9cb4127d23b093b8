// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	velerov1 "github.com/vmware-tanzu/velero/pkg/apis/velero/v1"
)

// PhaseTerminal in a condition stands for any phase that a backup never leaves.
const PhaseTerminal = "terminal"

// States of the server in a condition.
const (
	ServerReady  = "ready"
	ServerExited = "exited"
)

// Condition is what an event waits for. Every key that is set must hold; counts start at the first backup and mean "at least".
type Condition struct {
	// Created counts the VolumeSnapshots that backups made, and Cuts those that got their handle.
	Created int `yaml:"created"`
	Cuts    int `yaml:"cuts"`
	// Calls counts the CreateSnapshot calls that arrived at the drivers.
	Calls int `yaml:"calls"`
	// Backups counts the Backup objects that there are.
	Backups int `yaml:"backups"`
	// Hooks counts the hook commands that ended.
	Hooks int `yaml:"hooks"`
	// Frozen counts the pods that are frozen at this moment.
	Frozen int `yaml:"frozen"`
	// Phase maps the name of a backup to its phase; "terminal" is any last phase. A name with a * in it is a pattern, which
	// one backup has to meet.
	Phase map[string]string `yaml:"phase"`
	// Gone names backups that were there and are no more.
	Gone []string `yaml:"gone"`
	// Server is ready or exited.
	Server string `yaml:"server"`
}

// Progress is what a condition is held against.
type Progress struct {
	Created, Cuts, Calls, Backups, Hooks, Frozen int
	// Phases are keyed by the backup's name.
	Phases map[string]string
	// Gone has the names of backups whose object has been deleted.
	Gone map[string]bool
	// ServerReady and ServerExited describe the Velero server at this moment.
	ServerReady, ServerExited bool
}

// Met says whether everything that the condition asks for is there.
func (c Condition) Met(p Progress) bool {
	return len(c.Missing(p)) == 0
}

// Missing names what is not there yet, for a run that waited in vain.
func (c Condition) Missing(p Progress) []string {
	var missing []string
	count := func(name string, wanted, is int) {
		if is < wanted {
			missing = append(missing, fmt.Sprintf("%s: %d (is %d)", name, wanted, is))
		}
	}
	count("created", c.Created, p.Created)
	count("cuts", c.Cuts, p.Cuts)
	count("calls", c.Calls, p.Calls)
	count("backups", c.Backups, p.Backups)
	count("hooks", c.Hooks, p.Hooks)
	count("frozen", c.Frozen, p.Frozen)
	for _, backup := range slices.Sorted(maps.Keys(c.Phase)) {
		if wanted, is := c.Phase[backup], p.phasesOf(backup); !slices.ContainsFunc(is, func(phase string) bool { return phaseIs(phase, wanted) }) {
			missing = append(missing, fmt.Sprintf("phase: {%s: %s} (is %q)", backup, wanted, strings.Join(is, ", ")))
		}
	}
	for _, backup := range c.Gone {
		if !p.Gone[backup] {
			missing = append(missing, "gone: "+backup)
		}
	}
	if c.Server == ServerReady && !p.ServerReady || c.Server == ServerExited && !p.ServerExited {
		missing = append(missing, "server: "+c.Server)
	}
	return missing
}

// String is the condition as a scenario has it.
func (c Condition) String() string {
	// What is missing from nothing at all is everything, with the counts that are not there cut off.
	var parts []string
	for _, part := range c.Missing(Progress{}) {
		wanted, _, _ := strings.Cut(part, " (is")
		parts = append(parts, wanted)
	}
	return "{" + strings.Join(parts, ", ") + "}"
}

// IsPattern says whether a name stands for any number of backups.
func IsPattern(name string) bool { return strings.Contains(name, "*") }

// phasesOf are the phases of the backups that a name or pattern stands for.
func (p Progress) phasesOf(name string) []string {
	if !IsPattern(name) {
		return []string{p.Phases[name]}
	}
	var phases []string
	for _, backup := range slices.Sorted(maps.Keys(p.Phases)) {
		if MatchName(name, backup) {
			phases = append(phases, p.Phases[backup])
		}
	}
	return phases
}

func phaseIs(is, wanted string) bool {
	if wanted == PhaseTerminal {
		return IsTerminal(is)
	}
	return is == wanted
}

// IsTerminal says whether a backup never leaves the phase.
func IsTerminal(phase string) bool {
	switch velerov1.BackupPhase(phase) {
	case velerov1.BackupPhaseCompleted, velerov1.BackupPhasePartiallyFailed, velerov1.BackupPhaseFailed,
		velerov1.BackupPhaseFailedValidation:
		return true
	}
	return false
}
