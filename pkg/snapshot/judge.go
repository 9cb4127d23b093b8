// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"strconv"
	"strings"
	"time"
)

// Verdict says what an error means for a snapshot that isn't there yet.
type Verdict int

const (
	// Retryable: go on waiting until the deadline. It is the verdict on everything that no rule knows.
	Retryable Verdict = iota
	// Throttled: go on waiting, and have less in flight for this driver.
	Throttled
	// Terminal: waiting cannot help; the snapshot fails now.
	Terminal
)

// String names the verdict as in an error rule.
func (v Verdict) String() string {
	switch v {
	case Throttled:
		return "throttled"
	case Terminal:
		return "terminal"
	default:
		return "retryable"
	}
}

// ErrorPhase is what was being done when an error showed up.
type ErrorPhase string

const (
	// PhaseCutting: the snapshot isn't cut yet.
	PhaseCutting ErrorPhase = "cutting"
	// PhaseReadying: it is cut and isn't ready to use yet.
	PhaseReadying ErrorPhase = "readying"
)

// Observation is an error as it stands on a VolumeSnapshotContent or a VolumeSnapshot.
type Observation struct {
	// Driver is the CSI driver's name.
	Driver string
	// Code is the gRPC code in the message, such as ResourceExhausted; empty when it has none, as for the
	// snapshot-controller's own errors.
	Code string
	// Message is the whole text, unchanged.
	Message string
	// Age is how long ago this snapshot showed its first error in this phase; see Fault.Since.
	Age time.Duration
	// Attempts is how many different error texts this snapshot has shown in this phase; at least 1. See Fault.Attempts.
	Attempts int
	// Phase is what was being done.
	Phase ErrorPhase
	// StorageClass, Namespace and PVC say whose snapshot it is. StorageClass is empty for the readiness of members of a
	// VolumeGroupSnapshot.
	StorageClass, Namespace, PVC string
}

// of completes an Observation with an error.
func (o Observation) of(f Fault, now time.Time) Observation {
	o.Message, o.Attempts, o.Age = f.Text, max(1, f.Attempts), now.Sub(f.Since)
	o.Code, _ = DriverError(f.Text)
	return o
}

// Judgement is a verdict and why it was given.
type Judgement struct {
	Verdict Verdict
	// Reason is one sentence for people; it may be empty when the verdict is Retryable.
	Reason string
	// Rule names what decided; empty when nothing matched.
	Rule string
}

// Judge gives a verdict on an error. It may be called from several goroutines, must answer at once, and is asked about a
// standing error again every few seconds, so that rules about its age work.
type Judge interface {
	Judge(Observation) Judgement
}

// JudgeFunc makes a Judge of a function.
type JudgeFunc func(Observation) Judgement

// Judge implements Judge.
func (f JudgeFunc) Judge(o Observation) Judgement { return f(o) }

// PatientJudge finds every error retryable: the deadline decides. It is the default.
var PatientJudge Judge = JudgeFunc(func(Observation) Judgement { return Judgement{Verdict: Retryable} })

const (
	statusStart  = "rpc error: code = "
	statusMiddle = " desc = "
)

// DriverError takes the driver's answer out of a message of external-snapshotter: the gRPC code and the driver's own
// words. The driver's answer stands in a message with the quoting of Go's %q, which is undone. Where one answer is
// wrapped in another the outer one counts, as for external-snapshotter itself. Without a gRPC status in the message the
// code is empty and the words are the message.
func DriverError(message string) (code, words string) {
	before, rest, quoted := "", message, false
	for code == "" {
		var found bool
		if before, rest, found = strings.Cut(rest, statusStart); !found {
			return "", message
		}
		quoted = strings.HasSuffix(before, `"`)
		// What follows must be one word: a code.
		if name, after, found := strings.Cut(rest, statusMiddle); found && isWord(name) {
			code, words = name, after
		}
	}
	if quoted {
		words = unquoted(words)
	}
	return code, words
}

func isWord(text string) bool {
	return text != "" && !strings.ContainsFunc(text, func(r rune) bool {
		return r != '_' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	})
}

// unquoted undoes %q for a text whose opening quote was cut off. A text without its closing quote was shortened by
// somebody on the way; it is left as it is.
func unquoted(text string) string {
	end := 0
	for end < len(text) && text[end] != '"' {
		if text[end] == '\\' {
			end++
		}
		end++
	}
	if end >= len(text) {
		return text
	}
	plain, err := strconv.Unquote(`"` + text[:end] + `"`)
	if err != nil {
		return text
	}
	return plain + strings.TrimRight(text[end+1:], " ")
}
