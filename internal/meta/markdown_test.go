package meta

import (
	"flag"
	"os"
	"testing"
)

func TestReferenceIsUpToDate(t *testing.T) {
	const path = "../../docs/topic-settings.md"
	want := SettingsReference()
	// The flag is datadriven's, which rewrites the scripts' outputs with it.
	if flag.Lookup("rewrite").Value.String() == "true" {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(have) != want {
		t.Error("docs/topic-settings.md is not what internal/meta says: run make generate")
	}
}
