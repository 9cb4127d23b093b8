// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"sync/atomic"

	"github.com/velero-clipper/clipper/pkg/snapshot"
)

// Set is an ordered list of rules: those of the platform, then the built-in ones. It never changes and may be used from
// any goroutine.
type Set struct {
	user []*userRule
	// failed is told of a rule that could not be evaluated, once for each rule.
	failed func(rule Rule, err error)
}

// userRule is a rule of the platform, ready for use.
type userRule struct {
	Rule
	program *program
	// complained is true once the set's owner knows that it can't be evaluated.
	complained atomic.Bool
}

// BuiltIn is the set without rules of the platform.
func BuiltIn() *Set { return &Set{} }

// OnFailure makes the set tell of rules that could not be evaluated, once for each rule; the error is taken as one that the
// rule doesn't match. It must be called before the set is used.
func (s *Set) OnFailure(failed func(rule Rule, err error)) { s.failed = failed }

// UserRules is the number of rules of the platform.
func (s *Set) UserRules() int { return len(s.user) }

// Rules are all rules in the order in which they are asked. One thing doesn't show in the order: the text rules of a rate
// limit and of a lost connection also stand above a terminal verdict of a driver rule.
func (s *Set) Rules() []Rule {
	all := make([]Rule, 0, len(s.user)+len(builtIn().all))
	for _, rule := range s.user {
		all = append(all, rule.Rule)
	}
	return append(all, builtIn().all...)
}

// Judge implements snapshot.Judge.
func (s *Set) Judge(o snapshot.Observation) snapshot.Judgement {
	judgement, _ := s.Explain(o)
	return judgement
}

// Explain gives a verdict and the rule that it is from; the rule is nil when none matched.
func (s *Set) Explain(o snapshot.Observation) (snapshot.Judgement, *Rule) {
	subject := newSubject(o)
	rule := s.ofUser(subject)
	if rule == nil {
		rule = builtIn().find(subject)
	}
	if rule == nil {
		return snapshot.Judgement{Verdict: snapshot.Retryable}, nil
	}
	found := *rule
	return rule.judgement(o.Age), &found
}

func (s *Set) ofUser(subject *subject) *Rule {
	var variables *activation
	for _, rule := range s.user {
		met, err := rule.program.met(subject, &variables)
		if met {
			return &rule.Rule
		}
		if err != nil && s.failed != nil && rule.complained.CompareAndSwap(false, true) {
			s.failed(rule.Rule, fmt.Errorf("rule %s could not be evaluated and is taken as not met: %w", rule.Name, err))
		}
	}
	return nil
}
