package kafka

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/tube-mq/tube/internal/broker"
	"github.com/tube-mq/tube/internal/record"
)

func TestErrorsAreMappedThroughTheirWrapping(t *testing.T) {
	for _, e := range wireErrors {
		if got := errorCode(fmt.Errorf("while x: %w", e.err)); got != e.code.Code {
			t.Errorf("%v: %v", e.err, kerr.TypedErrorForCode(got))
		}
	}
	if errorCode(nil) != 0 || errorMessage(nil) != nil || errorCode(errors.New("?")) != kerr.UnknownServerError.Code {
		t.Error("nil or an unknown error")
	}
	if m := errorMessage(fmt.Errorf("%w: /secret/file", broker.ErrStorage)); strings.Contains(*m, "secret") {
		t.Errorf("the client is told %q", *m)
	}
	if m := errorMessage(fmt.Errorf("%w: 5 records", record.ErrInvalid)); !strings.Contains(*m, "5 records") {
		t.Errorf("the client is told %q", *m)
	}
}

// A sentinel that the table does not know would reach clients as UNKNOWN_SERVER_ERROR.
func TestEveryPartitionErrorIsInTheTable(t *testing.T) {
	for _, file := range []string{"../broker/types.go", "../record/batch.go"} {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		pkg, n := f.Name.Name, 0
		table, err := parser.ParseFile(token.NewFileSet(), "errors.go", nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		mapped := map[string]bool{}
		ast.Inspect(table, func(x ast.Node) bool {
			if s, ok := x.(*ast.SelectorExpr); ok {
				if id, ok := s.X.(*ast.Ident); ok {
					mapped[id.Name+"."+s.Sel.Name] = true
				}
			}
			return true
		})
		for name := range f.Scope.Objects {
			if strings.HasPrefix(name, "Err") {
				n++
				if !mapped[pkg+"."+name] {
					t.Errorf("%s.%s has no code", pkg, name)
				}
			}
		}
		if n == 0 {
			t.Errorf("no errors found in %s", file)
		}
	}
}
