package wal

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/vfs"
)

// written makes a log of a few blocks in two files and stops it as it should.
func written(t *testing.T, tune ...func(*Config)) (mem *vfs.Mem, want []Record) {
	t.Helper()
	mem = newMem(t)
	cfg := testConfig(mem)
	for _, f := range tune {
		f(&cfg)
	}
	log, _, err := Open(cfg, func(Record) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	w := NewWriter(log)
	for i := range 12 {
		var recs []Record
		g := record.Group(1 + i%3)
		for j := range 2 {
			index := record.Index(2*(i/3) + j + 1)
			recs = append(recs, Record{Kind: KindEntry, EntryType: 1, Group: g, Index: index, Term: 4, Data: payload(g, index, 0)})
		}
		recs = append(recs, Record{Kind: KindHardState, Group: g, Term: 4, Vote: 9, Index: record.Index(i)})
		done := make(chan error, 1)
		w.Submit(Batch{Records: recs, Sync: true, Done: func(_ []Position, err error) { done <- err }})
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		want = append(want, recs...)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return mem, want
}

// replayed opens a log and returns what it hands out.
func replayed(fsys vfs.FS) (got []Record, rec Recovery, err error) {
	log, rec, err := Open(testConfig(fsys), func(r Record) error {
		r.Data = bytes.Clone(r.Data)
		got = append(got, r)
		return nil
	})
	if err != nil {
		return got, rec, err
	}
	return got, rec, NewWriter(log).Close()
}

func same(a, b Record) bool {
	return a.Kind == b.Kind && a.EntryType == b.EntryType && a.Group == b.Group && a.Index == b.Index &&
		a.Term == b.Term && a.Vote == b.Vote && bytes.Equal(a.Data, b.Data)
}

// names reports whether the damage names the group, by itself or by its check;
// a check that is no group's stands for all of them.
func names(damage []*CorruptionError, g record.Group) bool {
	for _, d := range damage {
		if d.Group == g || d.Group == 0 && (d.Check == GroupCheck(g) || unknown(d)) {
			return true
		}
	}
	return false
}

func unknown(d *CorruptionError) bool {
	for g := range record.Group(3) {
		if d.Check == GroupCheck(g+1) {
			return false
		}
	}
	return d.Group == 0
}

// compare says what is wrong with a replay of a damaged log: a record that was
// never written, out of order, or one that is missing without its group being
// named.
func compare(want, got []Record, damage []*CorruptionError) error {
	i := 0
	for _, w := range want {
		if i < len(got) && same(w, got[i]) {
			i++
		} else if !names(damage, w.Group) {
			return fmt.Errorf("%s %d of group %d is missing, and the damage %v does not say so", kindName(w.Kind), w.Index, w.Group, damage)
		}
	}
	if i < len(got) {
		return fmt.Errorf("%s %d of group %d came back and was never written, or not there", kindName(got[i].Kind), got[i].Index, got[i].Group)
	}
	return nil
}

func kindName(k Kind) string {
	return map[Kind]string{KindEntry: "entry", KindHardState: "hard state"}[k]
}

// A bit that turns over anywhere, in a block's header, a record's header, its
// data or the padding, costs at most the record that it hits; its group is
// named; nothing is handed out that is not as it was written.
func TestFlippedBitIsNamedAndNeverServed(t *testing.T) {
	t.Run("copied", func(t *testing.T) { flipBits(t) })
	t.Run("written from where it lies", func(t *testing.T) { flipBits(t, inPlace) })
}

func flipBits(t *testing.T, tune ...func(*Config)) {
	mem, want := written(t, tune...)
	if n := gaps(t, mem); (n > 0) != (len(tune) > 0) {
		t.Fatalf("%d records are written from where they lie", n)
	}
	got, rec, err := replayed(mem.CrashCopy(0, vfs.CrashKeep))
	if err != nil || len(rec.Damage) > 0 || len(got) != len(want) {
		t.Fatalf("undamaged: %d of %d records, %v, %v", len(got), len(want), rec.Damage, err)
	}
	files, err := mem.List("n/wal")
	if err != nil {
		t.Fatal(err)
	}
	flips, damaged := 0, 0
	for _, name := range files {
		if len(name) != len(fileName(1)) {
			continue
		}
		file := "n/wal/" + name
		f, err := mem.Open(file, vfs.Mode{})
		if err != nil {
			t.Fatal(err)
		}
		size, _ := f.Size()
		raw := make([]byte, size)
		if _, err := f.ReadAt(raw, 0); err != nil {
			t.Fatal(err)
		}
		for off := int64(0); off < size; off++ {
			in := off % alignBytes
			if in >= 256 && off%97 != 0 || in >= 256 && blankFrom(raw, off) {
				continue // headers whole, the rest by samples
			}
			bad := mem.CrashCopy(0, vfs.CrashKeep)
			if err := vfs.FlipBit(bad, file, off, uint(off%8)); err != nil {
				t.Fatal(err)
			}
			flips++
			got, rec, err := replayed(bad)
			if err != nil {
				t.Fatalf("%s, offset %d: %v", name, off, err)
			}
			if err := compare(want, got, rec.Damage); err != nil {
				t.Errorf("%s, offset %d: %v", name, off, err)
			}
			for _, d := range rec.Damage {
				if unknown(d) {
					t.Errorf("%s, offset %d: one bit, and it is not known whose: %v", name, off, d)
				}
			}
			if len(rec.Damage) > 0 {
				damaged++
				if d := rec.Damage[0]; len(got) < len(want)-1 && len(rec.Damage) < len(want)-len(got) {
					t.Errorf("%s, offset %d: %d records lost for one bit: %v", name, off, len(want)-len(got), d)
				}
			}
			if t.Failed() {
				return
			}
		}
	}
	t.Logf("%d flips, %d named as damage", flips, damaged)
	if damaged < flips/4 {
		t.Errorf("only %d of %d flips were damage: the test looks at the wrong places", damaged, flips)
	}
}

func blankFrom(b []byte, off int64) bool {
	for _, c := range b[off:min(off+alignBytes, int64(len(b)))] {
		if c != 0 {
			return false
		}
	}
	return true
}

// A file that lost its content, or its end, is damage and not the log's end.
func TestZeroedOrCutFileIsDamage(t *testing.T) {
	for name, spoil := range map[string]func(f vfs.File, size int64) error{
		"zeroed":  func(f vfs.File, size int64) error { _, err := f.WriteAt(make([]byte, size), 0); return err },
		"cut":     func(f vfs.File, size int64) error { return f.Truncate(alignBytes) },
		"emptied": func(f vfs.File, size int64) error { return f.Truncate(0) },
		"garbage": func(f vfs.File, size int64) error {
			_, err := f.WriteAt(bytes.Repeat([]byte{0xa5}, int(size)), 0)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			mem, want := written(t)
			f, err := mem.Open("n/wal/"+fileName(1), vfs.Mode{Write: true})
			if err != nil {
				t.Fatal(err)
			}
			size, _ := f.Size()
			if err := spoil(f, size); err != nil {
				t.Fatal(err)
			}
			got, rec, err := replayed(mem)
			if err != nil {
				t.Fatal(err)
			}
			if len(rec.Damage) == 0 {
				t.Fatalf("%d of %d records came back and nothing is said to be damaged", len(got), len(want))
			}
			if err := compare(want, got, rec.Damage); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestReadEntryChecksWhatItReads(t *testing.T) {
	mem := newMem(t)
	log, _, err := Open(testConfig(mem), func(Record) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	w := NewWriter(log)
	defer w.Close()
	data := payload(5, 1, 0)
	positions := make(chan []Position, 1)
	w.Submit(Batch{
		Records: []Record{{Kind: KindEntry, Group: 5, Index: 1, Data: data}, {Kind: KindEntry, Group: 5, Index: 2}},
		Sync:    true, Done: func(pos []Position, _ error) { positions <- pos },
	})
	pos := <-positions
	if got, err := log.ReadEntry(pos[0]); err != nil || !bytes.Equal(got, data) {
		t.Fatalf("%q, %v", got, err)
	}
	if got, err := log.ReadEntry(pos[1]); err != nil || len(got) != 0 {
		t.Fatalf("%q, %v", got, err)
	}
	if err := vfs.FlipBit(mem, "n/wal/"+fileName(pos[0].File), pos[0].Offset+recordBytes+3, 2); err != nil {
		t.Fatal(err)
	}
	var corrupt *CorruptionError
	if got, err := log.ReadEntry(pos[0]); !errors.As(err, &corrupt) || corrupt.Offset != pos[0].Offset {
		t.Fatalf("damaged: %q, %v", got, err)
	}
	for _, at := range []Position{{pos[0].File, pos[0].Offset + 8}, {pos[0].File, 1 << 40}, {99, 0}} {
		if got, err := log.ReadEntry(at); err == nil {
			t.Errorf("%v gave %q", at, got)
		}
	}
}
