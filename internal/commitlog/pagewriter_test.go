package commitlog

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/vfs"
)

// partsFile tells which parts are written.
type partsFile struct {
	vfs.File
	each func(part []byte)
}

func (f *partsFile) WriteAt(b []byte, off int64) (int, error) {
	f.each(b)
	return f.File.WriteAt(b, off)
}

func (f *partsFile) WriteVec(parts [][]byte, off int64) error {
	for _, p := range parts {
		f.each(p)
	}
	return f.File.WriteVec(parts, off)
}

type partsFS struct {
	vfs.FS
	each func(part []byte)
}

func (f *partsFS) Open(name string, mode vfs.Mode) (vfs.File, error) {
	file, err := f.FS.Open(name, mode)
	if err != nil || !mode.Direct || !mode.Write {
		return file, err
	}
	return &partsFile{file, f.each}, nil
}

// within reports whether b is part of outer's memory.
func within(b, outer []byte) bool {
	for i := 0; i < len(outer); i += pageBytes {
		if &outer[i] == &b[0] {
			return true
		}
	}
	return false
}

// Whatever is added, in whatever alignment, comes to stand where it belongs, and what
// lies in its pages as in the file is written from where it lies.
func TestThePageWriterCopiesOnlyWhatItMust(t *testing.T) {
	seeds(t, 3, func(t *testing.T, rng *rand.Rand) {
		mem := vfs.NewMem() // refuses what direct I/O would
		f, err := mem.Open("f", vfs.Mode{Create: true, Direct: true})
		must(t, err)
		chunk := vfs.AlignedBytes(chunkBytes)
		copied, placed := 0, 0
		w := pageWriter{chunk: chunk, f: &partsFile{f, func(part []byte) {
			if within(part, chunk) {
				copied += len(part)
			} else {
				placed += len(part)
			}
		}}}
		var want []byte
		couldBe := 0
		for len(want) < 3*chunkBytes {
			n := 1 + rng.IntN(1<<(1+rng.IntN(19)))
			in := rng.IntN(pageBytes)
			if rng.IntN(2) == 0 {
				in = len(want) % pageBytes
				couldBe += max(0, n-3*pageBytes)
			}
			b := vfs.AlignedBytes(n + pageBytes)[in : in+n]
			for i := range b {
				b[i] = byte(rng.Uint32())
			}
			want = append(want, b...)
			must(t, w.add(b))
		}
		last, err := w.finish()
		must(t, err)
		if whole := len(want) &^ (pageBytes - 1); !bytes.Equal(last, want[whole:]) {
			t.Fatalf("%d bytes of the last page, want %d", len(last), len(want)-whole)
		}
		if padded := (len(want) + pageBytes - 1) &^ (pageBytes - 1); copied+placed != padded {
			t.Fatalf("%d copied and %d placed of %d", copied, placed, padded)
		}
		if placed < couldBe {
			t.Fatalf("%d placed, at least %d could be", placed, couldBe)
		}
		got, err := vfs.ReadFile(mem, "f", int64(2*len(want)))
		must(t, err)
		if !bytes.Equal(got[:len(want)], want) {
			t.Fatal("written to the wrong place")
		}
	})
}

// Batches are copied once, to where they lie as in their segment, whatever lies between
// them and wherever the log went on, and are the same from memory and from the file.
func TestBatchesAreWrittenFromWhereTheyWereCopiedTo(t *testing.T) {
	seeds(t, 2, func(t *testing.T, rng *rand.Rand) {
		var pieces []piece
		inPlace, all, inTwo := 0, 0, 0
		disk := &partsFS{vfs.NewMem(), func(part []byte) {
			all += len(part)
			for i := range pieces {
				for _, b := range [][]byte{pieces[i].bytes, pieces[i].body} {
					// The first page of a piece is another's too.
					if in := vfs.Misalignment(part); in == 0 && len(b) > 2*pageBytes && within(part, b[-vfs.Misalignment(b)&(pageBytes-1):]) {
						inPlace += len(part)
					}
				}
			}
		}}
		cfg := testConfig(disk)
		cfg.SegmentBytes = 1 << 20
		l, m := openLog(t, cfg, 0), &model{}
		for i := range 300 {
			sent, a := m.make(rng, 1, []int{300, 3000, 40000}[rng.IntN(3)])
			m.batches = append(m.batches, a)
			// A large request, so that nothing is held but now and then.
			slack := 1 << 20
			if i%40 == 0 {
				slack = 0
			}
			a.appendTo(t, l, sent, slack)
			if rng.IntN(30) > 0 {
				continue
			}
			m.checkAll(t, l.Read, 0, m.end())
			pieces = l.tail.pieces
			for i := range pieces {
				if p := &pieces[i]; p.body != nil && p.bodyBuf != nil && len(p.bytes) != record.HeaderBytes {
					inTwo++
				}
			}
			must(t, l.Flush())
			pieces = nil
			m.checkAll(t, l.Read, 0, m.end())
			if rng.IntN(3) == 0 {
				must(t, l.Sync())
			}
			if rng.IntN(3) == 0 {
				must(t, l.Sync(), l.Close())
				l = openLog(t, cfg, m.end())
			}
		}
		if inPlace < all*3/4 {
			t.Fatalf("%d of %d bytes were written from where they lie", inPlace, all)
		}
		if inTwo == 0 {
			t.Fatal("no batch lay in two slabs")
		}
	})
}
