// Package filter decides by a CEL expression which messages a queue group wants.
// An expression is compiled once; whether it fits is decided then, with the place of
// the mistake. It has no loops that are not bounded by the message, no way out of the
// message, and a limit on what one evaluation may cost.
//
// It sees, of one message:
//
//	key        string             "" if there is none
//	headers    map(string, string)
//	timestamp  timestamp
//	size       int                bytes of key, value and headers
//	topic      string
//	partition  int
//	offset     int
package filter

import (
	"fmt"
	"time"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/interpreter"
)

// MaxBytes of an expression.
const MaxBytes = 4 << 10

// maxCost of one evaluation, in CEL's units: about one for each thing that is looked
// at, and a tenth for each byte of a text that is searched.
const maxCost = 10_000

// Message is what an expression sees.
type Message struct {
	Key             []byte
	Headers         func() map[string]string // called if the expression looks at them, once
	TimestampMillis int64
	Size            int
	Topic           string
	Partition       int32
	Offset          int64
}

// Filter is a compiled expression. Safe for use by many goroutines.
type Filter struct {
	text    string
	program cel.Program
}

// SyntaxError says where an expression is wrong.
type SyntaxError struct {
	Line, Column int // from 1
	Text         string
}

func (e *SyntaxError) Error() string {
	return fmt.Sprintf("filter, line %d, column %d: %s", e.Line, e.Column, e.Text)
}

var env = func() *cel.Env {
	e, err := cel.NewEnv(
		cel.Variable("key", cel.StringType),
		cel.Variable("headers", cel.MapType(cel.StringType, cel.StringType)),
		cel.Variable("timestamp", cel.TimestampType),
		cel.Variable("size", cel.IntType),
		cel.Variable("topic", cel.StringType),
		cel.Variable("partition", cel.IntType),
		cel.Variable("offset", cel.IntType),
		cel.ParserExpressionSizeLimit(MaxBytes), cel.ParserRecursionLimit(100),
	)
	if err != nil {
		panic("filter: " + err.Error())
	}
	return e
}()

// Compile reads an expression. It must be a bool. Error: *SyntaxError for what is
// wrong with it.
func Compile(text string) (*Filter, error) {
	if len(text) > MaxBytes {
		return nil, &SyntaxError{1, MaxBytes + 1, fmt.Sprintf("it is %d bytes long, %d are allowed", len(text), MaxBytes)}
	}
	ast, issues := env.Compile(text)
	if issues != nil && issues.Err() != nil {
		return nil, firstIssue(issues)
	}
	if t := ast.OutputType(); !t.IsExactType(cel.BoolType) {
		return nil, &SyntaxError{1, 1, fmt.Sprintf("it is of type %s and must be bool, true for messages that are wanted", t)}
	}
	p, err := env.Program(ast, cel.EvalOptions(cel.OptOptimize), cel.CostLimit(maxCost))
	if err != nil { // for example a regular expression that is none
		return nil, &SyntaxError{1, 1, err.Error()}
	}
	return &Filter{text, p}, nil
}

func firstIssue(issues *cel.Issues) error {
	all := issues.Errors()
	if len(all) == 0 {
		return &SyntaxError{1, 1, issues.Err().Error()}
	}
	first := all[0]
	return &SyntaxError{max(1, first.Location.Line()), max(1, first.Location.Column()+1), first.Message}
}

// String is the expression.
func (f *Filter) String() string { return f.text }

// Match reports whether the message is wanted. An error (a header that is not there,
// too much cost, a number that is none) is the message's: whoever asks decides.
func (f *Filter) Match(m *Message) (bool, error) {
	out, _, err := f.program.Eval(&activation{m: m})
	if err != nil {
		return false, fmt.Errorf("filter %.80q: %w", f.text, err)
	}
	b, ok := out.(types.Bool)
	if !ok {
		return false, fmt.Errorf("filter %.80q: it answered a %s", f.text, out.Type())
	}
	return bool(b), nil
}

// activation looks variables up in the message, so that only what is asked for is made.
type activation struct {
	m       *Message
	headers ref.Val
}

// ResolveName implements interpreter.Activation.
func (a *activation) ResolveName(name string) (any, bool) {
	switch name {
	case "key":
		return types.String(a.m.Key), true
	case "headers":
		if a.headers == nil {
			var h map[string]string
			if a.m.Headers != nil {
				h = a.m.Headers()
			}
			a.headers = types.NewStringStringMap(types.DefaultTypeAdapter, h)
		}
		return a.headers, true
	case "timestamp":
		return types.Timestamp{Time: time.UnixMilli(a.m.TimestampMillis).UTC()}, true
	case "size":
		return types.Int(a.m.Size), true
	case "topic":
		return types.String(a.m.Topic), true
	case "partition":
		return types.Int(a.m.Partition), true
	case "offset":
		return types.Int(a.m.Offset), true
	}
	return nil, false
}

// Parent implements interpreter.Activation.
func (a *activation) Parent() interpreter.Activation { return nil }
