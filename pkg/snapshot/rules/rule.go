// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/velero-clipper/clipper/pkg/snapshot"
)

// Kind says where a rule stands in the order; the kinds are asked in the order of these constants.
type Kind string

const (
	// KindUser: from the platform's ConfigMap.
	KindUser Kind = "user"
	// KindDriver: built in, about what one driver is known to say.
	KindDriver Kind = "driver"
	// KindText: built in, about words that mean the same with any driver.
	KindText Kind = "text"
	// KindCode: built in, what the CSI specification says about a gRPC code when nothing is known about the words.
	KindCode Kind = "code"
)

// builtInPrefix begins the names of all built-in rules. The names of user rules have no slash, so that neither is ever
// taken for the other, whatever a later version builds in.
const builtInPrefix = "builtin/"

// noCode in Rule.Codes stands for an error without a gRPC status: external-snapshotter's own.
const noCode = "none"

// Rule says what an error means. A user rule has When; a built-in rule has Drivers, Codes and Pattern, all of which must
// match and each of which matches everything when it is empty.
type Rule struct {
	// Name is unique and never changes its meaning.
	Name string
	Kind Kind
	// When is a CEL expression.
	When string
	// Drivers are names of CSI drivers; one that begins or ends with * stands for all names with that end or beginning.
	Drivers []string
	// Codes are gRPC codes, or "none" for an error without one.
	Codes []string
	// Pattern is an RE2 expression that is looked for in the driver's own words. Upper and lower case are the same, and
	// a dot stands for a newline too.
	Pattern string
	Verdict snapshot.Verdict
	// After holds a terminal verdict back until the snapshot has shown errors for so long; the error is retryable before.
	After time.Duration
	// Reason is half a sentence for people: what is wrong, and what helps.
	Reason string
	// Source says where the rule comes from: the specification, an issue, a driver's source, the ConfigMap.
	Source string
}

// MarshalJSON writes a rule for programs, with the verdict and the duration as words.
func (r Rule) MarshalJSON() ([]byte, error) {
	after := ""
	if r.After > 0 {
		after = r.After.String()
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false) // expressions hold && and >; an encoder around this one may still want them escaped
	err := encoder.Encode(struct {
		Name    string   `json:"name"`
		Kind    Kind     `json:"kind"`
		When    string   `json:"when,omitempty"`
		Drivers []string `json:"drivers,omitempty"`
		Codes   []string `json:"codes,omitempty"`
		Pattern string   `json:"pattern,omitempty"`
		Verdict string   `json:"verdict"`
		After   string   `json:"after,omitempty"`
		Reason  string   `json:"reason"`
		Source  string   `json:"source"`
	}{r.Name, r.Kind, r.When, r.Drivers, r.Codes, r.Pattern, r.Verdict.String(), after, r.Reason, r.Source})
	return out.Bytes(), err
}

// judgement is the rule's answer for an error that it matches.
func (r *Rule) judgement(age time.Duration) snapshot.Judgement {
	if r.Verdict == snapshot.Terminal && age < r.After {
		return snapshot.Judgement{
			Verdict: snapshot.Retryable, Rule: r.Name,
			Reason: r.Reason + "; final when it still stands after " + r.After.String(),
		}
	}
	return snapshot.Judgement{Verdict: r.Verdict, Rule: r.Name, Reason: r.Reason}
}

// ofDriver says whether a driver's name is among the names, which may begin or end with *.
func ofDriver(names []string, driver string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		if end, ok := strings.CutPrefix(name, "*"); ok {
			return strings.HasSuffix(driver, end)
		}
		if start, ok := strings.CutSuffix(name, "*"); ok {
			return strings.HasPrefix(driver, start)
		}
		return name == driver
	})
}
