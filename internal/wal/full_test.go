package wal

import (
	"testing"

	"github.com/tube-mq/tube/internal/vfs"
)

// On a disk without room for a whole file the log starts and rolls all the same,
// in smaller files, so that what makes room can be written down.
func TestSmallFilesOnAFullDisk(t *testing.T) {
	mem := vfs.NewMem()
	if err := mem.MkdirAll("d"); err != nil {
		t.Fatal(err)
	}
	cfg := Config{FS: mem, Dir: "d/wal", FileBytes: 8 << 20, FirstFileBytes: 4 << 20}
	mem.SetCapacity(1 << 20)
	log, _, err := Open(cfg, func(Record) error { return nil })
	if err != nil {
		t.Fatalf("with 1 MiB of room: %v", err)
	}
	w := NewWriter(log)
	write := func(n int) {
		t.Helper()
		done := make(chan error, 1)
		w.Submit(Batch{Records: []Record{{Kind: KindEntry, Group: 1, Index: 1, Term: 1, Data: make([]byte, n)}}, Sync: true, Done: func(_ []Position, err error) { done <- err }})
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	for range 50 {
		write(10 << 10)
	}
	if n := len(log.files); n < 2 {
		t.Fatalf("%d files: it never rolled, the test shows nothing", n)
	}
	mem.SetCapacity(0)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	records := 0
	again, rec, err := Open(cfg, func(Record) error { records++; return nil })
	if err != nil || len(rec.Damage) > 0 || records != 50 {
		t.Fatalf("%d records came back, %v, %v", records, rec.Damage, err)
	}
	if err := NewWriter(again).Close(); err != nil {
		t.Fatal(err)
	}
}
