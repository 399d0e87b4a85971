package record

import (
	"bytes"
	"fmt"
	"io"
)

// Record is one message of a batch.
type Record struct {
	Offset     Offset
	Timestamp  int64  // ms
	Key, Value []byte // nil: null
	Headers    []RecordHeader
}

// RecordHeader is one header of a record.
type RecordHeader struct {
	Key   string
	Value []byte // nil: null
}

// Each decodes the batch that is exactly b, decompressing within lim, and
// calls visit with every record in order until it returns false. What a record
// points to lies in b, or in memory of its own when b is compressed (at most
// lim.MaxRecordsBytes).
//
// Batches from a log may have been compacted; here every batch is as produced,
// so offset deltas run from 0 without holes.
func Each(b []byte, lim Limits, visit func(Record) bool) error {
	h, err := ParseHeader(b)
	if err != nil {
		return err
	}
	if h.SizeBytes() != len(b) {
		return fmt.Errorf("%w: says %d bytes, has %d", ErrCorrupt, h.SizeBytes(), len(b))
	}
	lim = lim.withDefaults()
	if int64(h.Count) > int64(lim.MaxRecords) {
		return fmt.Errorf("%w: %d records, the limit is %d", ErrTooLarge, h.Count, lim.MaxRecords)
	}
	body := b[HeaderBytes:]
	if h.Compression() != None {
		if body, err = decompressAll(h.Compression(), body, lim); err != nil {
			return err
		}
	}
	if err := checkRecords(body, int(h.Count)); err != nil {
		return err
	}
	for range h.Count {
		length, at := varint(body, 0)
		end := at + int(length)
		if !visit(decodeRecord(body[at:end], h)) {
			return nil
		}
		body = body[end:]
	}
	return nil
}

func decompressAll(c Compression, b []byte, lim Limits) ([]byte, error) {
	var out bytes.Buffer
	err := decompress(c, b, lim.decompressedBytes(len(b)), func(r io.Reader) error {
		_, err := out.ReadFrom(r)
		return err
	})
	return out.Bytes(), err
}

// timestamp is a record's time, which LogAppendTime takes from the batch.
func (h Header) timestamp(deltaMillis int64) int64 {
	if h.Attributes&LogAppendTimeBit != 0 {
		return h.MaxTimestamp
	}
	return h.BaseTimestamp + deltaMillis
}

// decodeRecord decodes a record's body that checkRecord accepted.
func decodeRecord(r []byte, h Header) Record {
	timeDelta, at := varint(r, 1)
	offsetDelta, at := varint(r, at)
	rec := Record{Offset: h.BaseOffset + Offset(offsetDelta), Timestamp: h.timestamp(timeDelta)}
	rec.Key, at = takeBytes(r, at)
	rec.Value, at = takeBytes(r, at)
	headers, at := varint(r, at)
	if headers > 0 {
		rec.Headers = make([]RecordHeader, headers)
	}
	for i := range rec.Headers {
		var key []byte
		key, at = takeBytes(r, at)
		rec.Headers[i].Key = string(key)
		rec.Headers[i].Value, at = takeBytes(r, at)
	}
	return rec
}

func takeBytes(r []byte, at int) ([]byte, int) {
	n, at := varint(r, at)
	if n < 0 {
		return nil, at
	}
	end := at + int(n)
	return r[at:end:end], end
}

// FirstAt finds the first record of the batch that is exactly b, at or behind
// offset from, with a timestamp ≥ timeMillis; ok is false if there is none. It
// keeps nothing of the records, so memory stays small for any batch.
func FirstAt(b []byte, timeMillis int64, from Offset, lim Limits) (o Offset, foundMillis int64, ok bool, err error) {
	h, err := ParseHeader(b)
	if err != nil {
		return -1, -1, false, err
	}
	err = streamRecords(b, h, lim.withDefaults(), func(delta, timeDelta int64) bool {
		o, foundMillis = h.BaseOffset+Offset(delta), h.timestamp(timeDelta)
		ok = o >= from && foundMillis >= timeMillis
		return !ok
	})
	if err != nil || !ok {
		return -1, -1, false, err
	}
	return o, foundMillis, true, nil
}
