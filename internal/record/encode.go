package record

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
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
	if len(records) == 0 || len(records) > math.MaxInt32 {
		return nil, fmt.Errorf("%w: %d records", ErrInvalid, len(records))
	}
	base, baseTime, maxTime := records[0].Offset, records[0].Timestamp, records[0].Timestamp
	var body []byte
	for i := range records {
		r := &records[i]
		if r.Offset != base+Offset(i) {
			return nil, fmt.Errorf("%w: record %d has offset %d, expected %d", ErrInvalid, i, r.Offset, base+Offset(i))
		}
		maxTime = max(maxTime, r.Timestamp)
		body = appendRecord(body, r, r.Timestamp-baseTime, int64(i))
	}
	body, err := compress(o.Compression, body)
	if err != nil {
		return nil, err
	}
	if len(body) > math.MaxInt32-HeaderBytes {
		return nil, fmt.Errorf("%w: %d bytes", ErrTooLarge, len(body))
	}
	if !o.Idempotent {
		o.ProducerID, o.ProducerEpoch, o.BaseSequence = NoProducer, -1, -1
	}
	attributes := int16(o.Compression)
	if o.Transactional {
		attributes |= TransactionalBit
	}
	count := int32(len(records))
	return AppendBatch(nil, Header{
		BaseOffset: base, Attributes: attributes, LastOffsetDelta: count - 1,
		BaseTimestamp: baseTime, MaxTimestamp: maxTime,
		ProducerID: o.ProducerID, ProducerEpoch: o.ProducerEpoch, BaseSequence: o.BaseSequence, Count: count,
	}, body), nil
}

// AppendBatch appends the batch of h and its (compressed) records to dst. Length
// and CRC of h are not used but computed.
func AppendBatch(dst []byte, h Header, records []byte) []byte {
	be := binary.BigEndian
	start := len(dst)
	dst = be.AppendUint64(dst, uint64(h.BaseOffset))
	dst = be.AppendUint32(dst, uint32(HeaderBytes-lengthAt-4+len(records)))
	dst = be.AppendUint32(dst, uint32(h.LeaderEpoch))
	dst = append(dst, 2, 0, 0, 0, 0)
	dst = be.AppendUint16(dst, uint16(h.Attributes))
	dst = be.AppendUint32(dst, uint32(h.LastOffsetDelta))
	dst = be.AppendUint64(dst, uint64(h.BaseTimestamp))
	dst = be.AppendUint64(dst, uint64(h.MaxTimestamp))
	dst = be.AppendUint64(dst, uint64(h.ProducerID))
	dst = be.AppendUint16(dst, uint16(h.ProducerEpoch))
	dst = be.AppendUint32(dst, uint32(h.BaseSequence))
	dst = be.AppendUint32(dst, uint32(h.Count))
	dst = append(dst, records...)
	b := dst[start:]
	be.PutUint32(b[crcAt:], crc32.Checksum(b[attributesAt:], Castagnoli))
	return dst
}

func appendRecord(dst []byte, r *Record, timeDelta, offsetDelta int64) []byte {
	body := make([]byte, 0, 32+len(r.Key)+len(r.Value))
	body = append(body, 0)
	body = binary.AppendVarint(body, timeDelta)
	body = binary.AppendVarint(body, offsetDelta)
	body = appendBytes(body, r.Key)
	body = appendBytes(body, r.Value)
	body = binary.AppendVarint(body, int64(len(r.Headers)))
	for _, h := range r.Headers {
		body = binary.AppendVarint(body, int64(len(h.Key)))
		body = append(body, h.Key...)
		body = appendBytes(body, h.Value)
	}
	dst = binary.AppendVarint(dst, int64(len(body)))
	return append(dst, body...)
}

func appendBytes(dst, b []byte) []byte {
	if b == nil {
		return binary.AppendVarint(dst, -1)
	}
	dst = binary.AppendVarint(dst, int64(len(b)))
	return append(dst, b...)
}
