package meta

import (
	"flag"
	"os"
	"testing"
)

func TestReferenceIsUpToDate(t *testing.T) {
	for name, want := range map[string]string{"topic-settings.md": SettingsReference(), "group-settings.md": GroupSettingsReference()} {
		path := "../../docs/" + name
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
			t.Errorf("docs/%s is not what internal/meta says: run make generate", name)
		}
	}
}
