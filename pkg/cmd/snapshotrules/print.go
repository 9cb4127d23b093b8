// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshotrules

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/velero-clipper/clipper/pkg/snapshot"
	"github.com/velero-clipper/clipper/pkg/snapshot/rules"
)

// verdict is what check has found out.
type verdict struct {
	snapshot.Observation
	snapshot.Judgement
	// rule is nil when none matched.
	rule *rules.Rule
	// where the platform's rules are from.
	where string
}

// The values of --output.
var (
	checkPrinters = map[string]func(io.Writer, verdict) error{"text": checkText, "json": checkJSON}
	listPrinters  = map[string]func(io.Writer, *rules.Set, string) error{"text": listText, "json": listJSON}
)

func encode(out io.Writer, value any) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false) // rules hold && and >
	return encoder.Encode(value)
}

func checkJSON(out io.Writer, v verdict) error {
	return encode(out, struct {
		Verdict string      `json:"verdict"`
		Rule    string      `json:"rule"`
		Reason  string      `json:"reason"`
		Code    string      `json:"code"`
		Your    string      `json:"yourRules"`
		Matched *rules.Rule `json:"matched,omitempty"`
	}{v.Verdict.String(), v.Judgement.Rule, v.Reason, v.Code, v.where, v.rule})
}

func checkText(out io.Writer, v verdict) error {
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	line := func(key, value string) { fmt.Fprintf(table, "%s:\t%s\n", key, value) }
	line("Verdict", v.Verdict.String()+" ("+meanings[v.Verdict]+")")
	if v.rule == nil {
		line("Rule", "none: what no rule knows is waited for")
	} else {
		line("Rule", v.Judgement.Rule)
		line("Reason", v.Reason)
		line("Source", v.rule.Source)
	}
	code := v.Code
	if code == "" {
		code = "none"
	}
	line("gRPC code", code)
	line("Your rules", v.where)
	return table.Flush()
}

var meanings = map[snapshot.Verdict]string{
	snapshot.Terminal:  "the snapshot fails now",
	snapshot.Retryable: "the snapshot is waited for",
	snapshot.Throttled: "the snapshot is waited for, and fewer of this driver are in flight",
}

func listJSON(out io.Writer, set *rules.Set, where string) error {
	return encode(out, struct {
		Your  string       `json:"yourRules"`
		Rules []rules.Rule `json:"rules"`
	}{where, set.Rules()})
}

func listText(out io.Writer, set *rules.Set, where string) error {
	fmt.Fprintf(out, "Your rules: %d, from: %s. Then the built-in ones; the first that matches wins.\n\n", set.UserRules(), where)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "NAME\tVERDICT\tDRIVER\tCODE\tREASON")
	for _, rule := range set.Rules() {
		verdict := rule.Verdict.String()
		if rule.After > 0 {
			verdict += " after " + rule.After.String()
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", rule.Name, verdict, anyOr(rule, rule.Drivers), anyOr(rule, rule.Codes), rule.Reason)
	}
	return table.Flush()
}

// anyOr words a list that matches everything when it is empty. What a rule of the user matches stands in its expression.
func anyOr(rule rules.Rule, list []string) string {
	switch {
	case rule.Kind == rules.KindUser:
		return "-"
	case len(list) == 0:
		return "any"
	case len(list) > 2:
		return fmt.Sprintf("%s and %d more", list[0], len(list)-1)
	default:
		return strings.Join(list, ",")
	}
}
