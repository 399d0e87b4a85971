package tidy

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Each module that is required directly has its reason in docs/dependencies.md,
// and nothing stands there that is not required.
func TestEveryDependencyHasItsReason(t *testing.T) {
	var required []string
	for line := range strings.Lines(read(t, "go.mod")) {
		words := strings.Fields(strings.TrimPrefix(strings.TrimSpace(line), "require "))
		if len(words) == 2 && strings.HasPrefix(words[1], "v") && strings.Contains(words[0], "/") {
			required = append(required, words[0])
		}
	}
	if len(required) < 5 {
		t.Fatalf("only %v found in go.mod: this test does not understand it any more", required)
	}
	var explained []string
	for line := range strings.Lines(read(t, "docs/dependencies.md")) {
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		cells := strings.Split(line, "|")
		if strings.TrimSpace(cells[2]) == "" && strings.TrimSpace(cells[3]) == "" {
			t.Errorf("docs/dependencies.md says nothing about %s", cells[1])
		}
		for _, name := range regexp.MustCompile("`([^`]+)`").FindAllStringSubmatch(cells[1], -1) {
			explained = append(explained, name[1])
		}
	}
	for _, m := range required {
		if !slices.Contains(explained, m) {
			t.Errorf("go.mod requires %s, docs/dependencies.md does not say why", m)
		}
	}
	for _, m := range explained {
		if !slices.Contains(required, m) {
			t.Errorf("docs/dependencies.md explains %s, go.mod does not require it", m)
		}
	}
}

func read(t *testing.T, file string) string {
	t.Helper()
	b, err := os.ReadFile(root + "/" + file)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
