// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package recovery

import (
	"fmt"
	"slices"
	"strings"
)

// maxNames is how many pods or snapshots are named; the rest is counted. A reason is read by people.
const maxNames = 20

// reason says what befell a backup and what was done about it.
func (o *outcome) reason() string {
	parts := []string{"the server stopped while the backup was in progress; it was recovered at the next start"}
	if pods := o.pods(); pods != "" {
		parts = append(parts, pods)
	}
	switch {
	case o.removeErr != nil:
		parts = append(parts, "its CSI snapshots could not all be removed: "+o.removeErr.Error())
	case o.snapshots > 0:
		parts = append(parts, fmt.Sprintf("CSI snapshots removed: %d", o.snapshots-len(o.left)))
	}
	if len(o.left) > 0 {
		var names []string
		for _, left := range o.left {
			names = append(names, fmt.Sprintf("%s/%s (%s)", left.Namespace, left.Name, left.Reason))
		}
		parts = append(parts, "not removed yet: "+few(names))
	}
	return strings.Join(parts, "; ")
}

// pods says what became of the frozen pods.
func (o *outcome) pods() string {
	var parts []string
	say := func(what string, pods []podResult, withNotes bool) {
		if len(pods) == 0 {
			return
		}
		var names []string
		for _, p := range pods {
			name := p.pod
			if withNotes && p.note != "" {
				name += " (" + p.note + ")"
			}
			names = append(names, name)
		}
		slices.Sort(names)
		parts = append(parts, what+": "+few(names))
	}
	say("pods thawed", o.thawed, false)
	say("pods whose thaw ran and failed", o.failed, true)
	say("pods that need no thaw", o.needless, true)
	say("pods still frozen", o.owed, true)
	say("pods whose thaw waits for the end of a later backup", o.deferred, true)
	if len(o.unreadable) > 0 {
		parts = append(parts, fmt.Sprintf("entries of frozen pods that can't be read: %d", len(o.unreadable)))
	}
	return strings.Join(parts, "; ")
}

func few(names []string) string {
	if len(names) <= maxNames {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNames], ", "), len(names)-maxNames)
}
