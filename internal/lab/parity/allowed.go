// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package parity

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"
)

// Allowed is the list of differences that are meant to be. It is used by one goroutine.
type Allowed struct {
	entries []*entry
}

// entry is one allowed difference.
type entry struct {
	// Numbers are the points of BEHAVIOURS.md that say so.
	Numbers []int `json:"numbers"`
	// Where are patterns for Difference.Where; * stands for anything.
	Where []string `json:"where"`
	// Tags limit the entry to cases with one of them, Cases to cases of these names.
	Tags  []string `json:"tags,omitempty"`
	Cases []string `json:"cases,omitempty"`
	// Reason is a sentence for people.
	Reason string `json:"reason"`
	// Chance says that the difference isn't there in every run, since stock's side is one of chance.
	Chance bool `json:"chance,omitempty"`

	patterns []*regexp.Regexp
	used     bool
}

// LoadAllowed reads the list.
func LoadAllowed(file string) (*Allowed, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	a := &Allowed{}
	if err := yaml.UnmarshalStrict(content, &a.entries); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	for i, e := range a.entries {
		if len(e.Numbers) == 0 || len(e.Where) == 0 || e.Reason == "" {
			return nil, fmt.Errorf("%s: entry %d: numbers, where and reason are required", file, i+1)
		}
		for _, where := range e.Where {
			pattern := "^" + strings.ReplaceAll(regexp.QuoteMeta(where), `\*`, ".*") + "$"
			e.patterns = append(e.patterns, regexp.MustCompile(pattern))
		}
	}
	return a, nil
}

// Filter returns the differences of a case that are not allowed.
func (a *Allowed) Filter(c Case, differences []Difference) []Difference {
	var left []Difference
	for _, d := range differences {
		allowed := false
		for _, e := range a.entries {
			if e.allows(c, d) {
				e.used, allowed = true, true
			}
		}
		if !allowed {
			left = append(left, d)
		}
	}
	return left
}

func (e *entry) allows(c Case, d Difference) bool {
	if len(e.Cases) > 0 && !slices.Contains(e.Cases, c.Name) {
		return false
	}
	if len(e.Tags) > 0 && !slices.ContainsFunc(e.Tags, func(tag string) bool { return slices.Contains(c.Tags, tag) }) {
		return false
	}
	return slices.ContainsFunc(e.patterns, func(pattern *regexp.Regexp) bool { return pattern.MatchString(d.Where) })
}

// Stale is an error that names the entries that allowed nothing, after all cases have run.
func (a *Allowed) Stale() error {
	var errs []error
	for _, e := range a.entries {
		if !e.used && !e.Chance {
			errs = append(errs, fmt.Errorf("nothing differs any more in %q (%v); remove it from the list", e.Where, e.Numbers))
		}
	}
	return errors.Join(errs...)
}
