// Package selector evaluates the CEL selectors of ResourceClaims as the scheduler does. It is apart
// from package explain because the CEL library is large.
package selector

import (
	"context"
	"fmt"
	"strings"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/parser"
	resourcev1 "k8s.io/api/resource/v1"
	dracel "k8s.io/dynamic-resource-allocation/cel"

	"akri.sh/libs/inspect/explain"
)

// maxCompiled limits the selectors that stay compiled.
const maxCompiled = 100

// Evaluator evaluates selectors. Several goroutines can use it.
type Evaluator struct {
	compiled *dracel.Cache
}

// New returns an Evaluator.
func New() *Evaluator {
	return &Evaluator{compiled: dracel.NewCache(maxCompiled, dracel.Features{EnableConsumableCapacity: true})}
}

// Matches reports whether the selector selects the device of the driver. An attribute that the
// device does not have is explain.ErrNoAttribute.
func (e *Evaluator) Matches(expression, driver string, device *resourcev1.Device) (bool, error) {
	compiled := e.compiled.GetOrCompile(expression)
	if compiled.Error != nil {
		return false, fmt.Errorf("compile selector: %w", compiled.Error)
	}
	matches, _, err := compiled.DeviceMatches(context.Background(), dracel.Device{
		Driver: driver, AllowMultipleAllocations: device.AllowMultipleAllocations, Attributes: device.Attributes, Capacity: device.Capacity,
	})
	if err != nil {
		return false, evaluationError{err}
	}
	return matches, nil
}

type evaluationError struct{ error }

func (e evaluationError) Error() string { return "evaluate selector: " + e.error.Error() }

func (e evaluationError) Unwrap() error { return e.error }

// Is compares a prefix because CEL has no error value for a missing key.
func (e evaluationError) Is(target error) bool {
	return target == explain.ErrNoAttribute && strings.HasPrefix(e.error.Error(), "no such key: ")
}

// Terms returns the operands of the conjunction that the selector is, or the selector if it is
// none.
func (*Evaluator) Terms(expression string) []string {
	env, err := cel.NewEnv()
	if err != nil {
		return []string{expression}
	}
	parsed, issues := env.Parse(expression)
	if issues.Err() != nil {
		return []string{expression}
	}
	var terms []string
	var split func(ast.Expr)
	split = func(e ast.Expr) {
		if e.Kind() == ast.CallKind && e.AsCall().FunctionName() == operators.LogicalAnd {
			for _, operand := range e.AsCall().Args() {
				split(operand)
			}
			return
		}
		text, err := parser.Unparse(e, parsed.NativeRep().SourceInfo())
		if err != nil {
			text = expression
		}
		terms = append(terms, text)
	}
	split(parsed.NativeRep().Expr())
	return terms
}
