package record

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Limits bound what a record may make a reader do.
type Limits struct {
	// MaxUncompressedBytes of one batch: 128 MiB if 0.
	MaxUncompressedBytes int
	// MaxRatio of uncompressed to compressed bytes, for batches that grow beyond
	// 1 MiB: 1,000 if 0.
	MaxRatio int
}

func (l Limits) maxBytes() int {
	if l.MaxUncompressedBytes == 0 {
		return 128 << 20
	}
	return l.MaxUncompressedBytes
}

func (l Limits) maxRatio() int {
	if l.MaxRatio == 0 {
		return 1000
	}
	return l.MaxRatio
}

// Check is what a broker must know of a produced batch before it is stored:
// that it is exactly one batch, sound, and what a producer may send. Records of
// uncompressed batches are walked; CheckRecords does so for compressed ones.
func Check(b []byte) (Header, error) {
	h, err := Verify(b)
	if err != nil {
		return h, err
	}
	switch {
	case h.Count < 1 || h.LastOffsetDelta != h.Count-1:
		return h, fmt.Errorf("%w: %d records with a last offset delta of %d", ErrInvalid, h.Count, h.LastOffsetDelta)
	case int64(h.Count) > int64(len(b)-HeaderBytes) && h.Attributes&CompressionMask == 0:
		return h, fmt.Errorf("%w: %d records in %d bytes", ErrInvalid, h.Count, len(b))
	case h.IsControl():
		return h, fmt.Errorf("%w: control batches are the broker's", ErrInvalid)
	case h.IsTransactional():
		return h, fmt.Errorf("%w: transactions are not supported", ErrInvalid)
	case h.Attributes&^knownAttributeSet != 0:
		return h, fmt.Errorf("%w: unknown attributes %#x", ErrInvalid, h.Attributes)
	case h.Attributes&CompressionMask > 4:
		return h, fmt.Errorf("%w: unknown compression %d", ErrInvalid, h.Attributes&CompressionMask)
	case h.ProducerID < NoProducer:
		return h, fmt.Errorf("%w: producer id %d", ErrInvalid, h.ProducerID)
	case h.ProducerID >= 0 && (h.ProducerEpoch < 0 || h.BaseSequence < 0):
		return h, fmt.Errorf("%w: producer %d with epoch %d and sequence %d", ErrInvalid, h.ProducerID, h.ProducerEpoch, h.BaseSequence)
	}
	if h.Attributes&CompressionMask != 0 {
		return h, nil
	}
	return h, walk(b[HeaderBytes:], h)
}

// walk goes over the records of an uncompressed batch: each fits, and the
// offset deltas count from 0.
func walk(b []byte, h Header) error {
	for i := range h.Count {
		size, n := binary.Varint(b)
		if n <= 0 || size < 0 || size > int64(len(b)-n) {
			return fmt.Errorf("%w: record %d does not fit the batch", ErrInvalid, i)
		}
		rec := b[n : n+int(size)]
		b = b[n+int(size):]
		if len(rec) < 1 {
			return fmt.Errorf("%w: record %d is empty", ErrInvalid, i)
		}
		_, n = binary.Varint(rec[1:]) // after the attributes: the timestamp delta
		if n <= 0 {
			return fmt.Errorf("%w: record %d has no timestamp", ErrInvalid, i)
		}
		delta, n := binary.Varint(rec[1+n:])
		if n <= 0 || delta != int64(i) {
			return fmt.Errorf("%w: record %d has offset delta %d", ErrInvalid, i, delta)
		}
	}
	if len(b) != 0 {
		return fmt.Errorf("%w: %d bytes behind the last record", ErrInvalid, len(b))
	}
	return nil
}

// Record is one record of a batch.
type Record struct {
	Offset    Offset
	Timestamp int64 // ms
	Key       []byte
	Value     []byte // nil: a tombstone
	Headers   []RecordHeader
}

// RecordHeader is one header of a record.
type RecordHeader struct {
	Key   string
	Value []byte
}

// field reads a varint-prefixed byte string; length −1 is nil.
func field(b []byte) (v, rest []byte, ok bool) {
	size, n := binary.Varint(b)
	if n <= 0 || size < -1 || size > int64(len(b)-n) {
		return nil, nil, false
	}
	if size == -1 {
		return nil, b[n:], true
	}
	return b[n : n+int(size)], b[n+int(size):], true
}

// parseRecord decodes one record behind its length.
func parseRecord(b []byte, h Header) (Record, bool) {
	var r Record
	if len(b) < 1 {
		return r, false
	}
	b = b[1:]
	dt, n := binary.Varint(b)
	if n <= 0 {
		return r, false
	}
	b = b[n:]
	do, n := binary.Varint(b)
	if n <= 0 || do < 0 || do > math.MaxInt32 {
		return r, false
	}
	b = b[n:]
	r.Offset, r.Timestamp = h.BaseOffset+Offset(do), h.BaseTimestamp+dt
	if h.Attributes&LogAppendTimeBit != 0 {
		r.Timestamp = h.MaxTimestamp
	}
	var ok bool
	if r.Key, b, ok = field(b); !ok {
		return r, false
	}
	if r.Value, b, ok = field(b); !ok {
		return r, false
	}
	count, n := binary.Varint(b)
	if n <= 0 || count < 0 || count > int64(len(b)) {
		return r, false
	}
	b = b[n:]
	for range count {
		var k, v []byte
		if k, b, ok = field(b); !ok {
			return r, false
		}
		if v, b, ok = field(b); !ok {
			return r, false
		}
		r.Headers = append(r.Headers, RecordHeader{string(k), v})
	}
	return r, true
}

// Each decodes a batch, decompressing within the limits, and visits its records
// until visit says stop. The records alias memory that visit must not keep.
func Each(b []byte, lim Limits, visit func(Record) bool) error {
	h, err := ParseHeader(b)
	if err != nil {
		return err
	}
	body, err := decompress(b[HeaderBytes:], h.Attributes&CompressionMask, lim)
	if err != nil {
		return err
	}
	for i := range h.Count {
		size, n := binary.Varint(body)
		if n <= 0 || size < 0 || size > int64(len(body)-n) {
			return fmt.Errorf("%w: record %d does not fit the batch", ErrInvalid, i)
		}
		r, ok := parseRecord(body[n:n+int(size)], h)
		if !ok {
			return fmt.Errorf("%w: record %d does not decode", ErrInvalid, i)
		}
		if !visit(r) {
			return nil
		}
		body = body[n+int(size):]
	}
	return nil
}

// CheckRecords decompresses a batch within the limits and walks its records.
func CheckRecords(b []byte, lim Limits) error {
	h, err := ParseHeader(b)
	if err != nil {
		return err
	}
	body, err := decompress(b[HeaderBytes:], h.Attributes&CompressionMask, lim)
	if err != nil {
		return err
	}
	return walk(body, h)
}

// FirstAtOrAfter finds the first record with a timestamp ≥ timeMillis.
func FirstAtOrAfter(b []byte, timeMillis int64) (Offset, int64, bool) {
	found := Record{Offset: -1}
	err := Each(b, Limits{}, func(r Record) bool {
		if r.Timestamp >= timeMillis {
			found = r
			return false
		}
		return true
	})
	return found.Offset, found.Timestamp, err == nil && found.Offset >= 0
}
