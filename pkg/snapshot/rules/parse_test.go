// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/velero-clipper/clipper/pkg/snapshot"
)

// samplesFile is the ConfigMap that is shipped as an example.
const samplesFile = "../../../config/samples/snapshot-error-rules.yaml"

func TestParseRefuses(t *testing.T) {
	good := "- name: a\n  when: 'true'\n  verdict: terminal\n  reason: because\n"
	tests := []struct {
		name, text string
		// want are parts of the error.
		want []string
	}{
		{"no YAML", "- name: [", []string{"here: line 1, column 1: this is not YAML"}},
		{"an unquoted colon", good + "- name: b\n  when: words.contains(\"a: b\")\n", []string{"here: line 6, column 1: this is not YAML", "between single quotes"}},
		{"no list", "name: a\n", []string{"here: line 1, column 1", "list of rules"}},
		{"a rule that is none", good + "- a\n", []string{"rule 2, line 5, column 3", "mapping with name, when, verdict, reason"}},
		{"two documents", good + "---\n" + good, []string{"line 5, column 1", "second YAML document"}},
		{"an unknown key", good + "- name: b\n  wher: 'true'\n  verdict: terminal\n  reason: r\n", []string{
			`rule 2 (b), line 6, column 3: unknown key "wher"; a rule has name, when`, "when is missing",
		}},
		{"a key twice", "- name: b\n  name: c\n  when: 'true'\n  verdict: terminal\n  reason: r\n", []string{"rule 1 (c), line 2, column 3: name is there twice"}},
		{"a list as reason", "- name: b\n  when: 'true'\n  verdict: terminal\n  reason: [a]\n", []string{"rule 1 (b), line 4, column 11: reason must be one text"}},
		{"no reason", "- name: b\n  when: 'true'\n  verdict: terminal\n", []string{"rule 1 (b), line 1, column 3: reason is missing"}},
		{"an odd name", "- name: B x\n  when: 'true'\n  verdict: terminal\n  reason: r\n", []string{"line 1, column 9", "lower-case letters"}},
		{"a built-in's name", "- name: builtin/rate-limit\n  when: 'true'\n  verdict: terminal\n  reason: r\n", []string{"lower-case letters"}},
		{"a name twice", good + good, []string{"rule 2 (a), line 5, column 9: rule 1 has the same name"}},
		{"an unknown verdict", "- name: b\n  when: 'true'\n  verdict: fatal\n  reason: r\n", []string{`line 3, column 12: unknown verdict "fatal"; it is terminal`}},
		{"an unknown variable", "- name: b\n  when: drvier == \"x\"\n  verdict: terminal\n  reason: r\n", []string{
			"rule 1 (b), line 2, column 9: undeclared reference to 'drvier'", "the variables are driver, code",
		}},
		{"the reserved namespace", "- name: b\n  when: code == \"x\" && namespace == \"y\"\n  verdict: terminal\n  reason: r\n", []string{
			"line 2, column 24", "the claim's namespace is pvcNamespace",
		}},
		{"a wrong type", "- name: b\n  when: age > 30\n  verdict: terminal\n  reason: r\n", []string{"line 2, column 13", `duration("30s")`}},
		{"no truth value", "- name: b\n  when: driver\n  verdict: terminal\n  reason: r\n", []string{"line 2, column 9", "must be true or false"}},
		{"a wrong expression", "- name: b\n  when: words.matches(\"(\")\n  verdict: terminal\n  reason: r\n", []string{"line 2, column 23", "RE2"}},
		{"a wrong duration", "- name: b\n  when: age > duration(\"30\")\n  verdict: terminal\n  reason: r\n", []string{"line 2, column 24", "duration"}},
		{"a quoted expression", "- name: b\n  when: 'driver == 1'\n  verdict: terminal\n  reason: r\n", []string{"line 2, column 17", "no matching overload"}},
		{"a mistake in a block", "- name: b\n  when: |\n\n    driver == \"x\"\n      && ode == \"y\"\n  verdict: terminal\n  reason: r\n", []string{"line 5, column 10: undeclared reference to 'ode'"}},
		{"too many", strings.Repeat(good, maxRules+1), []string{"1001 rules; at most 1000"}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			g := NewWithT(t)
			set, err := Parse("here", test.text)
			g.Expect(set).To(BeNil())
			var wrong *ParseError
			g.Expect(err).To(BeAssignableToTypeOf(wrong))
			for _, part := range test.want {
				g.Expect(err.Error()).To(ContainSubstring(part))
			}
			for _, line := range strings.Split(err.Error(), "\n") {
				g.Expect(line).To(HavePrefix("here: "))
			}
		})
	}
}

