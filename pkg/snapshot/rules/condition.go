// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"regexp/syntax"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
)

// condition is something that holds whenever a rule is met, and costs next to nothing to find out. Most rules are not met by
// most errors; only where the condition holds, the expression itself is asked. Nil holds always.
type condition func(*subject) bool

// both holds when all conditions do.
func both(conditions []condition) condition {
	conditions = slices.DeleteFunc(conditions, func(c condition) bool { return c == nil })
	switch len(conditions) {
	case 0:
		return nil
	case 1:
		return conditions[0]
	}
	return func(s *subject) bool {
		for _, holds := range conditions {
			if !holds(s) {
				return false
			}
		}
		return true
	}
}

// either holds when one of the conditions does; it says nothing when one of them doesn't.
func either(conditions []condition) condition {
	if slices.ContainsFunc(conditions, func(c condition) bool { return c == nil }) {
		return nil
	}
	return func(s *subject) bool {
		return slices.ContainsFunc(conditions, func(holds condition) bool { return holds(s) })
	}
}

// variable is the name of what a text is taken from, as in CEL expressions.
type variable string

const (
	inMessage variable = "message"
	inWords   variable = "words"
)

// has holds when the text of the variable may have the word, in whatever case.
func (v variable) has(text string) condition {
	w := newWord(text)
	if len(w) == 0 {
		return nil
	}
	if v == inMessage {
		return func(s *subject) bool { return s.messageIndex().may(w) }
	}
	return func(s *subject) bool { return s.wordsIndex().may(w) }
}

// ofPattern is the condition of a regular expression that is looked for in the text of a variable.
func (v variable) ofPattern(tree *syntax.Regexp) condition {
	switch tree.Op {
	case syntax.OpLiteral:
		text := string(tree.Rune)
		if tree.Flags&syntax.FoldCase != 0 && len(text) > utf8.RuneCountInString(text) {
			return nil // other letters than English ones have their own rules about case
		}
		return v.has(text)
	case syntax.OpCapture, syntax.OpPlus:
		return v.ofPattern(tree.Sub[0])
	case syntax.OpRepeat:
		if tree.Min > 0 {
			return v.ofPattern(tree.Sub[0])
		}
	case syntax.OpConcat:
		return both(v.ofPatterns(tree.Sub))
	case syntax.OpAlternate:
		return either(v.ofPatterns(tree.Sub))
	}
	return nil
}

func (v variable) ofPatterns(trees []*syntax.Regexp) []condition {
	conditions := make([]condition, 0, len(trees))
	for _, tree := range trees {
		conditions = append(conditions, v.ofPattern(tree))
	}
	return conditions
}

// ofExpression is the condition of a CEL expression.
func ofExpression(e ast.Expr) condition {
	if e.Kind() != ast.CallKind {
		return nil
	}
	call := e.AsCall()
	switch call.FunctionName() {
	case operators.LogicalAnd:
		return both(ofExpressions(call.Args()))
	case operators.LogicalOr:
		return either(ofExpressions(call.Args()))
	case operators.Equals:
		left, right := call.Args()[0], call.Args()[1]
		if right.Kind() == ast.IdentKind {
			left, right = right, left
		}
		return ofText(operators.Equals, left, right)
	case operators.In:
		return ofList(call.Args()[0], call.Args()[1])
	case operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals:
		return ofNumber(call.FunctionName(), call.Args()[0], call.Args()[1])
	}
	if call.IsMemberFunction() && len(call.Args()) == 1 {
		return ofText(call.FunctionName(), call.Target(), call.Args()[0])
	}
	return nil
}

func ofExpressions(expressions []ast.Expr) []condition {
	conditions := make([]condition, 0, len(expressions))
	for _, e := range expressions {
		conditions = append(conditions, ofExpression(e))
	}
	return conditions
}

// ofList is the condition of "variable in [texts]".
func ofList(left, right ast.Expr) condition {
	if right.Kind() != ast.ListKind || right.AsList().Size() == 0 {
		return nil
	}
	conditions := make([]condition, 0, right.AsList().Size())
	for _, element := range right.AsList().Elements() {
		conditions = append(conditions, ofText(operators.Equals, left, element))
	}
	return either(conditions)
}

// ofText is the condition of a comparison of a variable with a text that is written in the expression.
func ofText(function string, left, right ast.Expr) condition {
	if left.Kind() != ast.IdentKind || right.Kind() != ast.LiteralKind {
		return nil
	}
	text, ok := right.AsLiteral().Value().(string)
	if !ok {
		return nil
	}
	v := variable(left.AsIdent())
	if v == inMessage || v == inWords {
		return v.ofFunction(function, text)
	}
	get := name(v)
	if get == nil {
		return nil
	}
	switch function {
	case operators.Equals:
		return func(s *subject) bool { return get(s) == text }
	case "startsWith":
		return func(s *subject) bool { return strings.HasPrefix(get(s), text) }
	case "endsWith":
		return func(s *subject) bool { return strings.HasSuffix(get(s), text) }
	case "contains":
		return func(s *subject) bool { return strings.Contains(get(s), text) }
	}
	return nil
}

func (v variable) ofFunction(function, text string) condition {
	switch function {
	case operators.Equals, "startsWith", "endsWith", "contains":
		return v.has(text)
	case "matches":
		if tree, err := syntax.Parse(text, syntax.Perl); err == nil {
			return v.ofPattern(tree)
		}
	}
	return nil
}

// name returns what gets the short text of a variable; nil when it has none.
func name(v variable) func(*subject) string {
	switch v {
	case "driver":
		return func(s *subject) string { return s.Driver }
	case "code":
		return (*subject).codeName
	case "phase":
		return func(s *subject) string { return string(s.Phase) }
	case "storageClass":
		return func(s *subject) string { return s.StorageClass }
	case "pvcNamespace":
		return func(s *subject) string { return s.Namespace }
	case "pvc":
		return func(s *subject) string { return s.PVC }
	}
	return nil
}

// ofNumber is the condition of a comparison of the age or the attempts with a value that is written in the expression.
func ofNumber(function string, left, right ast.Expr) condition {
	if left.Kind() != ast.IdentKind {
		return nil
	}
	var get func(*subject) int64
	var limit int64
	var ok bool
	switch left.AsIdent() {
	case "age":
		get = func(s *subject) int64 { return int64(s.Age) }
		limit, ok = durationOf(right)
	case "attempts":
		get = func(s *subject) int64 { return int64(s.Attempts) }
		if right.Kind() == ast.LiteralKind {
			limit, ok = right.AsLiteral().Value().(int64)
		}
	}
	if !ok {
		return nil
	}
	switch function {
	case operators.Less:
		return func(s *subject) bool { return get(s) < limit }
	case operators.LessEquals:
		return func(s *subject) bool { return get(s) <= limit }
	case operators.Greater:
		return func(s *subject) bool { return get(s) > limit }
	default:
		return func(s *subject) bool { return get(s) >= limit }
	}
}

// durationOf is the value of duration("..."), in nanoseconds.
func durationOf(e ast.Expr) (int64, bool) {
	if e.Kind() != ast.CallKind || e.AsCall().FunctionName() != "duration" || len(e.AsCall().Args()) != 1 {
		return 0, false
	}
	if e = e.AsCall().Args()[0]; e.Kind() != ast.LiteralKind {
		return 0, false
	}
	text, _ := e.AsLiteral().Value().(string)
	d, err := time.ParseDuration(text)
	return int64(d), err == nil
}
