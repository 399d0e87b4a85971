package wal

import (
	"bytes"
	"errors"
	"fmt"
	"hash/crc32"
	"testing"
	"unsafe"

	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/vfs"
)

// misaligned is data that begins so many bytes behind a page of memory.
func misaligned(in, size int) []byte {
	b := vfs.AlignedBytes(in + size)[in:]
	for i := range b {
		b[i] = byte(i*7 + size)
	}
	return b
}

// Large data is written from where it lies, wherever that is; direct I/O, which Mem checks,
// takes it, and what is read is what was written.
func TestLargeDataIsNotCopied(t *testing.T) {
	const large = 32 << 10
	const summedFrom = 21
	for _, in := range []int{0, 1, 7, 8, 2048, 4047, 4048, 4049, 4095} {
		for _, size := range []int{large, large + 1, 3*large + 4095} {
			t.Run(fmt.Sprintf("%d bytes, %d behind a page", size, in), func(t *testing.T) {
				mem := newMem(t)
				cfg := testConfig(mem)
				cfg.FileBytes = 4 << 20
				log, _, err := Open(cfg, func(Record) error { return nil })
				if err != nil {
					t.Fatal(err)
				}
				small, big := payload(1, 1, 0), misaligned(in, size)
				want := []Record{
					{Kind: KindEntry, Group: 1, Index: 1, Term: 1, Data: small},
					{Kind: KindEntry, Group: 1, Index: 2, Term: 1, Data: big},
					{Kind: KindHardState, Group: 1, Term: 1, Vote: 3, Index: 2},
					{Kind: KindEntry, Group: 1, Index: 3, Term: 1, Data: big, SumFrom: summedFrom, Sum: crc32.Checksum(big[summedFrom:], record.Castagnoli)},
				}
				positions := [][]Position{make([]Position, len(want))}
				if err := log.append([]Batch{{Records: want}}, positions); err != nil {
					t.Fatal(err)
				}
				if most := len(small) + 4*recordBytes + 6*alignBytes; log.block.copied > most {
					t.Errorf("%d bytes of the block were copied, want %d at most", log.block.copied, most)
				}
				if most := int64(2*size + len(small) + 6*alignBytes); log.block.size > most {
					t.Errorf("the block has %d bytes, want %d at most", log.block.size, most)
				}
				for _, p := range log.block.parts {
					if p != nil {
						t.Error("a written block still refers to data")
					}
				}
				if got, err := log.ReadEntry(positions[0][1]); err != nil || !bytes.Equal(got, big) {
					t.Errorf("entry 2 reads differently: %v", err)
				}
				if err := NewWriter(log).Close(); err != nil {
					t.Fatal(err)
				}
				got, rec, err := replayed(mem)
				if err != nil || len(rec.Damage) > 0 || len(got) != len(want) {
					t.Fatalf("%d records, %v, %v", len(got), rec.Damage, err)
				}
				for i := range want {
					if !same(want[i], got[i]) {
						t.Errorf("record %d came back another", i)
					}
				}
			})
		}
	}
}

// What is written from where it lies is whole pages of the data itself.
func TestPartsOfABlock(t *testing.T) {
	data := misaligned(100, 5*alignBytes)
	var e encoded
	e.layOut([]Batch{{Records: []Record{{Kind: KindEntry, Group: 1, Index: 1, Data: data}}}}, alignBytes)
	e.fill([]Batch{{Records: []Record{{Kind: KindEntry, Group: 1, Index: 1, Data: data}}}}, [][]Position{make([]Position, 1)})
	if len(e.parts) != 3 || len(e.parts[1]) != 4*alignBytes || unsafe.SliceData(e.parts[1]) != unsafe.SliceData(data[alignBytes-100:]) {
		t.Errorf("%d parts", len(e.parts))
	}
	var all int64
	for i, p := range e.parts {
		if all += int64(len(p)); len(p)%alignBytes != 0 || !vfs.Aligned(p) {
			t.Errorf("part %d: %d bytes, aligned %v", i, len(p), vfs.Aligned(p))
		}
	}
	if all != e.size {
		t.Errorf("the parts have %d bytes, the block has %d", all, e.size)
	}
}

// Blocks of the version before, which knew no gaps, are read. Those of a later one are not
// taken for a torn end, wherever they are in a log; what is left of such a log in a file
// that is used again says nothing.
func TestVersionsOfABlock(t *testing.T) {
	// blocks is a file whose blocks from one on have a version.
	blocks := func(from int, v byte, more func(b []byte)) []byte {
		return sealed(func(b []byte) {
			for at := from * alignBytes; at < len(b); at += alignBytes {
				b[at+4] = v
				sealHeader(b[at:])
			}
			more(b)
		})
	}
	none := func([]byte) {}
	for _, c := range []struct {
		name    string
		file    []byte
		records int
		refused bool
	}{
		{"of version 1", blocks(0, 1, none), 9, false},
		{"of this one", blocks(0, formatVersion, none), 9, false},
		{"of a later one", blocks(0, formatVersion+1, none), 0, true},
		{"of a later one, behind others", blocks(2, formatVersion+1, none), 0, true},
		{"of a later one, behind a damaged one", blocks(0, formatVersion+1, func(b []byte) { b[0] ^= 1 }), 0, true},
		{"of none", blocks(2, 0, none), 6, false},
		{"left of a later one's file", blocks(2, formatVersion+1, func(b []byte) {
			b[2*alignBytes+8]++ // its seq
			sealHeader(b[2*alignBytes:])
		}), 6, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			log, rec, err := Open(testConfig(fuzzFile(t, c.file)), func(Record) error { return nil })
			if c.refused {
				if !errors.Is(err, ErrVersion) {
					t.Errorf("%d records, %v", rec.Records, err)
				}
				return
			}
			if err != nil || rec.Records != c.records || len(rec.Damage) > 0 {
				t.Fatalf("%d records, want %d; %v, %v", rec.Records, c.records, rec.Damage, err)
			}
			if err := NewWriter(log).Close(); err != nil {
				t.Error(err)
			}
		})
	}
}