func TestParseTellsAllProblemsAtOnce(t *testing.T) {
	g := NewWithT(t)
	_, err := Parse("here", "- name: a\n  when: x\n  verdict: y\n  reason: r\n- name: b\n  when: z\n  verdict: terminal\n  reason: r\n")
	g.Expect(strings.Split(err.Error(), "\n")).To(HaveLen(3))
	_, err = Parse("here", strings.Repeat("- a\n", 50))
	lines := strings.Split(err.Error(), "\n")
	g.Expect(lines).To(HaveLen(maxProblems + 1))
	g.Expect(lines[maxProblems]).To(Equal("here: and 30 more"))
}

func TestParseTakesNothing(t *testing.T) {
	for _, text := range []string{"", "# only a comment\n", "[]", "null\n"} {
		g := NewWithT(t)
		set, err := Parse("here", text)
		g.Expect(err).NotTo(HaveOccurred(), text)
		g.Expect(set.UserRules()).To(BeZero())
		g.Expect(set.Rules()).To(HaveLen(len(BuiltIn().Rules())))
	}
}

// userSet makes a set of one rule.
func userSet(t *testing.T, when string) *Set {
	t.Helper()
	set, err := Parse("here", fmt.Sprintf("- name: mine\n  when: |\n    %s\n  verdict: terminal\n  reason: because\n", when))
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	return set
}

func TestExpressions(t *testing.T) {
	o := snapshot.Observation{
		Driver: "block.csi.example.com", Code: internal, Age: 40 * time.Second, Attempts: 3, Phase: snapshot.PhaseReadying,
		StorageClass: "fast", Namespace: "app", PVC: "data-0",
		Message: `Failed to create snapshot: failed to take snapshot of the volume v-1: "rpc error: code = Internal desc = pool \"p1\" is FULL"`,
	}
	tests := map[string]bool{
		`driver == "block.csi.example.com"`:                                   true,
		`"block.csi.example.com" == driver`:                                   true,
		`driver == "other"`:                                                   false,
		`driver != "other"`:                                                   true,
		`driver in ["a", "block.csi.example.com"]`:                            true,
		`driver in ["a", "b"]`:                                                false,
		`driver.startsWith("block.") && driver.endsWith(".com")`:              true,
		`driver.contains("csx")`:                                              false,
		`code == "Internal" && phase == "readying" && storageClass == "fast"`: true,
		`pvcNamespace == "app" && pvc == "data-0"`:                            true,
		`pvcNamespace == "app2" || pvc == "data-0"`:                           true,
		`pvcNamespace == "app2" || pvc == "data-1"`:                           false,
		`words == "pool \"p1\" is FULL"`:                                      true,
		`words.startsWith("pool \"p1\"")`:                                     true,
		`words.contains("is full")`:                                           false, // CEL minds case
		`words.matches("(?i)is full$")`:                                       true,
		`words.matches("is (full|FULL)")`:                                     true,
		`words.matches("is (full|empty)")`:                                    false,
		`words.contains("v-1")`:                                               false,
		`message.contains("v-1") && message.endsWith("\"")`:                   true,
		`!words.contains("empty")`:                                            true,
		`!(driver == "other" || words.contains("empty"))`:                     true,
		`age > duration("30s") && attempts >= 3`:                              true,
		`age > duration("1m")`:                                                false,
		`age >= duration("40s") && age <= duration("40s")`:                    true,
		`age < duration("40s") || attempts < 3`:                               false,
		`attempts > 2 && attempts <= 3 && attempts == 3`:                      true,
		`attempts > 3`:                                                        false, `duration("30s") < age`: true, `attempts > 2.5`: true, `age > duration("1m") - duration("30s")`: true,
		`["empty", "FULL"].exists(w, words.contains(w))`:                  true,
		`words.contains("xy") ? true : driver == "block.csi.example.com"`: true,
		`size(words) > 5 && size(words) < 100`:                            true,
		`(driver == "other" ? "" : words).contains("FULL")`:               true,
		`driver + code == "block.csi.example.comInternal"`:                true,
		`[driver].exists(driver, driver == "block.csi.example.com")`:      true,
		`["other"].exists(driver, driver == "other")`:                     true,
		`words.matches("p.")`:                                             true,
		`words.contains("")`:                                              true,
	}
	for when, want := range tests {
		t.Run(when, func(t *testing.T) {
			g := NewWithT(t)
			judgement := userSet(t, when).Judge(o)
			if want {
				g.Expect(judgement).To(Equal(snapshot.Judgement{Verdict: terminal, Rule: "mine", Reason: "because"}))
			} else {
				g.Expect(judgement).To(Equal(snapshot.Judgement{Verdict: retryable}))
			}
		})
	}
}

