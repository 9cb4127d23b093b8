// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/velero-clipper/clipper/pkg/snapshot"
)

// status words an error as gRPC does.
func status(code, text string) string { return "rpc error: code = " + code + " desc = " + text }

// wrappings are the forms in which one error of a driver reaches the API.
func wrappings(code, text string) map[string]string {
	if code == "" {
		return map[string]string{"own": text}
	}
	first := fmt.Sprintf("Failed to create snapshot: failed to take snapshot of the volume vol-429: %q", status(code, text))
	return map[string]string{
		"bare":      status(code, text),
		"first":     first,
		"again":     fmt.Sprintf("Failed to check and update snapshot content: failed to take snapshot of the volume vol-429: %q", status(code, text)),
		"old":       fmt.Sprintf("Failed to create snapshot: failed to take snapshot of the volume, vol-429: %q", status(code, text)),
		"shortened": strings.TrimSuffix(first, `"`),
		"long":      fmt.Sprintf("Failed to create snapshot: failed to take snapshot of the volume vol-429: %q", status(code, text+strings.Repeat(" and so on", 8000))),
		"newlines":  fmt.Sprintf("Failed to create snapshot: failed to take snapshot of the volume vol-429: %q", status(code, "first line\n"+text+"\nlast line")),
	}
}

// settled judges an error that has stood for so long that no rule holds back.
func settled(driver, message string) (snapshot.Judgement, string) {
	code, _ := snapshot.DriverError(message)
	judgement, rule := BuiltIn().Explain(snapshot.Observation{
		Driver: driver, Code: code, Message: message, Age: time.Hour, Attempts: 1, Phase: snapshot.PhaseCutting,
	})
	if rule == nil {
		return judgement, ""
	}
	return judgement, strings.TrimPrefix(rule.Name, builtInPrefix)
}

func TestBuiltInRulesKnowTheirErrors(t *testing.T) {
	for _, sample := range samples {
		for form, message := range wrappings(sample.code, sample.text) {
			t.Run(sample.rule+"/"+form, func(t *testing.T) {
				g := NewWithT(t)
				judgement, rule := settled(sample.driver, message)
				g.Expect(rule).To(Equal(sample.rule), message)
				g.Expect(judgement.Rule).To(Equal(builtInPrefix + sample.rule))
				g.Expect(judgement.Verdict).To(Equal(ruleNamed(t, sample.rule).Verdict))
				g.Expect(judgement.Reason).NotTo(BeEmpty())
			})
		}
	}
}

func TestBuiltInRulesLetOthersPass(t *testing.T) {
	for _, sample := range samples {
		if sample.miss == "" {
			continue
		}
		for form, message := range wrappings(sample.code, sample.miss) {
			t.Run(sample.rule+"/"+form, func(t *testing.T) {
				_, rule := settled(sample.driver, message)
				NewWithT(t).Expect(rule).NotTo(Equal(sample.rule), message)
			})
		}
	}
}

// A driver's words mean nothing in the mouth of another one.
func TestDriverRulesAreForTheirDriver(t *testing.T) {
	for _, sample := range samples {
		if ruleNamed(t, sample.rule).Kind != KindDriver {
			continue
		}
		for _, message := range wrappings(sample.code, sample.text) {
			_, rule := settled("other.csi.example.com", message)
			NewWithT(t).Expect(rule).NotTo(Equal(sample.rule), message)
		}
	}
}

// Where a rule that gives up asks for a code, the same words with a code that says nothing are waited for.
func TestDriverRulesAskForTheirCode(t *testing.T) {
	for _, sample := range samples {
		rule := ruleNamed(t, sample.rule)
		if rule.Kind != KindDriver || rule.Verdict != terminal {
			continue
		}
		g := NewWithT(t)
		g.Expect(rule.Codes).NotTo(BeEmpty(), sample.rule)
		judgement, found := settled(sample.driver, status(dataLoss, sample.text))
		g.Expect(judgement.Verdict).NotTo(Equal(terminal), "%s: %s", sample.rule, found)
	}
}

func TestEachBuiltInRuleHasASample(t *testing.T) {
	g := NewWithT(t)
	for _, rule := range BuiltIn().Rules() {
		short := strings.TrimPrefix(rule.Name, builtInPrefix)
		g.Expect(slices.ContainsFunc(samples, func(s sample) bool { return s.rule == short })).To(BeTrue(), "no sample for %s", short)
	}
}

