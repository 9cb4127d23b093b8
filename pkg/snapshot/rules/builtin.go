// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"sync"
	"time"

	"github.com/velero-clipper/clipper/pkg/snapshot"
)

const (
	terminal  = snapshot.Terminal
	retryable = snapshot.Retryable
	throttled = snapshot.Throttled
)

// gRPC codes, as they stand in messages.
const (
	canceled           = "Canceled"
	unknown            = "Unknown"
	invalidArgument    = "InvalidArgument"
	deadlineExceeded   = "DeadlineExceeded"
	notFound           = "NotFound"
	alreadyExists      = "AlreadyExists"
	permissionDenied   = "PermissionDenied"
	resourceExhausted  = "ResourceExhausted"
	failedPrecondition = "FailedPrecondition"
	aborted            = "Aborted"
	outOfRange         = "OutOfRange"
	unimplemented      = "Unimplemented"
	internal           = "Internal"
	unavailable        = "Unavailable"
	dataLoss           = "DataLoss"
	unauthenticated    = "Unauthenticated"
)

// Codes are the gRPC codes that an error can have, in the order of their numbers.
var Codes = []string{
	canceled, unknown, invalidArgument, deadlineExceeded, notFound, alreadyExists, permissionDenied, resourceExhausted,
	failedPrecondition, aborted, outOfRange, unimplemented, internal, unavailable, dataLoss, unauthenticated,
}

// lag is how long an informer of external-snapshotter may be behind: it can say that something isn't there that was just
// made.
const lag = 5 * time.Second

// family is what is known about drivers of one kind. Rules that wait come before those that give up: a message that has
// both kinds of words is not given up.
type family struct {
	drivers []string
	rules   []Rule
	ready   []*matcher
}

// known are the built-in rules, ready for use.
type known struct {
	families []family
	// guards are text rules that stand above a terminal verdict of a driver rule.
	guards, text, code []*matcher
	// all in order.
	all []Rule
}

// builtIn is made once: it never changes.
var builtIn = sync.OnceValue(func() *known {
	k := &known{families: append(cloudFamilies(), storageFamilies()...)}
	for i := range k.families {
		f := &k.families[i]
		for j := range f.rules {
			f.rules[j].Drivers = f.drivers
		}
		f.ready = k.prepare(KindDriver, f.rules)
	}
	k.guards = k.prepare(KindText, guardRules())
	k.text = k.prepare(KindText, textRules())
	k.code = k.prepare(KindCode, codeRules())
	return k
})

func (k *known) prepare(kind Kind, rules []Rule) []*matcher {
	ready := make([]*matcher, len(rules))
	for i := range rules {
		rules[i].Kind = kind
		rules[i].Name = builtInPrefix + rules[i].Name
		m, err := newMatcher(&rules[i])
		if err != nil {
			panic(fmt.Sprintf("built-in error rule %s: %v", rules[i].Name, err)) // a table of this package is wrong
		}
		ready[i] = m
		k.all = append(k.all, rules[i])
	}
	return ready
}

// find returns the first rule that matches; nil when none does. What a driver says about a quota or a right ends nothing
// when the text also speaks of a rate limit or a lost connection.
func (k *known) find(s *subject) *Rule {
	rule := k.ofDriver(s)
	if rule == nil || rule.Verdict == terminal {
		if guard := first(k.guards, s); guard != nil {
			return guard
		}
	}
	if rule != nil {
		return rule
	}
	if rule = first(k.text, s); rule != nil {
		return rule
	}
	return first(k.code, s)
}

func (k *known) ofDriver(s *subject) *Rule {
	for i := range k.families {
		if !ofDriver(k.families[i].drivers, s.Driver) {
			continue
		}
		if rule := first(k.families[i].ready, s); rule != nil {
			return rule
		}
	}
	return nil
}

func first(matchers []*matcher, s *subject) *Rule {
	for _, m := range matchers {
		if m.matches(s) {
			return m.rule
		}
	}
	return nil
}
