package tidy

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const kafkaDoor = root + "/internal/kafka"

// Each API of the Kafka door has a file of its own, and a test beside it: nothing
// is advertised that does not behave.
func TestEveryKafkaAPIHasItsFileAndItsTest(t *testing.T) {
	declaredIn := doorMethods(t)
	owner := map[string]string{}
	handlers := advertised(t)
	if len(handlers) < 20 {
		t.Fatalf("only %d APIs found in apis.go: this test does not understand it any more", len(handlers))
	}
	for _, h := range handlers {
		file := declaredIn[h]
		if file == "" {
			t.Errorf("no file declares the handler %s", h)
			continue
		}
		if owner[file] != "" {
			t.Errorf("%s handles both %s and %s: one API a file", file, owner[file], h)
		}
		owner[file] = h
		if own := strings.ReplaceAll(strings.TrimSuffix(file, ".go"), "_", ""); own != strings.ToLower(h) {
			t.Errorf("%s handles %s: it should have its name", file, h)
		}
		test := filepath.Join(kafkaDoor, strings.TrimSuffix(file, ".go")+"_test.go")
		api := "kmsg." + strings.ToUpper(h[:1]) + h[1:] + "Response"
		if b, err := os.ReadFile(test); err != nil || !strings.Contains(string(b), api) {
			t.Errorf("%s: nothing in %s looks at a %s", h, filepath.Base(test), api)
		}
	}
}

// advertised are the handlers in the rows of apis.go: handle or start.
func advertised(t *testing.T) (handlers []string) {
	ast.Inspect(parse(t, filepath.Join(kafkaDoor, "apis.go")), func(n ast.Node) bool {
		kv, ok := n.(*ast.KeyValueExpr)
		if !ok {
			return true
		}
		key, ok := kv.Key.(*ast.Ident)
		if !ok || key.Name != "handle" && key.Name != "start" {
			return true
		}
		if sel, ok := kv.Value.(*ast.SelectorExpr); ok {
			handlers = append(handlers, sel.Sel.Name)
		} else {
			t.Errorf("apis.go: %s is not a method of the door", key.Name)
		}
		return true
	})
	return handlers
}

// doorMethods says in which file each method of the door is.
func doorMethods(t *testing.T) map[string]string {
	files, err := filepath.Glob(filepath.Join(kafkaDoor, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	in := map[string]string{}
	for _, file := range files {
		for _, d := range parse(t, file).Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Recv == nil {
				continue
			}
			if star, ok := f.Recv.List[0].Type.(*ast.StarExpr); ok {
				if id, ok := star.X.(*ast.Ident); ok && id.Name == "Door" {
					in[f.Name.Name] = filepath.Base(file)
				}
			}
		}
	}
	return in
}

func parse(t *testing.T, file string) *ast.File {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	return f
}
