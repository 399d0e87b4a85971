package wal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"sync"

	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/vfs"
)

// Kind says what a record is.
type Kind uint8

// The kinds of record.
const (
	KindEntry     Kind = 1 // one Raft entry
	KindHardState Kind = 2 // term, vote, commit index
	KindRemoved   Kind = 3 // the group's replica, in Vote, is gone: forget its earlier records
	KindMembers   Kind = 4 // a forced membership as of Index, encoded by the owner
	KindLapse     Kind = 5 // entries may be unsynced if Vote is not 0, and forgotten up to Term
)

// Record is one thing that a group wants remembered.
type Record struct {
	Kind      Kind
	EntryType byte // raft's, for KindEntry
	Group     record.Group
	Index     record.Index // of the entry; the commit index of a hard state
	Term      record.Term
	Vote      uint64 // of a hard state; the replica that was removed
	Data      []byte // of an entry
	// Sum, if SumFrom > 0, is the CRC32C of Data[SumFrom:], which the caller has
	// verified: large data is then not summed again.
	Sum     uint32
	SumFrom int

	Position Position // where it was found; set by replay only
}

// Position is a place in the log: a file and a byte offset in it.
type Position struct {
	File   uint64
	Offset int64
}

// Before reports whether p comes before q.
func (p Position) Before(q Position) bool {
	return p.File < q.File || p.File == q.File && p.Offset < q.Offset
}

// IsZero reports whether the position is unset: files count from 1.
func (p Position) IsZero() bool { return p.File == 0 }

func (p Position) String() string { return fmt.Sprintf("%016x+%d", p.File, p.Offset) }

const (
	blockMagic       = 0x4b4c4254 // "TBLK"
	formatVersion    = 2          // 1 had no gaps
	blockHeaderBytes = 64
	recordBytes      = 48
	alignBytes       = vfs.DirectAlign
	// MaxRecordBytes bounds the data of one record.
	MaxRecordBytes = 128 << 20
)

// block is a decoded block header.
type block struct {
	at      Position
	mark    Position // everything before it was synced when the block was written
	records int
	length  int // of header and records, without padding
}

// end is where the next block begins.
func (b block) end() int64 { return b.at.Offset + roundUp(int64(b.length)) }

func roundUp(n int64) int64 { return (n + alignBytes - 1) &^ (alignBytes - 1) }

func putBlock(b []byte, h block) {
	le := binary.LittleEndian
	clear(b[:blockHeaderBytes])
	le.PutUint32(b[0:], blockMagic)
	b[4] = formatVersion
	le.PutUint64(b[8:], h.at.File)
	le.PutUint64(b[16:], uint64(h.at.Offset))
	le.PutUint64(b[24:], h.mark.File)
	le.PutUint64(b[32:], uint64(h.mark.Offset))
	le.PutUint32(b[40:], uint32(h.length))
	le.PutUint32(b[44:], uint32(h.records))
	sealHeader(b)
}

func sealHeader(b []byte) {
	binary.LittleEndian.PutUint32(b[48:], crc32.Checksum(b[:48], record.Castagnoli))
}

var errNoBlock = errors.New("no block")

// ErrVersion: the log was written by a later version of the program. Nothing is changed.
var ErrVersion = errors.New("written by a later version of this program")

// parseBlock decodes the header that should stand at a position.
func parseBlock(b []byte, at Position) (block, error) {
	le := binary.LittleEndian
	if len(b) < blockHeaderBytes {
		return block{}, fmt.Errorf("%w: %d bytes left", errNoBlock, len(b))
	}
	if le.Uint32(b) != blockMagic {
		return block{}, fmt.Errorf("%w: magic %08x", errNoBlock, le.Uint32(b))
	}
	if got, want := crc32.Checksum(b[:48], record.Castagnoli), le.Uint32(b[48:]); got != want {
		return block{}, fmt.Errorf("%w: header CRC %08x, says %08x", errNoBlock, got, want)
	}
	h := block{
		at:      Position{le.Uint64(b[8:]), int64(le.Uint64(b[16:]))},
		mark:    Position{le.Uint64(b[24:]), int64(le.Uint64(b[32:]))},
		length:  int(le.Uint32(b[40:])),
		records: int(le.Uint32(b[44:])),
	}
	switch { // the place first: what is left of a file's earlier life says nothing
	case h.at != at:
		return block{}, fmt.Errorf("%w: it belongs at %v", errNoBlock, h.at)
	case b[4] == 0:
		return block{}, fmt.Errorf("%w: version 0", errNoBlock)
	case b[4] > formatVersion:
		return block{}, fmt.Errorf("%w: block of format %d, this one knows 1 to %d", ErrVersion, b[4], formatVersion)
	}
	if h.length < blockHeaderBytes {
		return block{}, fmt.Errorf("%w: length %d", errNoBlock, h.length)
	}
	return h, nil
}

// paddedBytes is what a record takes that has a gap of so many bytes before its data.
func paddedBytes(gapBytes, dataBytes int) int { return recordBytes + (gapBytes+dataBytes+7)&^7 }

