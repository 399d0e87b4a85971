package config

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// maxFileBytes bounds the configuration file.
const maxFileBytes = 1 << 20

// Sources are where settings come from, weakest last.
type Sources struct {
	Flags map[string]string // name → value, of the flags that were given
	Env   []string          // as from os.Environ
	File  string            // path of the YAML file; empty: TUBE_CONFIG, else none
}

// Load reads and validates a node's settings. The error lists every mistake
// found, one a line, each with where it stands and what to do.
func Load(ctx context.Context, src Sources) (*Config, error) {
	env := envMap(src.Env)
	if src.File == "" {
		src.File = env[envFile]
	}
	c := Default()
	var problems []error
	if src.File != "" {
		problems = append(problems, applyFile(c, src.File)...)
	}
	problems = append(problems, applyEnv(c, env)...)
	problems = append(problems, applyFlags(c, src.Flags)...)
	if len(problems) == 0 {
		problems = c.validate(ctx, lookupHost)
	}
	if len(problems) > 0 {
		return nil, errors.Join(problems...)
	}
	return c, nil
}

// apply sets one name; where is put before a mistake.
func apply(c *Config, where, name, value string) error {
	s, ok := find(name)
	if !ok {
		return unknown(where, name, names())
	}
	if err := s.field(c).set(value); err != nil {
		return fmt.Errorf("%s: %w", where, err)
	}
	return nil
}

func names() []string {
	out := make([]string, len(settings))
	for i, s := range settings {
		out[i] = s.Name
	}
	return out
}

func unknown(where, name string, known []string) error {
	if near := Nearest(name, known); near != "" {
		return fmt.Errorf("%s: there is no setting %q: did you mean %q?", where, name, near)
	}
	return fmt.Errorf("%s: there is no setting %q: docs/configuration.md lists them", where, name)
}

func applyFlags(c *Config, flags map[string]string) (problems []error) {
	for _, name := range slices.Sorted(maps.Keys(flags)) {
		if err := apply(c, "--"+name, name, flags[name]); err != nil {
			problems = append(problems, err)
		}
	}
	return problems
}

// envFile names the configuration file in the environment.
const envFile = envPrefix + "CONFIG"

// serviceLink matches the variables that Kubernetes makes for a Service that is
// called tube or tube-something; they are not ours.
var serviceLink = regexp.MustCompile(`_SERVICE_HOST$|_SERVICE_PORT(_[A-Z0-9_]+)?$|_PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?$`)

func envMap(environ []string) map[string]string {
	out := map[string]string{}
	for _, kv := range environ {
		if k, v, ok := strings.Cut(kv, "="); ok && strings.HasPrefix(k, envPrefix) {
			out[k] = v
		}
	}
	return out
}

func applyEnv(c *Config, env map[string]string) (problems []error) {
	byEnv := map[string]Setting{}
	for _, s := range settings {
		byEnv[s.Env()] = s
	}
	for _, k := range slices.Sorted(maps.Keys(env)) {
		s, ok := byEnv[k]
		switch {
		case ok:
			if err := s.field(c).set(env[k]); err != nil {
				problems = append(problems, fmt.Errorf("%s: %w", k, err))
			}
		case k == envFile || serviceLink.MatchString(k):
		default:
			problems = append(problems, unknown("environment", k, slices.Collect(maps.Keys(byEnv))))
		}
	}
	return problems
}

func applyFile(c *Config, path string) []error {
	b, err := readBounded(path)
	if err != nil {
		return []error{fmt.Errorf("configuration file: %w", err)}
	}
	f, err := parser.ParseBytes(b, 0)
	if err != nil {
		return []error{fmt.Errorf("%s is not YAML: %w", path, err)}
	}
	var problems []error
	seen := map[string]bool{}
	for _, doc := range f.Docs {
		entries, err := mappings(doc.Body)
		if err != nil {
			return []error{fmt.Errorf("%s: %w", path, err)}
		}
		for _, e := range entries {
			name := e.Key.GetToken().Value
			where := fmt.Sprintf("%s:%d", path, e.Key.GetToken().Position.Line)
			if seen[name] {
				problems = append(problems, fmt.Errorf("%s: %s is there twice", where, name))
				continue
			}
			seen[name] = true
			v, err := scalar(e.Value)
			if err == nil {
				err = apply(c, where, name, v)
			} else {
				err = fmt.Errorf("%s: %s: %w", where, name, err)
			}
			if err != nil {
				problems = append(problems, err)
			}
		}
	}
	return problems
}

func readBounded(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if info.Size() > maxFileBytes {
		return nil, fmt.Errorf("%s has %d bytes, at most %d are read", path, info.Size(), maxFileBytes)
	}
	return os.ReadFile(path)
}

// mappings returns the "key: value" lines of a document; none if it is empty.
func mappings(n ast.Node) ([]*ast.MappingValueNode, error) {
	switch n := n.(type) {
	case nil, *ast.NullNode, *ast.CommentGroupNode:
		return nil, nil
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{n}, nil
	case *ast.MappingNode:
		return n.Values, nil
	}
	return nil, errors.New(`want lines of the form "name: value"`)
}

// scalar writes a value as a flag would have it; a sequence becomes a list with commas.
func scalar(n ast.Node) (string, error) {
	switch n := n.(type) {
	case *ast.NullNode:
		return "", nil
	case *ast.SequenceNode:
		parts := make([]string, 0, len(n.Values))
		for _, item := range n.Values {
			s, err := scalar(item)
			if err != nil {
				return "", err
			}
			parts = append(parts, s)
		}
		return strings.Join(parts, ","), nil
	case *ast.StringNode:
		return n.Value, nil
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return n.GetToken().Value, nil
	}
	return "", errors.New("want one value or a list of values")
}
