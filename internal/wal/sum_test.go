package wal

import (
	"hash/crc32"
	"testing"

	"github.com/tube-mq/tube/internal/record"
)

// A record whose data was summed by its owner is the same on disk as one that
// the log sums itself; and data that changed after it was summed is told.
func TestRecordWithAKnownSum(t *testing.T) {
	data := make([]byte, combineBytes+1000)
	for i := range data {
		data[i] = byte(i * 7)
	}
	const from = 21
	at := Position{3, 4096}
	r := Record{Kind: KindEntry, Group: 9, Index: 5, Term: 2, Data: data}
	plain, known := make([]byte, paddedBytes(0, len(data))), make([]byte, paddedBytes(0, len(data)))
	putRecord(plain, &r, at)
	r.Sum, r.SumFrom = crc32.Checksum(data[from:], record.Castagnoli), from
	putRecord(known, &r, at)
	if string(plain) != string(known) {
		t.Fatal("the bytes differ")
	}
	if _, _, err := parseRecord(known, at); err != nil {
		t.Fatal(err)
	}
	data[30_000] ^= 1
	putRecord(known, &r, at)
	if _, _, err := parseRecord(known, at); err == nil {
		t.Fatal("data that changed after it was summed was not noticed")
	}
}