// putHeader writes a record's header at b[0:], and the gap behind it, which together
// have recordBytes + gapBytes.
func putHeader(b []byte, r *Record, gapBytes int, at Position) {
	le := binary.LittleEndian
	b = b[:recordBytes+gapBytes]
	le.PutUint32(b[0:], uint32(len(r.Data)))
	b[8], b[9] = byte(r.Kind), r.EntryType
	le.PutUint16(b[10:], uint16(gapBytes))
	le.PutUint64(b[16:], uint64(r.Group))
	le.PutUint32(b[12:], crc32.Checksum(b[16:24], record.Castagnoli)) // GroupCheck, without an allocation
	le.PutUint64(b[24:], uint64(r.Index))
	le.PutUint64(b[32:], uint64(r.Term))
	le.PutUint64(b[40:], r.Vote)
	clear(b[recordBytes:])
	if len(r.Data)-r.SumFrom >= combineBytes && r.SumFrom > 0 {
		head := recordCRC(b, r.Data[:r.SumFrom], at)
		le.PutUint32(b[4:], record.CombineCRC(head, r.Sum, len(r.Data)-r.SumFrom))
	} else {
		le.PutUint32(b[4:], recordCRC(b, r.Data, at))
	}
}

// combineBytes is from where on combining sums is cheaper than summing.
const combineBytes = 32 << 10

// GroupCheck is a hash of a group's id that stands beside it, outside the
// record's CRC: with it the group of a damaged record can be told whichever of
// its bytes is damaged.
func GroupCheck(g record.Group) uint32 {
	var b [8]byte
	binary.LittleEndian.PutUint64(b[:], uint64(g))
	return crc32.Checksum(b[:], record.Castagnoli)
}

// recordCRC covers a record's header and gap, but for the group's check, its data, and
// the place it is meant for, so that a stale or misdirected copy does not pass.
func recordCRC(head, data []byte, at Position) uint32 {
	place := places.Get().(*[20]byte)
	le := binary.LittleEndian
	le.PutUint64(place[:], at.File)
	le.PutUint64(place[8:], uint64(at.Offset))
	copy(place[16:], head[:4])
	c := crc32.Checksum(place[:], record.Castagnoli)
	places.Put(place)
	c = crc32.Update(c, record.Castagnoli, head[8:12])
	c = crc32.Update(c, record.Castagnoli, head[16:])
	return crc32.Update(c, record.Castagnoli, data)
}

// places is room for what is summed beside a record: on the stack it would not
// stay, as the compiler cannot see into the sum's assembly.
var places = sync.Pool{New: func() any { return new([20]byte) }}

// extent is how long a record's gap and data are, as its header says.
func extent(head []byte) (gapBytes, dataBytes int, err error) {
	gapBytes, dataBytes = int(binary.LittleEndian.Uint16(head[10:])), int(binary.LittleEndian.Uint32(head))
	if dataBytes > MaxRecordBytes || gapBytes >= alignBytes {
		return 0, 0, fmt.Errorf("record of %d bytes behind a gap of %d", dataBytes, gapBytes)
	}
	return gapBytes, dataBytes, nil
}

// parseRecord decodes the record at b[0:], checks its CRC, and says how far it is to the next.
func parseRecord(b []byte, at Position) (r Record, size int, err error) {
	r, size, err = decodeRecord(b, at)
	if err != nil {
		return r, 0, err
	}
	gap, n, _ := extent(b)
	from := recordBytes + gap
	if got, want := recordCRC(b[:from], b[from:from+n], at), binary.LittleEndian.Uint32(b[4:]); got != want {
		return Record{}, 0, fmt.Errorf("record CRC %08x, says %08x", got, want)
	}
	return r, size, nil
}

// decodeRecord is parseRecord for a record that was checked before.
func decodeRecord(b []byte, at Position) (r Record, size int, err error) {
	le := binary.LittleEndian
	if len(b) < recordBytes {
		return r, 0, fmt.Errorf("%d bytes left, a record has at least %d", len(b), recordBytes)
	}
	gap, n, err := extent(b)
	if err != nil {
		return r, 0, err
	}
	from := recordBytes + gap
	if from+n > len(b) {
		return r, 0, fmt.Errorf("record of %d bytes in a block with %d left", n, len(b))
	}
	if !zeros(b[recordBytes:from]) { // and not the sum of what only looks like a header
		return r, 0, fmt.Errorf("something in the gap of %d bytes before the data", gap)
	}
	r = Record{
		Kind: Kind(b[8]), EntryType: b[9], Group: record.Group(le.Uint64(b[16:])), Index: record.Index(le.Uint64(b[24:])),
		Term: record.Term(le.Uint64(b[32:])), Vote: le.Uint64(b[40:]), Position: at, Data: b[from : from+n],
	}
	return r, min(paddedBytes(gap, n), len(b)), nil
}

// damagedGroup tells whose a damaged record is: the group if its id and check
// agree, else the check, which still names it among known groups.
func damagedGroup(b []byte) (record.Group, uint32) {
	if len(b) < recordBytes {
		return 0, 0
	}
	g, check := record.Group(binary.LittleEndian.Uint64(b[16:])), binary.LittleEndian.Uint32(b[12:])
	if GroupCheck(g) == check {
		return g, check
	}
	return 0, check
}
