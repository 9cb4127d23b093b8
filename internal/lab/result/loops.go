// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package result

import (
	"github.com/google/cel-go/cel"
	celast "github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
)

// loops remembers what the loop variables of an expression were in the last round of each loop. The evaluation state of
// CEL does not keep them, and without them a failed "all" could not say which element broke it.
//
// One value belongs to one evaluation; it is not safe for concurrent use.
type loops struct {
	// names of the loop variables, by the ID of the expression that each round evaluates.
	names map[int64][]string
	last  map[int64]map[string]ref.Val
}

func watchLoops(ast *cel.Ast) *loops {
	l := &loops{names: map[int64][]string{}, last: map[int64]map[string]ref.Val{}}
	celast.PostOrderVisit(ast.NativeRep().Expr(), celast.NewExprVisitor(func(e celast.Expr) {
		if e.Kind() != celast.ComprehensionKind {
			return
		}
		loop := e.AsComprehension()
		names := []string{loop.IterVar()}
		if loop.HasIterVar2() {
			names = append(names, loop.IterVar2())
		}
		l.names[loop.LoopStep().ID()] = names
	}))
	return l
}

// decorate is a cel.CustomDecorator: it puts a spy around the step of each loop.
func (l *loops) decorate(i interpreter.Interpretable) (interpreter.Interpretable, error) {
	if _, isStep := l.names[i.ID()]; isStep {
		return &loopSpy{Interpretable: i, loops: l}, nil
	}
	return i, nil
}

// loopSpy notes the loop variables, then lets the step go on.
type loopSpy struct {
	interpreter.Interpretable
	loops *loops
}

func (s *loopSpy) Eval(vars interpreter.Activation) ref.Val {
	round := map[string]ref.Val{}
	for _, name := range s.loops.names[s.ID()] {
		if value, ok := vars.ResolveName(name); ok {
			round[name] = types.DefaultTypeAdapter.NativeToValue(value)
		}
	}
	s.loops.last[s.ID()] = round
	return s.Interpretable.Eval(vars)
}
