// Copyright The Clipper Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"sync"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/checker"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
)

// costLimit bounds one evaluation of one rule, in CEL's units. A search through the longest text costs some hundred, a
// regular expression over it some ten thousand.
const costLimit = 50_000

// variables are what an expression may speak of, with their types. The site's page on error rules explains them. "namespace"
// alone is a reserved word in CEL.
var variables = map[string]*cel.Type{
	"driver": cel.StringType, "code": cel.StringType, "message": cel.StringType, "words": cel.StringType,
	"age": cel.DurationType, "attempts": cel.IntType, "phase": cel.StringType,
	"storageClass": cel.StringType, "pvcNamespace": cel.StringType, "pvc": cel.StringType,
}

var environment = sync.OnceValues(func() (*cel.Env, error) {
	options := []cel.EnvOption{
		cel.CrossTypeNumericComparisons(true),
		// Wrong literals are found when rules are loaded, with their place.
		cel.ASTValidators(cel.ValidateRegexLiterals(), cel.ValidateDurationLiterals(), cel.ValidateTimestampLiterals()),
	}
	for name, kind := range variables {
		options = append(options, cel.Variable(name, kind))
	}
	return cel.NewEnv(options...)
})

// expressionError is what is wrong with an expression; line and column begin with 1, within the expression.
type expressionError struct {
	line, column int
	message      string
}

func (e *expressionError) Error() string { return e.message }

// program is an expression, ready for use.
type program struct {
	runnable  cel.Program
	condition condition
}

// met says whether the expression is true of an error. The activation is made of the subject when it is first needed.
func (p *program) met(s *subject, variables **activation) (bool, error) {
	if p.condition != nil && !p.condition(s) {
		return false, nil
	}
	if *variables == nil {
		*variables = newActivation(s)
	}
	value, _, err := p.runnable.Eval(*variables)
	return err == nil && value == types.True, err
}

// compile checks an expression and makes a program of it.
func compile(expression string) (*program, error) {
	env, err := environment()
	if err != nil {
		return nil, fmt.Errorf("building the expression environment: %w", err)
	}
	ast, issues := env.Compile(expression)
	if issues != nil && len(issues.Errors()) > 0 {
		worst := issues.Errors()[0]
		return nil, &expressionError{line: worst.Location.Line(), column: worst.Location.Column() + 1, message: worst.Message}
	}
	if ast.OutputType() != cel.BoolType {
		return nil, &expressionError{line: 1, column: 1, message: fmt.Sprintf("the expression gives a value of type %s; it must be true or false, of type bool", ast.OutputType())}
	}
	options := []cel.ProgramOption{cel.EvalOptions(cel.OptOptimize)}
	if !cheap(env, ast) {
		options = append(options, cel.CostLimit(costLimit))
	}
	runnable, err := env.Program(ast, options...)
	if err != nil {
		return nil, &expressionError{line: 1, column: 1, message: err.Error()}
	}
	return &program{runnable: runnable, condition: ofExpression(ast.NativeRep().Expr())}, nil
}

// cheap says whether an expression keeps the limit whatever the error is. Counting the cost while a rule runs makes it
// several times slower, so it is only done for those of which this isn't known beforehand.
func cheap(env *cel.Env, ast *cel.Ast) bool {
	estimate, err := env.EstimateCost(ast, sizes{})
	return err == nil && estimate.Max <= costLimit
}

// sizes tells CEL's estimate how long the variables can be.
type sizes struct{}

// maxName is the length of the longest name of a Kubernetes object.
const maxName = 253

// EstimateSize implements checker.CostEstimator.
func (sizes) EstimateSize(element checker.AstNode) *checker.SizeEstimate {
	path := element.Path()
	if len(path) != 1 {
		return nil
	}
	switch path[0] {
	case "message", "words":
		return &checker.SizeEstimate{Max: 2*maxEnd + uint64(len(gap))}
	case "driver", "code", "phase", "storageClass", "pvcNamespace", "pvc":
		return &checker.SizeEstimate{Max: maxName}
	}
	return nil
}

// EstimateCallCost implements checker.CostEstimator.
func (sizes) EstimateCallCost(string, string, *checker.AstNode, []checker.AstNode) *checker.CallEstimate {
	return nil
}

// activation gives a program its variables. They are made into CEL's values once for all rules.
type activation struct {
	driver, code, message, words, age, attempts, phase, storageClass, namespace, pvc ref.Val
}

func newActivation(s *subject) *activation {
	return &activation{
		driver: types.String(s.Driver), code: types.String(s.codeName()), message: types.String(s.Message), words: types.String(s.words),
		age: types.Duration{Duration: s.Age}, attempts: types.Int(s.Attempts), phase: types.String(s.Phase),
		storageClass: types.String(s.StorageClass), namespace: types.String(s.Namespace), pvc: types.String(s.PVC),
	}
}

// ResolveName implements interpreter.Activation.
func (a *activation) ResolveName(name string) (any, bool) {
	switch name {
	case "driver":
		return a.driver, true
	case "code":
		return a.code, true
	case "message":
		return a.message, true
	case "words":
		return a.words, true
	case "age":
		return a.age, true
	case "attempts":
		return a.attempts, true
	case "phase":
		return a.phase, true
	case "storageClass":
		return a.storageClass, true
	case "pvcNamespace":
		return a.namespace, true
	case "pvc":
		return a.pvc, true
	}
	return nil, false
}

// Parent implements interpreter.Activation.
func (a *activation) Parent() interpreter.Activation { return nil }
