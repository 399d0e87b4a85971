package commitlog

import (
	"errors"
	"io/fs"
	"testing"

	"github.com/tube-mq/tube/internal/vfs"
)

// A removal that a crash cut short is in nobody's way: neither of the next one of
// the same partition, nor for ever on the disk.
func TestAnInterruptedRemovalIsEndedLater(t *testing.T) {
	touch := func(fsys vfs.FS, dir, name string) {
		t.Helper()
		if err := fsys.MkdirAll(dir); err != nil {
			t.Fatal(err)
		}
		if err := vfs.ReplaceFile(fsys, dir, name, []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	gone := func(fsys vfs.FS, dir string) {
		t.Helper()
		if _, err := fsys.List(dir); !errors.Is(err, fs.ErrNotExist) {
			t.Fatalf("%s is still there: %v", dir, err)
		}
	}
	mem := vfs.NewMem()
	touch(mem, "data/p"+deletedSuffix, "rest")
	touch(mem, "data/p", "new")
	if err := Discard(mem, "data/p"); err != nil {
		t.Fatal(err)
	}
	gone(mem, "data/p")
	gone(mem, "data/p"+deletedSuffix)

	touch(mem, "data/q"+deletedSuffix, "rest")
	touch(mem, "data/r", "kept")
	if err := SweepDiscarded(mem, "data"); err != nil {
		t.Fatal(err)
	}
	gone(mem, "data/q"+deletedSuffix)
	if names, err := mem.List("data/r"); err != nil || len(names) != 1 {
		t.Fatalf("what is in use went as well: %v, %v", names, err)
	}
}
