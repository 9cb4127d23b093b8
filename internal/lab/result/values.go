// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package result

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/google/cel-go/cel"
	celast "github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"github.com/google/cel-go/interpreter"
	"github.com/google/cel-go/parser"
)

// longestValue bounds what is shown of one value; a tarball's file list has thousands of entries.
const longestValue = 400

// valueWalk collects the parts of an expression that a reader wants to know the value of.
type valueWalk struct {
	info  *celast.SourceInfo
	state interpreter.EvalState
	loops *loops
	seen  map[string]bool
	found []Value
}

// values lists what the parts of a failed expression were. A loop (all, exists, ...) leaves the values of its last round,
// which for "all" is the first element that did not satisfy it.
func values(ast *cel.Ast, details *cel.EvalDetails, loops *loops) []Value {
	native := ast.NativeRep()
	walk := &valueWalk{info: native.SourceInfo(), state: details.State(), loops: loops, seen: map[string]bool{}}
	walk.visit(native.Expr())
	return walk.found
}

func (w *valueWalk) visit(e celast.Expr) {
	switch e.Kind() {
	case celast.SelectKind, celast.IdentKind:
		w.record(e)
	case celast.CallKind:
		w.visitCall(e)
	case celast.ListKind:
		for _, element := range e.AsList().Elements() {
			w.visit(element)
		}
	case celast.ComprehensionKind:
		w.visitLoop(e)
	}
}

func (w *valueWalk) visitCall(e celast.Expr) {
	call := e.AsCall()
	switch call.FunctionName() {
	case "_[_]":
		w.record(e)
		w.visit(call.Args()[1])
		return
	case "size":
		// The size is the news; the list it counts is shown, shortened, after it.
		w.record(e)
	}
	if call.IsMemberFunction() {
		w.visit(call.Target())
	}
	for _, argument := range call.Args() {
		w.visit(argument)
	}
}

func (w *valueWalk) visitLoop(e celast.Expr) {
	loop := e.AsComprehension()
	step := loop.LoopStep().ID()
	last, entered := w.loops.last[step]
	if !entered {
		w.visit(loop.IterRange())
		return
	}
	for _, name := range w.loops.names[step] {
		if value, ok := last[name]; ok {
			w.add(name, value)
		}
	}
	w.visit(loop.LoopStep())
}

func (w *valueWalk) record(e celast.Expr) {
	value, ok := w.state.Value(e.ID())
	if !ok || types.IsUnknownOrError(value) {
		return
	}
	if source, err := parser.Unparse(e, w.info); err == nil {
		w.add(source, value)
	}
}

// add keeps a value unless it is the whole result, a helper variable that a macro brought in, or known already.
func (w *valueWalk) add(source string, value ref.Val) {
	if source == variable || strings.Contains(source, "@") || w.seen[source] {
		return
	}
	w.seen[source] = true
	w.found = append(w.found, Value{Expression: source, Value: show(value)})
}

// show writes a value the way a reader would: strings quoted, seconds with three decimals, structures shortened.
func show(value ref.Val) string {
	switch v := value.(type) {
	case types.Double:
		return strconv.FormatFloat(float64(v), 'f', 3, 64)
	case types.String:
		return shorten(strconv.Quote(string(v)))
	case traits.Mapper:
		return showMap(v)
	case traits.Lister:
		return showList(v)
	}
	return shorten(fmt.Sprintf("%v", value.Value()))
}

func showList(list traits.Lister) string {
	var parts []string
	length := 0
	for it := list.Iterator(); it.HasNext() == types.True && length < longestValue; {
		part := show(it.Next())
		parts = append(parts, part)
		length += len(part)
	}
	return shorten("[" + strings.Join(parts, ", ") + "]")
}

func showMap(m traits.Mapper) string {
	var keys []string
	for it := m.Iterator(); it.HasNext() == types.True; {
		keys = append(keys, fmt.Sprint(it.Next().Value()))
	}
	return shorten(fmt.Sprintf("a map with the keys %v", keys))
}

func shorten(s string) string {
	if len(s) <= longestValue {
		return s
	}
	return s[:longestValue] + "..."
}
