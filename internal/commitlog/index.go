package commitlog

import (
	"encoding/binary"
	"hash/crc32"
	"sort"

	"github.com/tube-mq/tube/internal/record"
)

// row is one entry of a segment's sparse index: at position a batch with this
// base offset begins; maxTime is the largest timestamp before it in the segment.
//
//	u64 base offset, u64 position, i64 max time ms, u32 reserved, u32 CRC32C (little endian)
//
// The CRC covers the row and the segment's base offset. A row that does not fit
// ends the index: what is behind it is found by walking the segment.
type row struct {
	offset   record.Offset
	position int64
	maxTime  int64
}

const (
	rowBytes = 32
	// indexInterval is how many bytes of batches one row stands for at least.
	indexInterval = 16 << 10
)

func (r row) append(b []byte, base record.Offset) []byte {
	le := binary.LittleEndian
	n := len(b)
	b = le.AppendUint64(b, uint64(r.offset))
	b = le.AppendUint64(b, uint64(r.position))
	b = le.AppendUint64(b, uint64(r.maxTime))
	b = le.AppendUint32(b, 0)
	return le.AppendUint32(b, rowCRC(b[n:], base))
}

func rowCRC(b []byte, base record.Offset) uint32 {
	var seed [8]byte
	binary.LittleEndian.PutUint64(seed[:], uint64(base))
	return crc32.Update(crc32.Checksum(seed[:], record.Castagnoli), record.Castagnoli, b[:rowBytes-4])
}

// parseRows decodes the rows of an index up to the first that does not fit the
// segment: wrong CRC, not rising, or behind its end.
func parseRows(b []byte, base record.Offset, sizeBytes int64) []row {
	le := binary.LittleEndian
	var rows []row
	last := row{offset: base - 1, position: -1}
	for ; len(b) >= rowBytes; b = b[rowBytes:] {
		r := row{record.Offset(le.Uint64(b)), int64(le.Uint64(b[8:])), int64(le.Uint64(b[16:]))}
		if rowCRC(b[:rowBytes], base) != le.Uint32(b[28:]) || r.offset <= last.offset || r.position <= last.position || r.position >= sizeBytes {
			return rows
		}
		rows = append(rows, r)
		last = r
	}
	return rows
}

// floorOffset is the last row at or before an offset; the segment's start if none.
func floorOffset(rows []row, base, o record.Offset) row {
	i := sort.Search(len(rows), func(i int) bool { return rows[i].offset > o })
	if i == 0 {
		return row{base, 0, minTime}
	}
	return rows[i-1]
}

// floorTime is the last row before which no timestamp reaches t.
func floorTime(rows []row, base record.Offset, t int64) row {
	i := sort.Search(len(rows), func(i int) bool { return rows[i].maxTime >= t })
	if i == 0 {
		return row{base, 0, minTime}
	}
	return rows[i-1]
}