func TestUserRulesComeFirstAndInOrder(t *testing.T) {
	g := NewWithT(t)
	set, err := Parse("here", `
- {name: first, when: 'words.contains("a") && words.contains("b")', verdict: throttled, reason: r1}
- {name: second, when: 'words.contains("a")', verdict: retryable, reason: r2}
`)
	g.Expect(err).NotTo(HaveOccurred())
	o := snapshot.Observation{Driver: "x", Code: unimplemented, Message: "xa"}
	g.Expect(set.Judge(o)).To(Equal(snapshot.Judgement{Verdict: retryable, Rule: "second", Reason: "r2"}))
	o.Message = "xab and more"
	g.Expect(set.Judge(o)).To(Equal(snapshot.Judgement{Verdict: throttled, Rule: "first", Reason: "r1"}))
	o.Message = "none of it"
	g.Expect(set.Judge(o).Rule).To(Equal("builtin/code-unimplemented"))
	g.Expect(set.Rules()[1]).To(Equal(Rule{
		Name: "second", Kind: KindUser, When: `words.contains("a")`, Verdict: retryable, Reason: "r2", Source: "here",
	}))
	_, rule := set.Explain(o)
	g.Expect(rule.Kind).To(Equal(KindCode))
}

func TestRulesThatFailCountAsNotMetAndAreToldOnce(t *testing.T) {
	for name, when := range map[string]string{
		"an error":      `attempts / 0 == 1`,
		"too expensive": `[1,2,3,4,5,6,7,8,9].all(a, [1,2,3,4,5,6,7,8,9].all(b, [1,2,3,4,5,6,7,8,9].all(c, [1,2,3,4,5,6,7,8,9].all(d, [1,2,3,4,5,6,7,8,9].all(e, size(message + words) >= 0)))))`,
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			set := userSet(t, when)
			var told []string
			set.OnFailure(func(rule Rule, err error) { told = append(told, rule.Name+": "+err.Error()) })
			for range 3 {
				g.Expect(set.Judge(snapshot.Observation{Driver: "x", Message: "y"})).To(Equal(snapshot.Judgement{Verdict: retryable}))
			}
			g.Expect(told).To(HaveLen(1))
			g.Expect(told[0]).To(HavePrefix("mine: rule mine could not be evaluated"))
		})
	}
}

// The usual rules are proven cheap when they are loaded, so that nothing is counted while they run.
func TestUsualRulesAreProvenCheap(t *testing.T) {
	env, err := environment()
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	for when, want := range map[string]bool{
		`driver == "x" && words.contains("the pool is full")`:                        true,
		`message.matches("(?i)quota [0-9]+ (reached|exceeded)")`:                     true,
		`["a", "b", "c"].exists(w, words.contains(w))`:                               true,
		`["a"].all(a, ["b"].all(b, ["c"].all(c, words.matches(a + b + c + words))))`: false,
	} {
		ast, issues := env.Compile(when)
		NewWithT(t).Expect(issues.Err()).NotTo(HaveOccurred())
		NewWithT(t).Expect(cheap(env, ast)).To(Equal(want), when)
	}
}

func configMapWith(data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "velero", Name: DefaultConfigMap}, Data: data}
}

