package vfs

import (
	"bytes"
	"errors"
	"io/fs"
	"syscall"
	"testing"
)

func mustOpen(t *testing.T, fsys FS, name string) File {
	t.Helper()
	f, err := fsys.Open(name, Mode{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func write(t *testing.T, f File, b []byte, off int64) {
	t.Helper()
	_, err := f.WriteAt(b, off)
	must(t, err)
}

func contentOf(t *testing.T, fsys FS, name string) []byte {
	t.Helper()
	f, err := fsys.Open(name, Mode{})
	must(t, err)
	defer f.Close()
	size, err := f.Size()
	must(t, err)
	b := make([]byte, size)
	_, err = f.ReadAt(b, 0)
	must(t, err)
	return b
}

func TestCrashKeepsSyncedAndLosesTheRest(t *testing.T) {
	m := NewMem()
	must(t, m.MkdirAll("d/e"))
	must(t, m.SyncDir("d"))
	f := mustOpen(t, m, "d/e/a")
	write(t, f, []byte("synced"), 0)
	must(t, f.SyncData())
	if names, err := m.CrashCopy(1, CrashLose).List("d/e"); err != nil || len(names) != 0 {
		t.Fatalf("without SyncDir: %v, %v", names, err)
	}
	must(t, m.SyncDir("d/e"))
	write(t, f, []byte("SYNCED and more"), 0)
	must(t, m.Rename("d/e/a", "d/e/b"))

	lost, kept := m.CrashCopy(1, CrashLose), m.CrashCopy(1, CrashKeep)
	if got := contentOf(t, lost, "d/e/a"); string(got) != "synced" {
		t.Fatalf("lost: %q", got)
	}
	if _, err := lost.Stat("d/e/b"); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("the rename was not synced: %v", err)
	}
	if got := contentOf(t, kept, "d/e/b"); string(got) != "SYNCED and more" {
		t.Fatalf("kept: %q", got)
	}
	if got := contentOf(t, kept.CrashCopy(1, CrashLose), "d/e/a"); string(got) != "synced" {
		t.Fatalf("killed, then a power cut: %q", got)
	}
	// The copies and what they come from do not share memory that changes.
	write(t, mustOpen(t, kept, "d/e/b"), []byte("x"), 0)
	write(t, mustOpen(t, lost, "d/e/a"), []byte("y"), 0)
	if got := contentOf(t, m, "d/e/b"); string(got) != "SYNCED and more" {
		t.Fatalf("a crash copy wrote into the original: %q", got)
	}
}

// A random crash shows each unsynced page old, new and mixed by sectors, and
// the folder with the old and the new name, never none or both.
func TestCrashRandomTears(t *testing.T) {
	m := NewMem()
	must(t, m.MkdirAll("d/e"))
	must(t, m.SyncDir("d"))
	f := mustOpen(t, m, "d/e/a")
	write(t, f, bytes.Repeat([]byte{1}, 3*pageBytes), 0)
	must(t, f.Sync())
	must(t, m.SyncDir("d/e"))
	write(t, f, bytes.Repeat([]byte{2}, pageBytes), pageBytes)
	must(t, m.Rename("d/e/a", "d/e/b"))
	var old, fresh, torn, renamed int
	for seed := range uint64(64) {
		c := m.CrashCopy(seed, CrashRandom)
		names, err := c.List("d/e")
		must(t, err)
		if len(names) != 1 {
			t.Fatalf("seed %d: names %v", seed, names)
		}
		if names[0] == "b" {
			renamed++
		}
		b := contentOf(t, c, "d/e/"+names[0])
		if bytes.Count(b[:pageBytes], []byte{1}) != pageBytes || bytes.Count(b[2*pageBytes:], []byte{1}) != pageBytes {
			t.Fatalf("seed %d: a synced page changed", seed)
		}
		switch n := bytes.Count(b[pageBytes:2*pageBytes], []byte{2}); {
		case n == 0:
			old++
		case n == pageBytes:
			fresh++
		case n%sectorBytes != 0:
			t.Fatalf("seed %d: torn inside a sector", seed)
		default:
			torn++
		}
		if again := contentOf(t, m.CrashCopy(seed, CrashRandom), "d/e/"+names[0]); !bytes.Equal(again, b) {
			t.Fatalf("seed %d gives two copies", seed)
		}
	}
	if old == 0 || fresh == 0 || torn == 0 || renamed == 0 || renamed == 64 {
		t.Fatalf("old %d, new %d, torn %d, renamed %d: not all kinds of crash seen", old, fresh, torn, renamed)
	}
}

func TestCapacityGivesENOSPCAndChangesNothing(t *testing.T) {
	m := NewMem()
	m.SetCapacity(4 * pageBytes)
	f := mustOpen(t, m, "a")
	must(t, f.Allocate(3*pageBytes))
	write(t, f, bytes.Repeat([]byte{1}, 3*pageBytes), 0) // has its room already
	if err := f.Allocate(5 * pageBytes); !IsFull(err) {
		t.Fatalf("allocate: %v", err)
	}
	if _, err := f.WriteAt(make([]byte, 2*pageBytes), 3*pageBytes); !IsFull(err) {
		t.Fatalf("write: %v", err)
	}
	if size, _ := f.Size(); size != 3*pageBytes {
		t.Fatalf("size %d", size)
	}
	if free, err := FreeBytes(m, "/"); err != nil || free != pageBytes {
		t.Fatalf("free %d, %v", free, err)
	}
	must(t, m.Remove("a"))
	if free, _ := FreeBytes(m, "/"); free != 4*pageBytes {
		t.Fatalf("free after remove %d", free)
	}
}

func TestHookSeesEveryStep(t *testing.T) {
	m := NewMem()
	var steps []string
	m.SetHook(func(op Op, done bool) {
		if done {
			steps = append(steps, op.Kind.String())
		}
		m.CrashCopy(0, CrashKeep) // the lock is free
	})
	f := mustOpen(t, m, "a")
	write(t, f, []byte("x"), 0)
	must(t, f.SyncData())
	must(t, m.Rename("a", "b"))
	must(t, m.SyncDir("/"))
	if got, want := len(steps), 5; got != want {
		t.Fatalf("steps %v", steps)
	}
}

func TestDirectRefusesUnaligned(t *testing.T) {
	m := NewMem()
	f, err := m.Open("a", Mode{Create: true, Direct: true})
	must(t, err)
	b := AlignedBytes(DirectAlign)
	write(t, f, b, 0)
	for _, bad := range []struct {
		b   []byte
		off int64
	}{{b[:512], 0}, {b, 512}, {AlignedBytes(2 * DirectAlign)[1 : DirectAlign+1], 0}} {
		if _, err := f.WriteAt(bad.b, bad.off); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("len %d off %d: %v", len(bad.b), bad.off, err)
		}
	}
}

func TestFaultyStrikesWhereItShould(t *testing.T) {
	m := NewMem()
	f := NewFaulty(m)
	_, hits := f.Inject(Fault{Ops: OpWrite, Path: "a", After: 1, Times: 1, Err: syscall.EIO, ShortBytes: 3})
	file := mustOpen(t, f, "a")
	write(t, file, []byte("first"), 0)
	if n, err := file.WriteAt([]byte("second"), 5); n != 3 || !errors.Is(err, syscall.EIO) {
		t.Fatalf("%d, %v", n, err)
	}
	write(t, file, []byte("!"), 8)
	if got := contentOf(t, f, "a"); string(got) != "firstsec!" || hits() != 1 {
		t.Fatalf("%q, %d hits", got, hits())
	}
	stop, _ := f.Inject(Fault{Ops: OpAnySync, Err: syscall.EIO})
	if err := file.SyncData(); !errors.Is(err, syscall.EIO) {
		t.Fatal(err)
	}
	stop()
	must(t, file.SyncData())
}
