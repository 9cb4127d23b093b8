// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	. "github.com/onsi/gomega"

	"github.com/velero-clipper/clipper/pkg/snapshot"
)

// maxMessage is how long the messages are that the engine is tried with.
const maxMessage = 64 << 10

// fuzzRules have each kind of function on each text, so that all shortcuts are taken.
const fuzzRules = `
- {name: fz-contains, when: 'words.contains("ull")', verdict: throttled, reason: r}
- {name: fz-message, when: 'message.endsWith("\"") && message.startsWith("Failed")', verdict: retryable, reason: r}
- {name: fz-matches, when: 'words.matches("(?i)[sk]nap+(shot|size)s? .{0,9}full")', verdict: terminal, reason: r}
- {name: fz-age, when: 'age > duration("1h") && attempts <= 1 && words.contains("x")', verdict: throttled, reason: r}
- {name: fz-either, when: 'driver in ["a", "b"] || words == "x" || message.contains("ſ")', verdict: terminal, reason: r}
`

// FuzzJudge tries any message, plain and quoted as external-snapshotter does, once and twice. A judgement is always sane, the
// shortcuts never change it, and what no rule knows is never given up.
func FuzzJudge(f *testing.F) {
	for _, sample := range samples {
		f.Add(sample.driver, sample.text, sample.code, int64(time.Minute), uint8(1))
	}
	for _, message := range []string{
		"", `"`, `\`, `\"`, `rpc error: code = `, `rpc error: code = Internal desc = `, `x: "rpc error: code = Internal desc = a\`,
		"a\xff\xfeb", "\xed\xa0\x80", strings.Repeat("\xf0\x9f\x98", 10), "KſK snap full", "\u2028\x00\x1b[0m",
		`"rpc error: code = Internal desc = \"rpc error: code = Aborted desc = \\\"x\\\"\""`,
		strings.Repeat("rate limit ", 1000), strings.Repeat(`\"`, 20000), strings.Repeat("é", 20000),
	} {
		f.Add("ebs.csi.aws.com", message, "Internal", int64(0), uint8(2))
	}
	set, err := Parse("fuzz", fuzzRules)
	if err != nil {
		f.Fatal(err)
	}
	names := map[string]snapshot.Verdict{"": retryable}
	for _, rule := range set.Rules() {
		names[rule.Name] = rule.Verdict
	}
	f.Fuzz(func(t *testing.T, driver, message, code string, age int64, quotes uint8) {
		if len(message) > maxMessage {
			message = message[:maxMessage]
		}
		for range quotes % 3 {
			message = fmt.Sprintf("Failed to create snapshot: failed to take snapshot of the volume v: %q", status(internal, message))
		}
		g := NewWithT(t)
		o := snapshot.Observation{Driver: driver, Message: message, Code: code, Age: time.Duration(age), Attempts: 1}
		judgement := set.Judge(o)
		verdict, known := names[judgement.Rule]
		g.Expect(known).To(BeTrue(), judgement.Rule)
		if judgement.Verdict != verdict {
			g.Expect(judgement.Verdict).To(Equal(retryable), "only giving up is held back")
			g.Expect(judgement.Reason).To(ContainSubstring("final when"))
		}
		g.Expect(judgement.Rule == "").To(Equal(judgement.Reason == ""))
		g.Expect(set.Judge(o)).To(Equal(judgement), "the same error, the same answer")

		s := newSubject(o)
		g.Expect(utf8.ValidString(s.words) && utf8.ValidString(s.Message) && utf8.ValidString(s.code)).To(BeTrue())
		g.Expect(len(s.words)).To(BeNumerically("<=", 3*(2*maxEnd+len(gap))))
		shortcutsAreTrue(g, s)
		userShortcutsAreTrue(g, set, s)
	})
}

// shortcutsAreTrue checks that no condition keeps an expression from matching.
func shortcutsAreTrue(g *WithT, s *subject) {
	k := builtIn()
	for _, list := range [][]*matcher{k.guards, k.text, k.code} {
		for _, m := range list {
			if m.expression != nil && m.condition != nil && m.expression.MatchString(s.words) {
				g.Expect(m.condition(s)).To(BeTrue(), m.rule.Name)
			}
		}
	}
}

func userShortcutsAreTrue(g *WithT, set *Set, s *subject) {
	for _, rule := range set.user {
		value, _, err := rule.program.runnable.Eval(newActivation(s))
		g.Expect(err).NotTo(HaveOccurred())
		if value.Value() == true {
			g.Expect(rule.program.condition == nil || rule.program.condition(s)).To(BeTrue(), rule.Name)
		}
	}
}

// The size of a message must not decide how long a judgement takes: sixteen times the text, at most some times the work.
func TestLongMessagesAreCut(t *testing.T) {
	g := NewWithT(t)
	short := observation("ebs.csi.aws.com", strings.Repeat("pool ", maxEnd))
	long := observation("ebs.csi.aws.com", strings.Repeat("pool ", 64*maxEnd))
	g.Expect(len(newSubject(long).words)).To(BeNumerically("~", len(newSubject(short).words), 100))

	// What an error is about stands at one of its ends.
	for _, text := range []string{
		"api error InvalidVolume.NotFound: x" + strings.Repeat(" and so on", maxEnd),
		strings.Repeat("and so on ", maxEnd) + "api error InvalidVolume.NotFound: x",
	} {
		g.Expect(BuiltIn().Judge(observation("ebs.csi.aws.com", text)).Rule).To(Equal("builtin/ebs-volume-gone"))
	}
	middle := strings.Repeat("and so on ", maxEnd) + "api error InvalidVolume.NotFound" + strings.Repeat(" and so on", maxEnd)
	g.Expect(BuiltIn().Judge(observation("ebs.csi.aws.com", middle)).Verdict).To(Equal(retryable))
}

// The documentation promises 50 microseconds; this fails only where something is wrong by a factor, whatever the machine does.
func TestJudgementsAreQuick(t *testing.T) {
	if os.Getenv("CLIPPER_BENCH") == "" {
		t.Skip("set CLIPPER_BENCH=1 to measure")
	}
	set := twoHundred(t)
	o := observation("ebs.csi.aws.com", ordinary)
	result := testing.Benchmark(func(b *testing.B) { benchmark(b, set, o) })
	NewWithT(t).Expect(time.Duration(result.NsPerOp())).To(BeNumerically("<", 50*time.Microsecond))
}

func TestHintsOfPatterns(t *testing.T) {
	words := func(text string) *subject { return newSubject(snapshot.Observation{Message: text}) }
	tests := []struct {
		pattern, text string
		may           bool
	}{
		{`abc`, "xABCx", true}, {`abc`, "ab c", false},
		{`abc|xyz`, "xyz", true}, {`abc|xyz`, "axz", false},
		{`(abc)+ def`, "abc def", true}, {`(abc)+ def`, "abc", false},
		{`(abc){2}`, "abcabc", true}, {`(abc){0,2}`, "nothing", true}, {`(abc)?`, "nothing", true}, {`(abc)*`, "nothing", true},
		{`abc|.`, "nothing", true}, {`ab`, "nothing", true}, {`straße`, "STRASSE", true}, {`skip`, "ſkip", true}, {`skip`, "\u212Aanything", true},
	}
	for _, test := range tests {
		m, err := newMatcher(&Rule{Pattern: test.pattern})
		g := NewWithT(t)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(m.condition == nil || m.condition(words(test.text))).To(Equal(test.may), "%s in %s", test.pattern, test.text)
		if regexp.MustCompile(flags + test.pattern).MatchString(test.text) {
			g.Expect(test.may).To(BeTrue())
		}
	}
}
