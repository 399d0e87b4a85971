package wal

import (
	"bytes"
	"errors"
	"testing"

	"github.com/tube-mq/tube/internal/vfs"
)

// fuzzFile puts bytes where the log's first and only file is.
func fuzzFile(t *testing.T, b []byte) *vfs.Mem {
	mem := vfs.NewMem()
	if err := mem.MkdirAll("n/wal"); err != nil {
		t.Fatal(err)
	}
	f, err := mem.Open("n/wal/"+fileName(1), vfs.Mode{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(b, 0); err != nil {
		t.Fatal(err)
	}
	return mem
}

// sealed is a log's file that is in order, but for a damage to it.
func sealed(damage func([]byte)) []byte {
	recs := []Record{
		{Kind: KindEntry, EntryType: 1, Group: 1, Index: 1, Term: 2, Data: []byte("payload")},
		{Kind: KindHardState, Group: 1, Term: 2, Vote: 3, Index: 1},
		{Kind: KindRemoved, Group: 2},
	}
	file := make([]byte, 3*alignBytes)
	mark := Position{}
	for at := int64(0); at < int64(len(file)); at += alignBytes {
		b := file[at:][:alignBytes]
		off := blockHeaderBytes
		for i := range recs {
			off += putRecord(b[off:], &recs[i], Position{1, at + int64(off)})
		}
		putBlock(b, block{at: Position{1, at}, mark: mark, records: len(recs), length: off})
		mark = Position{1, at + alignBytes}
	}
	damage(file)
	return file
}

// sealedInPlace is one with a record that has a gap before its data.
func sealedInPlace(damage func([]byte)) []byte {
	batches := []Batch{{Records: []Record{{Kind: KindEntry, Group: 1, Index: 1, Data: misaligned(100, 3*alignBytes)}}}}
	e := encoded{at: Position{1, 0}}
	e.layOut(batches, alignBytes)
	e.fill(batches, [][]Position{make([]Position, 1)})
	putBlock(e.buf, block{at: e.at, records: e.records, length: e.length})
	file := bytes.Join(e.parts, nil)
	damage(file)
	return file
}

// Whatever is in a file, opening it ends, in bounded memory, without a panic,
// and the log that comes out of it works, but for one of a later version. Run it with
// -fuzzminimizetime=10x: the goroutines behind Open make coverage vary, which the fuzzer
// would spend its time on.
func FuzzOpen(f *testing.F) {
	f.Add(sealed(func([]byte) {}))
	f.Add(sealed(func(b []byte) { b[0] ^= 1 }))                                         // block header
	f.Add(sealed(func(b []byte) { b[blockHeaderBytes+1] ^= 1 }))                        // record header
	f.Add(sealed(func(b []byte) { clear(b[:alignBytes]) }))                             // a lost page
	f.Add(sealed(func(b []byte) { copy(b[alignBytes:], b[:alignBytes]) }))              // misdirected
	f.Add(sealed(func(b []byte) { clear(b[blockHeaderBytes+recordBytes:][:3*512]) }))   // torn
	f.Add(sealed(func(b []byte) { b[blockHeaderBytes+3], b[alignBytes] = 0xff, 0xff })) // lengths
	f.Add(sealedInPlace(func([]byte) {}))
	f.Add(sealedInPlace(func(b []byte) { b[blockHeaderBytes+10] ^= 1 }))             // a gap's length
	f.Add(sealedInPlace(func(b []byte) { b[blockHeaderBytes+recordBytes+20] ^= 1 })) // in a gap
	f.Add([]byte("TBLK"))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 1<<20 {
			return
		}
		mem := fuzzFile(t, b)
		var dumped, opened int
		err := Dump(mem, "n/wal", func(i Item) {
			if i.Record != nil {
				dumped++
			}
		})
		if errors.Is(err, ErrVersion) {
			return
		}
		if err != nil {
			t.Fatalf("dump: %v", err)
		}
		log, rec, err := Open(testConfig(mem), func(Record) error { opened++; return nil })
		if err != nil {
			t.Fatalf("open: %v", err)
		}
		if opened != dumped || rec.Records != opened {
			t.Fatalf("%d records opened, %d counted, %d dumped", opened, rec.Records, dumped)
		}
		w := NewWriter(log)
		done := make(chan error, 1)
		w.Submit(Batch{Records: entry(1, 1, 10), Sync: true, Done: func(_ []Position, err error) { done <- err }})
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
	})
}
