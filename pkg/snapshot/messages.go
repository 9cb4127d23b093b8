// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"fmt"
	"strconv"
	"time"
)

// The words of this file reach the users, in the results of a backup: each names the PVC, the object and what is known.

func seconds(d time.Duration) string {
	return strconv.FormatFloat(d.Round(100*time.Millisecond).Seconds(), 'f', -1, 64) + " s"
}

func (e *entry) subject() string {
	return fmt.Sprintf("PVC %s/%s", e.request.Namespace, e.request.PVC)
}

// timedOut words the end of a snapshot's own timeout.
func (e *entry) timedOut() string {
	if e.state != cutting {
		return fmt.Sprintf("%s: %s could not be created within %s%s",
			e.subject(), describe(e.request, e.key), seconds(e.request.Timeout), because(e.lastCreateError))
	}
	text := fmt.Sprintf("%s: VolumeSnapshot %s was not cut by CSI driver %s within %s", e.subject(), e.key, e.request.Driver, seconds(e.request.Timeout))
	switch {
	case e.fault.Text != "":
		return text + "; the last error: " + e.fault.Text
	case e.contentUID == "":
		return text + "; it never got a VolumeSnapshotContent: is external-snapshotter's snapshot-controller running?"
	default:
		return text + "; no error was reported: is the driver's csi-snapshotter sidecar running, does the driver answer?"
	}
}

// noProgress words that a driver was given up.
func (e *entry) noProgress(d *driver) string {
	where := "it was still queued"
	if e.state != queued {
		where = fmt.Sprintf("VolumeSnapshot %s was waited for", e.key)
	}
	text := fmt.Sprintf("%s: CSI driver %s has cut no snapshot at all for %s, so everything asked of it was given up; %s",
		e.subject(), e.request.Driver, seconds(e.request.Timeout), where)
	last := e.fault.Text
	if last == "" {
		last = d.lastError
	}
	if last != "" {
		text += "; the driver's last error: " + last
	}
	return text
}

// terminal words a verdict.
func (e *entry) terminal(j Judgement) string {
	what := "take"
	if e.state == readying {
		what = "make ready"
	}
	return fmt.Sprintf("%s: CSI driver %s cannot %s VolumeSnapshot %s: %s", e.subject(), e.request.Driver, what, e.key, j.Explain(e.fault.Text))
}

// Explain words a verdict on an error for people: why it was given, by which rule, and the driver's own words.
func (j Judgement) Explain(text string) string {
	why := j.Reason
	if why == "" {
		why = "the error cannot heal"
	}
	if j.Rule != "" {
		why += fmt.Sprintf(" (rule %s)", j.Rule)
	}
	code, words := DriverError(text)
	if code != "" {
		words = code + ": " + words
	}
	return why + ": " + words
}

func (e *entry) deletedBySomeone(what string) string {
	return fmt.Sprintf("%s: %s was deleted by somebody else before it was cut%s", e.subject(), what, because(e.fault.Text))
}

func (e *entry) lostAfterCut(what string) string {
	return fmt.Sprintf("%s: %s was deleted after it was cut, and the snapshot goes with it", e.subject(), what)
}

func (e *entry) abandoned(cause error) string {
	where := "before its VolumeSnapshot was created"
	if e.state != queued {
		where = fmt.Sprintf("before VolumeSnapshot %s was cut", e.key)
	}
	return fmt.Sprintf("%s: given up %s: %v", e.subject(), where, cause)
}

func because(text string) string {
	if text == "" {
		return ""
	}
	return "; the last error: " + text
}
