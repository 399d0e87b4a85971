package record

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"math/bits"
)

// BatchOptions are what Encode puts into a batch's header besides the records.
// The zero value is an uncompressed batch without a producer.
type BatchOptions struct {
	Compression Compression
	// Idempotent makes the three fields below count.
	Idempotent    bool
	ProducerID    ProducerID
	ProducerEpoch int16
	BaseSequence  int32
	Transactional bool
}

// Encode makes a batch of records, for what Tube writes itself. The base offset
// is the first record's, the others must follow without holes. It fails only if
// there is no record, offsets have holes, or the batch would pass 2 GiB.
func Encode(o BatchOptions, records []Record) ([]byte, error) {
	return encodeIn(o, records, func(sizeBytes int) []byte { return make([]byte, sizeBytes) })
}

// EncodeBuffer is Encode, without options, into a buffer of the pool: the batch is all of
// B. The reference is the caller's.
func EncodeBuffer(records []Record) (*Buffer, error) {
	var buf *Buffer
	batch, err := encodeIn(BatchOptions{}, records, func(sizeBytes int) []byte {
		buf = NewBuffer(sizeBytes)
		return buf.B
	})
	if err != nil {
		buf.Release()
		return nil, err
	}
	if len(batch) != len(buf.B) {
		panic(fmt.Sprintf("record: a batch of %d bytes was to have %d", len(batch), len(buf.B)))
	}
	return buf, nil
}

// encodeIn is Encode, in memory that alloc makes; its content does not matter.
func encodeIn(o BatchOptions, records []Record, alloc func(sizeBytes int) []byte) ([]byte, error) {
	if len(records) == 0 || len(records) > math.MaxInt32 {
		return nil, fmt.Errorf("%w: %d records", ErrInvalid, len(records))
	}
	base, baseTime, maxTime := records[0].Offset, records[0].Timestamp, records[0].Timestamp
	size := HeaderBytes
	for i := range records {
		r := &records[i]
		if r.Offset != base+Offset(i) {
			return nil, fmt.Errorf("%w: record %d has offset %d, expected %d", ErrInvalid, i, r.Offset, base+Offset(i))
		}
		maxTime = max(maxTime, r.Timestamp)
		n := bodySize(r, r.Timestamp-baseTime, int64(i))
		size += varintSize(int64(n)) + n
	}
	// Of its size at once, with room for the header: the batch is not copied again
	// unless it is compressed.
	batch := alloc(size)[:HeaderBytes]
	for i := range records {
		batch = appendRecord(batch, &records[i], records[i].Timestamp-baseTime, int64(i))
	}
	if o.Compression != None {
		body, err := compress(o.Compression, batch[HeaderBytes:])
		if err != nil {
			return nil, err
		}
		batch = append(make([]byte, HeaderBytes, HeaderBytes+len(body)), body...)
	}
	if len(batch) > math.MaxInt32 {
		return nil, fmt.Errorf("%w: %d bytes", ErrTooLarge, len(batch))
	}
	if !o.Idempotent {
		o.ProducerID, o.ProducerEpoch, o.BaseSequence = NoProducer, -1, -1
	}
	attributes := int16(o.Compression)
	if o.Transactional {
		attributes |= TransactionalBit
	}
	count := int32(len(records))
	putHeader(batch, Header{
		BaseOffset: base, Attributes: attributes, LastOffsetDelta: count - 1,
		BaseTimestamp: baseTime, MaxTimestamp: maxTime,
		ProducerID: o.ProducerID, ProducerEpoch: o.ProducerEpoch, BaseSequence: o.BaseSequence, Count: count,
	})
	return batch, nil
}

// AppendBatch appends the batch of h and its (compressed) records to dst. Length
// and CRC of h are not used but computed.
func AppendBatch(dst []byte, h Header, records []byte) []byte {
	start := len(dst)
	dst = append(append(dst, make([]byte, HeaderBytes)...), records...)
	putHeader(dst[start:], h)
	return dst
}

// putHeader writes the header in front of a batch whose records are there.
func putHeader(batch []byte, h Header) {
	be := binary.BigEndian
	b := be.AppendUint64(batch[:0], uint64(h.BaseOffset))
	b = be.AppendUint32(b, uint32(len(batch)-lengthAt-4))
	b = be.AppendUint32(b, uint32(h.LeaderEpoch))
	b = append(b, 2, 0, 0, 0, 0)
	b = be.AppendUint16(b, uint16(h.Attributes))
	b = be.AppendUint32(b, uint32(h.LastOffsetDelta))
	b = be.AppendUint64(b, uint64(h.BaseTimestamp))
	b = be.AppendUint64(b, uint64(h.MaxTimestamp))
	b = be.AppendUint64(b, uint64(h.ProducerID))
	b = be.AppendUint16(b, uint16(h.ProducerEpoch))
	b = be.AppendUint32(b, uint32(h.BaseSequence))
	be.AppendUint32(b, uint32(h.Count))
	be.PutUint32(batch[crcAt:], crc32.Checksum(batch[attributesAt:], Castagnoli))
}

func appendRecord(dst []byte, r *Record, timeDelta, offsetDelta int64) []byte {
	dst = binary.AppendVarint(dst, int64(bodySize(r, timeDelta, offsetDelta)))
	dst = append(dst, 0)
	dst = binary.AppendVarint(dst, timeDelta)
	dst = binary.AppendVarint(dst, offsetDelta)
	dst = appendBytes(dst, r.Key)
	dst = appendBytes(dst, r.Value)
	dst = binary.AppendVarint(dst, int64(len(r.Headers)))
	for _, h := range r.Headers {
		dst = binary.AppendVarint(dst, int64(len(h.Key)))
		dst = append(dst, h.Key...)
		dst = appendBytes(dst, h.Value)
	}
	return dst
}

// bodySize is the bytes of a record without its length in front.
func bodySize(r *Record, timeDelta, offsetDelta int64) int {
	n := 1 + varintSize(timeDelta) + varintSize(offsetDelta) + bytesSize(r.Key) + bytesSize(r.Value) + varintSize(int64(len(r.Headers)))
	for i := range r.Headers {
		n += varintSize(int64(len(r.Headers[i].Key))) + len(r.Headers[i].Key) + bytesSize(r.Headers[i].Value)
	}
	return n
}

// bytesSize is what appendBytes appends.
func bytesSize(b []byte) int {
	if b == nil {
		return 1
	}
	return varintSize(int64(len(b))) + len(b)
}

// varintSize is what binary.AppendVarint appends.
func varintSize(v int64) int {
	zigzag := uint64(v)<<1 ^ uint64(v>>63)
	return (bits.Len64(zigzag|1) + 6) / 7
}

func appendBytes(dst, b []byte) []byte {
	if b == nil {
		return binary.AppendVarint(dst, -1)
	}
	dst = binary.AppendVarint(dst, int64(len(b)))
	return append(dst, b...)
}
