// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package result

import (
	"fmt"
	"reflect"
	"strings"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/ext"
)

// variable is the one name that an expectation can refer to.
const variable = "result"

// Failure is an expectation that did not hold.
type Failure struct {
	// Expression is the expectation as written.
	Expression string `json:"expression"`
	// Values are what the parts of the expression were, in the order in which they stand there.
	Values []Value `json:"values"`
	// Error is set when the expression could not be evaluated, for example because it names a backup that is not there.
	Error string `json:"error"`
}

// Value is what one part of a failed expectation was.
type Value struct {
	Expression string `json:"expression"`
	Value      string `json:"value"`
}

// String is one line that names the expectation and its values.
func (f Failure) String() string {
	var b strings.Builder
	b.WriteString(f.Expression)
	for i, v := range f.Values {
		if i == 0 {
			b.WriteString("   where ")
		} else {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s = %s", v.Expression, v.Value)
	}
	if f.Error != "" {
		fmt.Fprintf(&b, "   (%s)", f.Error)
	}
	return b.String()
}

// CompileError is an expectation that is not a boolean CEL expression over the result.
type CompileError struct {
	Expression string
	// Line and Column count from 1 inside the expression.
	Line, Column int
	Message      string
}

// Error gives the message, the place and the expression with a mark under that place.
func (e *CompileError) Error() string {
	lines := strings.Split(e.Expression, "\n")
	shown := e.Expression
	if e.Line >= 1 && e.Line <= len(lines) {
		shown = lines[e.Line-1]
	}
	return fmt.Sprintf("column %d: %s\n    %s\n    %s^", e.Column, e.Message, shown, strings.Repeat(" ", max(e.Column-1, 0)))
}

// environment is built once: the type tables of Result never change.
var environment = sync.OnceValues(func() (*cel.Env, error) {
	return cel.NewEnv(
		ext.NativeTypes(nativeTypes()...),
		ext.Strings(),
		ext.Math(),
		ext.Lists(),
		ext.TwoVarComprehensions(),
		cel.CrossTypeNumericComparisons(true),
		cel.Variable(variable, cel.ObjectType("result.Result")),
	)
})

// nativeTypes lists the structs an expression can reach. Those behind a map have to be named: the type provider finds
// only what a field holds directly.
func nativeTypes() []any {
	return []any{
		ext.ParseStructTag("json"), reflect.TypeFor[Result](),
		reflect.TypeFor[Backup](), reflect.TypeFor[PVC](), reflect.TypeFor[Pod](), reflect.TypeFor[Driver](),
		reflect.TypeFor[Restore](), reflect.TypeFor[Plugins](), reflect.TypeFor[Deletion](), reflect.TypeFor[Command](),
	}
}

// Check compiles one expectation. The error is a *CompileError when the expression is at fault.
func Check(expression string) error {
	_, err := compile(expression)
	return err
}

func compile(expression string) (*cel.Ast, error) {
	env, err := environment()
	if err != nil {
		return nil, fmt.Errorf("building the expression environment: %w", err)
	}
	ast, issues := env.Compile(expression)
	if issues != nil && len(issues.Errors()) > 0 {
		first := issues.Errors()[0]
		return nil, &CompileError{
			Expression: expression,
			Line:       first.Location.Line(),
			Column:     first.Location.Column() + 1,
			Message:    explain(first.Message),
		}
	}
	if ast.OutputType() != cel.BoolType && ast.OutputType() != cel.DynType {
		return nil, &CompileError{
			Expression: expression, Line: 1, Column: 1,
			Message: fmt.Sprintf("an expectation must be true or false, this one is of type %s", ast.OutputType()),
		}
	}
	return ast, nil
}

// explain adds the way out to the one type error that everybody meets: CEL does not mix whole numbers and fractions in
// arithmetic.
func explain(message string) string {
	if strings.Contains(message, "no matching overload") && strings.Contains(message, "double") && strings.Contains(message, "int") {
		return message + " (write 2.0 instead of 2 beside a number of seconds, or double(x) around a count)"
	}
	return message
}

// Evaluate holds the expectations against the result and returns those that are not true, in their order.
func Evaluate(expectations []string, result *Result) []Failure {
	var failures []Failure
	for _, expression := range expectations {
		if failure := evaluate(expression, result); failure != nil {
			failures = append(failures, *failure)
		}
	}
	return failures
}

func evaluate(expression string, result *Result) *Failure {
	failure := &Failure{Expression: expression}
	ast, err := compile(expression)
	if err != nil {
		failure.Error = err.Error()
		return failure
	}
	env, err := environment()
	if err != nil {
		failure.Error = err.Error()
		return failure
	}
	rounds := watchLoops(ast)
	program, err := env.Program(ast, cel.EvalOptions(cel.OptTrackState), cel.CustomDecorator(rounds.decorate))
	if err != nil {
		failure.Error = err.Error()
		return failure
	}
	out, details, err := program.Eval(map[string]any{variable: result})
	if err == nil && out.Value() == true {
		return nil
	}
	if err != nil {
		failure.Error = err.Error()
	}
	if details != nil {
		failure.Values = values(ast, details, rounds)
	}
	return failure
}
