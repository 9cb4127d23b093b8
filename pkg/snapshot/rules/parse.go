// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/velero-clipper/clipper/pkg/snapshot"
)

const (
	// maxRules bounds how long one error can keep the server busy.
	maxRules = 1000
	// maxProblems is how many problems are told at once.
	maxProblems = 20
)

// Problem is one thing that is wrong with a text of rules.
type Problem struct {
	// Rule is the number of the rule, from 1; 0 when it is about the whole text. Name is the rule's, where it has one.
	Rule int
	Name string
	// Line and Column are places in the text, from 1; 0 when there is none.
	Line, Column int
	// Message says what is wrong and what would be right.
	Message string
}

// Error implements error.
func (p Problem) Error() string {
	var where []string
	if p.Rule > 0 {
		rule := fmt.Sprintf("rule %d", p.Rule)
		if p.Name != "" {
			rule += fmt.Sprintf(" (%s)", p.Name)
		}
		where = append(where, rule)
	}
	if p.Line > 0 {
		where = append(where, fmt.Sprintf("line %d, column %d", p.Line, p.Column))
	}
	if len(where) == 0 {
		return p.Message
	}
	return strings.Join(where, ", ") + ": " + p.Message
}

// ParseError is everything that is wrong with a text of rules.
type ParseError struct {
	// Where names the text: a file, or a ConfigMap and its key.
	Where    string
	Problems []Problem
}

// Error implements error: one line for each problem.
func (e *ParseError) Error() string {
	lines := make([]string, 0, maxProblems+1)
	for i, problem := range e.Problems {
		if i == maxProblems {
			lines = append(lines, fmt.Sprintf("%s: and %d more", e.Where, len(e.Problems)-i))
			break
		}
		lines = append(lines, e.Where+": "+problem.Error())
	}
	return strings.Join(lines, "\n")
}

// Parse reads the platform's rules, a YAML list, and puts the built-in ones behind them. Where names the text in errors and
// becomes the rules' source. The error is a *ParseError: a set is whole or isn't made.
func Parse(where, text string) (*Set, error) {
	documents := yaml.NewDecoder(strings.NewReader(text))
	var document, second yaml.Node
	switch err := documents.Decode(&document); {
	case errors.Is(err, io.EOF): // nothing but comments
		return BuiltIn(), nil
	case err != nil:
		return nil, notYAML(where, err)
	}
	if err := documents.Decode(&second); !errors.Is(err, io.EOF) {
		if err != nil {
			return nil, notYAML(where, err)
		}
		return nil, &ParseError{Where: where, Problems: []Problem{{
			Line: second.Line, Column: second.Column, Message: "there is a second YAML document; put all rules into one list",
		}}}
	}
	p := &parser{lines: strings.Split(text, "\n"), where: where, names: map[string]int{}}
	set := p.set(document.Content[0])
	if len(p.problems) > 0 {
		return nil, &ParseError{Where: where, Problems: p.problems}
	}
	return set, nil
}

var yamlLine = regexp.MustCompile(`^yaml: line (\d+): `)

// notYAML takes the line out of the words of the YAML parser, which knows no column.
func notYAML(where string, err error) error {
	problem := Problem{Message: "this is not YAML: " + strings.TrimPrefix(yamlLine.ReplaceAllString(err.Error(), ""), "yaml: ")}
	if found := yamlLine.FindStringSubmatch(err.Error()); found != nil {
		problem.Line, _ = strconv.Atoi(found[1])
		problem.Column = 1
	}
	if strings.Contains(problem.Message, "mapping values are not allowed") {
		problem.Message += `; put a text that has ": " in it between single quotes, or on lines of its own after "when: |"`
	}
	return &ParseError{Where: where, Problems: []Problem{problem}}
}

// parser turns nodes into rules and collects problems.
type parser struct {
	lines []string
	where string
	// names are the numbers of the rules that have them.
	names    map[string]int
	problems []Problem
}

func (p *parser) problem(number int, name string, at *yaml.Node, format string, args ...any) {
	p.problems = append(p.problems, Problem{Rule: number, Name: name, Line: at.Line, Column: at.Column, Message: fmt.Sprintf(format, args...)})
}

func (p *parser) set(list *yaml.Node) *Set {
	set := &Set{}
	switch {
	case list.Kind == yaml.ScalarNode && list.Tag == "!!null":
		return set
	case list.Kind != yaml.SequenceNode:
		p.problem(0, "", list, "this must be a list of rules, each beginning with \"- name: ...\"")
		return set
	case len(list.Content) > maxRules:
		p.problem(0, "", list, "there are %d rules; at most %d are possible: put several texts into one expression with ||", len(list.Content), maxRules)
		return set
	}
	for i, node := range list.Content {
		if rule := p.rule(i+1, node); rule != nil {
			set.user = append(set.user, rule)
		}
	}
	return set
}

// ruleKeys are the keys of a rule.
var ruleKeys = []string{"name", "when", "verdict", "reason"}