func TestBuiltInRulesAreWhole(t *testing.T) {
	seen := map[string]bool{}
	for _, rule := range BuiltIn().Rules() {
		g := NewWithT(t)
		g.Expect(rule.Name).To(MatchRegexp(`^builtin/[a-z0-9]+(-[a-z0-9]+)*$`))
		g.Expect(seen).NotTo(HaveKey(rule.Name))
		seen[rule.Name] = true
		g.Expect(rule.Reason).NotTo(BeEmpty(), rule.Name)
		g.Expect(rule.Reason).NotTo(HaveSuffix("."), rule.Name)
		g.Expect(rule.Source).NotTo(BeEmpty(), rule.Name)
		g.Expect(rule.Kind == KindDriver).To(Equal(len(rule.Drivers) > 0), rule.Name)
		if rule.Verdict != terminal {
			g.Expect(rule.After).To(BeZero(), "%s: only giving up can be held back", rule.Name)
		}
		for _, code := range rule.Codes {
			g.Expect(append(Codes, noCode)).To(ContainElement(code), rule.Name)
		}
		if rule.Pattern != "" {
			_, err := regexp.Compile(flags + rule.Pattern)
			g.Expect(err).NotTo(HaveOccurred(), rule.Name)
		}
	}
}

func ruleNamed(t *testing.T, short string) Rule {
	t.Helper()
	for _, rule := range BuiltIn().Rules() {
		if rule.Name == builtInPrefix+short {
			return rule
		}
	}
	t.Fatalf("there is no rule %s", short)
	return Rule{}
}

// What speaks of a rate limit or a broken connection is never given up, whatever else it says.
func TestGuards(t *testing.T) {
	for _, tail := range []string{"; 429 Too Many Requests", "; api error RequestLimitExceeded", ": dial tcp 10.0.0.1:443: i/o timeout"} {
		for _, sample := range samples {
			if sample.code == invalidArgument || sample.code == alreadyExists || sample.code == unimplemented || sample.code == notFound {
				continue // a rate limit doesn't come with these
			}
			judgement, rule := settled(sample.driver, status(sample.code, sample.text+tail))
			if sample.code != "" {
				NewWithT(t).Expect(judgement.Verdict).NotTo(Equal(terminal), "%s%s: %s", sample.rule, tail, rule)
			}
		}
	}
}

// What people call their things decides nothing: the volume's name stands before the driver's words.
func TestNamesAreNotWords(t *testing.T) {
	for _, name := range []string{"429", "too many requests", "not authorized to perform", "UnauthorizedOperation", "throttled", "code = InvalidArgument"} {
		message := fmt.Sprintf("Failed to create snapshot: failed to take snapshot of the volume %s: %q", name, status(internal, "odd"))
		judgement, rule := settled("ebs.csi.aws.com", message)
		NewWithT(t).Expect(rule).To(BeEmpty(), name)
		NewWithT(t).Expect(judgement).To(Equal(snapshot.Judgement{Verdict: retryable}))
	}
}

func TestWhatNoRuleKnowsIsWaitedFor(t *testing.T) {
	for _, code := range []string{"", internal, unknown, notFound, failedPrecondition, outOfRange, dataLoss, "Code(77)"} {
		judgement := BuiltIn().Judge(snapshot.Observation{Driver: "any.csi.example.com", Code: code, Message: "words that nobody knows", Age: time.Hour})
		NewWithT(t).Expect(judgement).To(Equal(snapshot.Judgement{Verdict: retryable}), code)
	}
}

func TestHeldBackRules(t *testing.T) {
	tests := map[string]time.Duration{
		"claim-not-bound": lag, "class-not-found": lag, "claim-not-found": lag, "claim-not-matching": lag,
		"portworx-volume-not-there": notYetGrace, "longhorn-backup-target": backupTargetGrace,
	}
	for name, after := range tests {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			at := slices.IndexFunc(samples, func(s sample) bool { return s.rule == name })
			o := snapshot.Observation{Driver: samples[at].driver, Message: samples[at].text, Code: samples[at].code, Age: after - 1}
			early := BuiltIn().Judge(o)
			g.Expect(early.Verdict).To(Equal(retryable))
			g.Expect(early.Rule).To(Equal(builtInPrefix + name))
			g.Expect(early.Reason).To(ContainSubstring("final when it still stands after " + after.String()))
			o.Age = after
			g.Expect(BuiltIn().Judge(o).Verdict).To(Equal(terminal))
		})
	}
}
