// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"regexp"
	"time"
)

// Fault is the error that stands on a snapshot, and what was seen of errors before.
type Fault struct {
	// Text is the error; empty when none stands.
	Text string
	// Since is when the first error of the present phase (cutting or readying) was seen. external-snapshotter's own time
	// of an error is that of the first sight of its text, so it can't be used.
	Since time.Time
	// Attempts is how many different texts this phase has shown. Repetitions of the same text can't be counted:
	// external-snapshotter doesn't write them.
	Attempts int
	// Stale says that the text stood there already when the snapshot's handle was first seen. external-snapshotter clears
	// an error only when the snapshot is ready, so it tells of a try before the one that succeeded (364).
	Stale bool
}

// history is what the Tracker remembers of one VolumeSnapshot beside its newest state.
type history struct {
	// changed is when the VolumeSnapshot or its content was last seen to change.
	changed    time.Time
	cut, ready bool
	fault      Fault
}

// note takes in the newest state; true when readiness or the error changed.
func (h *history) note(text string, cut, ready bool, now time.Time) bool {
	before := *h
	h.changed, h.ready = now, ready
	switch {
	case ready:
		h.cut, h.fault = true, Fault{}
	case cut && !h.cut:
		h.cut, h.fault = true, Fault{Text: text, Stale: text != ""}
	case text == "":
		h.fault.Text, h.fault.Stale = "", false
	case text != h.fault.Text:
		if h.fault.Attempts == 0 {
			h.fault.Since = now
		}
		h.fault.Text, h.fault.Stale = text, false
		h.fault.Attempts++
	}
	return h.ready != before.ready || h.fault != before.fault
}

// isSettled: nothing is waited for that would come by itself, as far as can be seen.
func (h *history) isSettled() bool {
	return h.ready || h.cut && h.fault.Text != "" && !h.fault.Stale
}

// ids are the parts of an error text that differ from one try to the next though nothing else does: request ids,
// timestamps, handles.
var ids = regexp.MustCompile(`[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|\b(0x)?[0-9a-fA-F]*[0-9][0-9a-fA-F]{5,}\b|\b[0-9a-fA-F]{16,}\b|[0-9]{3,}`)

// kindOf is an error text without what differs from one try to the next, to tell a new kind of error from the same again.
func kindOf(text string) string { return ids.ReplaceAllString(text, "#") }
