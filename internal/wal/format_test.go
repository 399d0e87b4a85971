package wal

import "testing"

// A record or a block that was written for another place, or for the file's
// earlier life, does not pass where it is found.
func TestNothingPassesInAnotherPlace(t *testing.T) {
	at := Position{7, 4096}
	b := make([]byte, alignBytes)
	r := entry(1, 1, 100)[0]
	putRecord(b[blockHeaderBytes:], &r, Position{7, 4096 + blockHeaderBytes})
	putBlock(b, block{at: at, records: 1, length: blockHeaderBytes + paddedBytes(0, 100)})
	for _, p := range []Position{{8, 4096}, {6, 4096}, {7, 0}, {7, 8192}} {
		if _, err := parseBlock(b, p); err == nil {
			t.Errorf("a block for %v passes at %v", at, p)
		}
		if _, _, err := parseRecord(b[blockHeaderBytes:], Position{p.File, p.Offset + blockHeaderBytes}); err == nil {
			t.Errorf("a record of the block for %v passes in the one at %v", at, p)
		}
	}
	if _, err := parseBlock(b, at); err != nil {
		t.Error(err)
	}
	if _, _, err := parseRecord(b[blockHeaderBytes:], Position{7, 4096 + blockHeaderBytes}); err != nil {
		t.Error(err)
	}
}

// With its header damaged, a block whose last records are lost to zeros is not
// taken for one that never had them.
func TestRecordsLostBehindADamagedHeaderAreNamed(t *testing.T) {
	file := sealed(func(b []byte) {
		b[0] ^= 1
		clear(b[blockHeaderBytes+paddedBytes(0, len("payload")) : alignBytes])
	})
	var damage []*CorruptionError
	records := 0
	err := Dump(fuzzFile(t, file), "n/wal", func(i Item) {
		if i.Damage != nil {
			damage = append(damage, i.Damage)
		}
		if i.Record != nil {
			records++
		}
	})
	if err != nil || len(damage) != 1 || damage[0].Group != 0 || records != 7 {
		t.Errorf("%d records, damage %v, %v", records, damage, err)
	}
	// The header alone costs nothing.
	if err := Dump(fuzzFile(t, sealed(func(b []byte) { b[0] ^= 1 })), "n/wal", func(i Item) {
		if i.Damage != nil {
			t.Errorf("nothing is lost: %v", i.Damage)
		}
	}); err != nil {
		t.Error(err)
	}
}