var ruleName = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?$`)

// rule reads one rule; nil when something is wrong with it.
func (p *parser) rule(number int, node *yaml.Node) *userRule {
	before := len(p.problems)
	values := p.values(number, node)
	if values == nil {
		return nil
	}
	name := ""
	if values["name"] != nil {
		name = values["name"].Value
	}
	for _, field := range ruleKeys {
		if values[field] == nil || strings.TrimSpace(values[field].Value) == "" {
			p.problem(number, name, node, "%s is missing; a rule has %s", field, strings.Join(ruleKeys, ", "))
		}
	}
	if len(p.problems) > before {
		return nil
	}
	rule := &userRule{Rule: Rule{
		Name: name, Kind: KindUser, Source: p.where, When: strings.TrimSpace(values["when"].Value), Reason: strings.TrimSpace(values["reason"].Value),
	}}
	p.name(number, values["name"])
	p.verdict(number, rule, values["verdict"])
	p.when(number, rule, values["when"])
	if len(p.problems) > before {
		return nil
	}
	return rule
}

// values are the fields of a rule; nil when it isn't one.
func (p *parser) values(number int, node *yaml.Node) map[string]*yaml.Node {
	if node.Kind != yaml.MappingNode {
		p.problem(number, "", node, "a rule is a mapping with %s", strings.Join(ruleKeys, ", "))
		return nil
	}
	values := map[string]*yaml.Node{}
	for i := 0; i+1 < len(node.Content); i += 2 {
		if node.Content[i].Value == "name" {
			values["name"] = node.Content[i+1]
		}
	}
	name := ""
	if values["name"] != nil {
		name = values["name"].Value
	}
	clear(values)
	for i := 0; i+1 < len(node.Content); i += 2 {
		key, value := node.Content[i], node.Content[i+1]
		switch {
		case !slices.Contains(ruleKeys, key.Value):
			p.problem(number, name, key, "unknown key %q; a rule has %s", key.Value, strings.Join(ruleKeys, ", "))
		case values[key.Value] != nil:
			p.problem(number, name, key, "%s is there twice", key.Value)
		case value.Kind != yaml.ScalarNode:
			p.problem(number, name, value, "%s must be one text", key.Value)
			values[key.Value] = key // not missing as well
		default:
			values[key.Value] = value
		}
	}
	return values
}

func (p *parser) name(number int, node *yaml.Node) {
	name := node.Value
	switch other := p.names[name]; {
	case !ruleName.MatchString(name):
		p.problem(number, name, node, "the name may have lower-case letters, digits, - and ., 63 at most, such as san-pool-full")
	case other > 0:
		p.problem(number, name, node, "rule %d has the same name; give each its own, so that a verdict can be traced", other)
	default:
		p.names[name] = number
	}
}

func (p *parser) verdict(number int, rule *userRule, node *yaml.Node) {
	for _, verdict := range []snapshot.Verdict{terminal, retryable, throttled} {
		if node.Value == verdict.String() {
			rule.Verdict = verdict
			return
		}
	}
	p.problem(number, rule.Name, node, "unknown verdict %q; it is terminal (fail the snapshot now), retryable (wait for it), or throttled "+
		"(wait, and have fewer of this driver in flight)", node.Value)
}

func (p *parser) when(number int, rule *userRule, node *yaml.Node) {
	program, err := compile(node.Value)
	if err == nil {
		rule.program = program
		return
	}
	problem := Problem{Rule: number, Name: rule.Name, Line: node.Line, Column: node.Column, Message: err.Error()}
	var wrong *expressionError
	if errors.As(err, &wrong) {
		problem.Line, problem.Column = p.place(node, wrong.line, wrong.column)
		problem.Message = p.explain(wrong.message, node.Value, wrong.line, wrong.column)
	}
	p.problems = append(p.problems, problem)
}

// place finds where a place in a scalar is in the whole text.
func (p *parser) place(node *yaml.Node, line, column int) (int, int) {
	switch node.Style &^ yaml.TaggedStyle {
	case yaml.LiteralStyle:
		if at := node.Line + line; at <= len(p.lines) {
			return at, p.indent(node.Line) + column
		}
	case yaml.SingleQuotedStyle, yaml.DoubleQuotedStyle:
		return node.Line, node.Column + column
	case 0:
		return node.Line, node.Column + column - 1
	}
	return node.Line, node.Column // a folded text: the message shows the place in the expression
}

// indent is that of the first line of a block that has anything in it.
func (p *parser) indent(from int) int {
	for _, line := range p.lines[min(from, len(p.lines)):] {
		if trimmed := strings.TrimLeft(line, " "); strings.TrimSpace(trimmed) != "" {
			return len(line) - len(trimmed)
		}
	}
	return 0
}

// maxShown is how much of an expression is shown on each side of a mistake.
const maxShown = 30

// explain puts the part of the expression that is wrong, and the way out, behind CEL's message.
func (p *parser) explain(message, expression string, line, column int) string {
	shown := ""
	if lines := strings.Split(expression, "\n"); line >= 1 && line <= len(lines) {
		runes := []rune(lines[line-1])
		from := min(max(column-1, 0), len(runes))
		shown = string(runes[max(from-maxShown, 0):from]) + "<here>" + string(runes[from:min(from+maxShown, len(runes))])
	}
	message = strings.ReplaceAll(strings.TrimSuffix(message, "."), " (in container '')", "")
	message = fmt.Sprintf("%s, at %q", message, shown)
	switch {
	case strings.Contains(message, "reserved identifier: namespace"):
		message += "; the claim's namespace is pvcNamespace"
	case strings.Contains(message, "invalid matches argument"):
		message += "; it must be an RE2 expression, which has no lookahead and no backreferences"
	case strings.Contains(message, "undeclared reference"):
		message += "; the variables are driver, code, message, words, age, attempts, phase, storageClass, pvcNamespace and pvc"
	case strings.Contains(message, "found no matching overload"):
		message += `; texts are compared with texts ("..."), age with durations (duration("30s")), attempts with whole numbers`
	}
	return message
}
