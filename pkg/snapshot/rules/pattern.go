// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"regexp"
	"regexp/syntax"
	"slices"
)

// flags are put before each pattern: case is ignored, and a dot stands for a newline too.
const flags = "(?is)"

// matcher is a built-in rule, ready for use.
type matcher struct {
	rule *Rule
	// expression is nil when every text matches.
	expression *regexp.Regexp
	// condition is asked first: it costs a fiftieth of running the expression over the text.
	condition condition
}

func newMatcher(rule *Rule) (*matcher, error) {
	m := &matcher{rule: rule}
	if rule.Pattern == "" {
		return m, nil
	}
	var err error
	if m.expression, err = regexp.Compile(flags + rule.Pattern); err != nil {
		return nil, err
	}
	tree, err := syntax.Parse(flags+rule.Pattern, syntax.Perl)
	if err != nil {
		return nil, err
	}
	m.condition = inWords.ofPattern(tree)
	return m, nil
}

func (m *matcher) matches(s *subject) bool {
	if len(m.rule.Codes) > 0 && !slices.Contains(m.rule.Codes, s.code) {
		return false
	}
	if m.expression == nil {
		return true
	}
	return (m.condition == nil || m.condition(s)) && m.expression.MatchString(s.words)
}
