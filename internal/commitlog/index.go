package commitlog

import (
	"encoding/binary"
	"hash/crc32"
	"math"
	"sort"

	"github.com/tube-mq/tube/internal/record"
)

// noTime stands for "no timestamp": smaller than any.
const noTime = math.MinInt64

// entry is one point of a segment's sparse index. There is one for the first
// batch, one at least every Config.IndexIntervalBytes, and one wherever the
// leader epoch changes. On disk it is a row in each of two files; a closed
// segment's last row stands behind its last batch.
type entry struct {
	// rel is the batch's base offset, counted from the segment's.
	rel uint32
	// pos is where the batch begins in the file.
	pos uint32
	// epoch is the leader epoch of this batch and of all until the next entry.
	epoch record.Epoch
	// before is the largest timestamp of the segment's batches before pos, in ms.
	before int64
}

const (
	rowBytes   = 16
	entryBytes = 24 // in memory
	kindOffset = 'o'
	kindTime   = 't'
)

// rowCRC covers what makes a row this one: the file's kind, the segment, the
// row's number and its content. A stale or misplaced row does not fit.
func rowCRC(kind byte, base record.Offset, number int, content []byte) uint32 {
	var seed [13]byte
	seed[0] = kind
	binary.BigEndian.PutUint64(seed[1:], uint64(base))
	binary.BigEndian.PutUint32(seed[9:], uint32(number))
	return crc32.Update(crc32.Checksum(seed[:], record.Castagnoli), record.Castagnoli, content)
}

func appendOffsetRow(b []byte, base record.Offset, number int, e entry) []byte {
	be, n := binary.BigEndian, len(b)
	b = be.AppendUint32(b, e.rel)
	b = be.AppendUint32(b, e.pos)
	b = be.AppendUint32(b, uint32(e.epoch))
	return be.AppendUint32(b, rowCRC(kindOffset, base, number, b[n:]))
}

func appendTimeRow(b []byte, base record.Offset, number int, e entry) []byte {
	be, n := binary.BigEndian, len(b)
	b = be.AppendUint64(b, uint64(e.before))
	b = be.AppendUint32(b, e.rel)
	return be.AppendUint32(b, rowCRC(kindTime, base, number, b[n:]))
}

// parseRows decodes the two files' rows up to the first that does not fit: a
// wrong CRC, rows that do not belong together, not rising, or behind sizeBytes.
// What follows is found again by walking over the segment.
func parseRows(offsets, times []byte, base record.Offset, sizeBytes int64) []entry {
	be := binary.BigEndian
	n := min(len(offsets), len(times)) / rowBytes
	entries := make([]entry, 0, n)
	for i := range n {
		o, t := offsets[i*rowBytes:(i+1)*rowBytes], times[i*rowBytes:(i+1)*rowBytes]
		e := entry{rel: be.Uint32(o), pos: be.Uint32(o[4:]), epoch: record.Epoch(be.Uint32(o[8:])), before: int64(be.Uint64(t))}
		fits := rowCRC(kindOffset, base, i, o[:12]) == be.Uint32(o[12:]) &&
			rowCRC(kindTime, base, i, t[:12]) == be.Uint32(t[12:]) &&
			be.Uint32(t[8:]) == e.rel && int64(e.pos) <= sizeBytes
		if i == 0 {
			fits = fits && e.rel == 0 && e.pos == 0
		} else {
			last := entries[i-1]
			fits = fits && e.rel > last.rel && e.pos > last.pos && e.before >= last.before
		}
		if !fits {
			break
		}
		entries = append(entries, e)
	}
	return entries
}

// floorOffset is the number of the last entry at or before rel. There must be one.
func floorOffset(entries []entry, rel int64) int {
	return sort.Search(len(entries), func(i int) bool { return int64(entries[i].rel) > rel }) - 1
}

// usefulBytes is how much of so many bytes from pos on is worth reading: if the index
// shows that a large batch begins within them and ends behind, only what is before.
// What is left out may hold less than intervalBytes of whole batches.
func usefulBytes(entries []entry, pos, wantBytes, intervalBytes int64) int64 {
	end := pos + wantBytes
	next := sort.Search(len(entries), func(i int) bool { return int64(entries[i].pos) > end })
	if next == 0 || next == len(entries) {
		return wantBytes
	}
	last := int64(entries[next-1].pos)
	if last <= pos || end-last <= intervalBytes {
		return wantBytes
	}
	return last - pos
}

// floorTime is the number of the last entry before which no timestamp reaches t.
func floorTime(entries []entry, t int64) int {
	return max(0, sort.Search(len(entries), func(i int) bool { return entries[i].before >= t })-1)
}

// builder makes a segment's entries from its batches in order.
type builder struct {
	base     record.Offset
	interval int64
	entries  []entry
	maxTime  int64 // largest timestamp so far
}

func (b *builder) add(h record.Header, pos int64) {
	if n := len(b.entries); n == 0 || pos-int64(b.entries[n-1].pos) >= b.interval || h.LeaderEpoch != b.entries[n-1].epoch {
		b.entries = append(b.entries, entry{uint32(h.BaseOffset - b.base), uint32(pos), h.LeaderEpoch, b.maxTime})
	}
	b.maxTime = max(b.maxTime, h.MaxTimestamp)
}

// final is the row behind the last batch, which says that the index is complete.
func (b *builder) final(next record.Offset, sizeBytes int64) entry {
	e := entry{rel: uint32(next - b.base), pos: uint32(sizeBytes), before: b.maxTime}
	if n := len(b.entries); n > 0 {
		e.epoch = b.entries[n-1].epoch
	}
	return e
}
