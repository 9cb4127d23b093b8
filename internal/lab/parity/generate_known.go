// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package parity

import (
	"slices"

	"github.com/velero-clipper/clipper/internal/lab/recorder"
)

// sidestep takes out of a random case what is known to come out differently, so that what is left of it can be compared. What that is
// stands in allowed.yaml for hand-written cases, where it is looked at closely; in a random case it would hide too much.
func (g *generator) sidestep(c *Case) {
	failing := map[string]bool{}
	for _, action := range c.Plugins.Actions {
		for _, rule := range action.Rules {
			if rule.Error != "" {
				failing[rule.Match] = true
			}
		}
	}
	for _, name := range []string{"recorder-v1", "recorder-v2", "recorder-block"} {
		rules := c.Plugins.Actions[name].Rules
		for i := range rules {
			g.sidestepRule(&rules[i], name, failing)
		}
	}
}

func (g *generator) sidestepRule(rule *recorder.Rule, plugin string, failing map[string]bool) {
	matched := g.find(func(i Item) bool { return i.key() == rule.Match })
	// A claim that a plugin takes out of the backup is snapshotted by stock each time that something names it.
	if rule.Skip && matched.isCSI() {
		rule.Skip, rule.Labels = false, map[string]string{"seen": "yes"}
	}
	rule.Items = slices.DeleteFunc(rule.Items, func(reference string) bool {
		named := g.find(func(i Item) bool { return i.reference() == reference })
		switch {
		case plugin == "recorder-block" && named.key() == rule.Match:
			return true // stock has the item in its block twice, and runs a pod's hooks twice
		case failing[named.key()]:
			return true // with stock it depends on the order whether an item fails with one that it needs
		}
		return false
	})
}

// find returns the object for which match is true.
func (g *generator) find(match func(Item) bool) Item {
	for _, list := range [][]Item{g.namespaced, g.clustered} {
		if i := slices.IndexFunc(list, match); i >= 0 {
			return list[i]
		}
	}
	return Item{}
}