func TestFromConfigMap(t *testing.T) {
	g := NewWithT(t)
	good := "- {name: a, when: 'true', verdict: terminal, reason: r}"
	set, err := FromConfigMap(configMapWith(map[string]string{Key: good}))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(set.UserRules()).To(Equal(1))
	g.Expect(set.Rules()[0].Source).To(Equal("ConfigMap velero/clipper-snapshot-error-rules, rules.yaml"))

	set, err = FromConfigMap(configMapWith(nil))
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(set.UserRules()).To(BeZero())

	for _, data := range []map[string]string{{"rules.yml": good}, {Key: good, "more.yaml": good}} {
		_, err = FromConfigMap(configMapWith(data))
		g.Expect(err).To(MatchError(And(ContainSubstring("unknown key"), ContainSubstring("under the key rules.yaml"))))
	}
	binary := configMapWith(nil)
	binary.BinaryData = map[string][]byte{Key: []byte(good)}
	_, err = FromConfigMap(binary)
	g.Expect(err).To(MatchError(ContainSubstring("unknown key")))

	_, err = FromConfigMap(configMapWith(map[string]string{Key: "- {name: a, when: 'tru', verdict: terminal, reason: r}"}))
	g.Expect(err).To(MatchError(HavePrefix("ConfigMap velero/clipper-snapshot-error-rules, rules.yaml: rule 1 (a), line 1, column 20: undeclared")))
}

func TestFromFile(t *testing.T) {
	list := "- name: a\n  when: tru\n  verdict: terminal\n  reason: r\n"
	manifest := "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: x}\ndata:\n  rules.yaml: |\n    " + strings.ReplaceAll(list, "\n", "\n    ") + "\n"
	tests := map[string]struct{ text, want string }{
		"a list":               {list, "f: rule 1 (a), line 2, column 9: undeclared"},
		"a manifest":           {manifest, "f: rule 1 (a), line 7, column 13: undeclared"},
		"another object":       {"kind: Secret\n", "f: line 1, column 1: this must be a list of rules"},
		"a manifest without":   {"kind: ConfigMap\ndata: {}\n", "has the keys []"},
		"a manifest with more": {manifest + "  more: x\n", `has the keys ["more" "rules.yaml"]`},
		"no YAML":              {"[", "f: line 1, column 1: this is not YAML"},
		"no YAML within":       {strings.Replace(manifest, "tru", "a: b", 1), "f: line 7, column 5: this is not YAML"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := FromFile("f", test.text)
			NewWithT(t).Expect(err).To(MatchError(ContainSubstring(test.want)))
		})
	}
	for _, text := range []string{strings.ReplaceAll(list, "tru", "'true'"), strings.ReplaceAll(manifest, "tru", "'true'"), ""} {
		_, err := FromFile("f", text)
		NewWithT(t).Expect(err).NotTo(HaveOccurred())
	}
}

func TestTheShippedSample(t *testing.T) {
	g := NewWithT(t)
	text, err := os.ReadFile(samplesFile)
	g.Expect(err).NotTo(HaveOccurred())
	set, err := FromFile(samplesFile, string(text))
	g.Expect(err).NotTo(HaveOccurred())

	tests := []struct {
		rule    string
		verdict snapshot.Verdict
		o       snapshot.Observation
	}{
		{"pool-full", terminal, snapshot.Observation{Driver: "block.csi.example.com", Code: internal, Message: "pool is full: p1"}},
		{"too-many-copies", terminal, snapshot.Observation{Driver: "csi-array.example.com", Code: internal, Message: "Snapshots per volume: 64 of 64 used"}},
		{"array-busy", throttled, snapshot.Observation{Driver: "csi-array.example.com", Code: internal, Message: "controller busy"}},
		{"role-comes-late", retryable, snapshot.Observation{
			Driver: "disk.csi.azure.com", Code: internal, Message: "create snapshot error: AuthorizationFailed", Age: time.Minute,
		}},
		{"builtin/azuredisk-not-authorized", terminal, snapshot.Observation{
			Driver: "disk.csi.azure.com", Code: internal, Message: "create snapshot error: AuthorizationFailed", Age: 3 * time.Minute,
		}},
		{"tests-do-not-wait", terminal, snapshot.Observation{Driver: "x", Message: "odd", Namespace: "test-1", Age: time.Minute, Attempts: 2}},
	}
	g.Expect(set.UserRules()).To(Equal(5), "each has a test")
	for _, test := range tests {
		judgement := set.Judge(test.o)
		g.Expect(judgement.Rule).To(Equal(test.rule))
		g.Expect(judgement.Verdict).To(Equal(test.verdict), test.rule)
	}
}
