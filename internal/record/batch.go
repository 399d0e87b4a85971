package record

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// HeaderBytes is the size of a record batch's fixed part.
//
//	offset  size  field
//	0       8     base offset               (outside the CRC; set at apply)
//	8       4     length of what follows this field
//	12      4     partition leader epoch    (outside the CRC; set at apply)
//	16      1     magic, 2
//	17      4     CRC32C of everything from byte 21
//	21      2     attributes: 0–2 compression, 3 timestamp type, 4 transactional, 5 control
//	23      4     last offset delta
//	27      8     base timestamp, ms
//	35      8     max timestamp, ms
//	43      8     producer id
//	51      2     producer epoch
//	53      4     base sequence
//	57      4     record count
//	61      …     records, compressed as the attributes say
//
// Source: KIP-98, Kafka's "Record Batch" format.
const HeaderBytes = 61

// ChecksummedFrom is where the bytes begin that a batch's CRC covers, to its end.
const ChecksummedFrom = attributesAt

// Byte positions of fields that are rewritten in place.
const (
	baseOffsetAt  = 0
	lengthAt      = 8
	leaderEpochAt = 12
	magicAt       = 16
	crcAt         = 17
	attributesAt  = 21
	maxTimeAt     = 35
)

// Castagnoli is the CRC32C table used by batches and by everything Tube stores.
var Castagnoli = crc32.MakeTable(crc32.Castagnoli)

// What is wrong with a batch. Door errors are mapped from these.
var (
	// ErrCorrupt: checksum or length do not fit the bytes (Kafka CORRUPT_MESSAGE).
	ErrCorrupt = errors.New("corrupt record batch")
	// ErrInvalid: well-formed bytes that no producer may send (Kafka INVALID_RECORD).
	ErrInvalid = errors.New("invalid record batch")
	// ErrTooLarge: over the topic's or the node's limit (Kafka MESSAGE_TOO_LARGE).
	ErrTooLarge = errors.New("record batch too large")
	// ErrOldMagic: a message set of format 0 or 1 (Kafka UNSUPPORTED_FOR_MESSAGE_FORMAT).
	ErrOldMagic = errors.New("message format older than 2")
)

// Header is the decoded fixed part of a batch.
type Header struct {
	BaseOffset      Offset
	LengthBytes     int32 // of what follows the length field: SizeBytes − 12
	LeaderEpoch     Epoch
	CRC             uint32
	Attributes      int16
	LastOffsetDelta int32
	BaseTimestamp   int64 // ms
	MaxTimestamp    int64 // ms
	ProducerID      ProducerID
	ProducerEpoch   int16
	BaseSequence    int32
	Count           int32
}

// SizeBytes is the whole batch's size, header included.
func (h Header) SizeBytes() int { return int(h.LengthBytes) + lengthAt + 4 }

// LastOffset is the offset of the batch's last record.
func (h Header) LastOffset() Offset { return h.BaseOffset + Offset(h.LastOffsetDelta) }

// NextOffset is the offset after the batch's last record.
func (h Header) NextOffset() Offset { return h.LastOffset() + 1 }

// Attribute bits.
const (
	CompressionMask   = 0x07
	LogAppendTimeBit  = 0x08
	TransactionalBit  = 0x10
	ControlBit        = 0x20
	NoProducer        = ProducerID(-1)
	noSequence        = -1
	knownAttributeSet = CompressionMask | LogAppendTimeBit | TransactionalBit | ControlBit | 0x40
)

// IsTransactional reports whether the batch belongs to a transaction.
func (h Header) IsTransactional() bool { return h.Attributes&TransactionalBit != 0 }

// IsControl reports whether the batch holds a transaction marker.
func (h Header) IsControl() bool { return h.Attributes&ControlBit != 0 }

// ParseHeader decodes the fixed part of the batch that b begins with. It checks
// only what it needs to be safe: that 61 bytes are there, the magic, and that
// the length is not below the fixed part's. The batch may be longer than b; the
// CRC is not checked (see Verify).
func ParseHeader(b []byte) (Header, error) {
	if len(b) < HeaderBytes {
		return Header{}, fmt.Errorf("%w: %d bytes, a header has %d", ErrCorrupt, len(b), HeaderBytes)
	}
	be := binary.BigEndian
	if m := b[magicAt]; m != 2 {
		if m < 2 {
			return Header{}, fmt.Errorf("%w: magic %d", ErrOldMagic, m)
		}
		return Header{}, fmt.Errorf("%w: magic %d", ErrCorrupt, m)
	}
	h := Header{
		BaseOffset:      Offset(be.Uint64(b[baseOffsetAt:])),
		LengthBytes:     int32(be.Uint32(b[lengthAt:])),
		LeaderEpoch:     Epoch(be.Uint32(b[leaderEpochAt:])),
		CRC:             be.Uint32(b[crcAt:]),
		Attributes:      int16(be.Uint16(b[attributesAt:])),
		LastOffsetDelta: int32(be.Uint32(b[23:])),
		BaseTimestamp:   int64(be.Uint64(b[27:])),
		MaxTimestamp:    int64(be.Uint64(b[maxTimeAt:])),
		ProducerID:      ProducerID(be.Uint64(b[43:])),
		ProducerEpoch:   int16(be.Uint16(b[51:])),
		BaseSequence:    int32(be.Uint32(b[53:])),
		Count:           int32(be.Uint32(b[57:])),
	}
	if h.LengthBytes < HeaderBytes-lengthAt-4 {
		return Header{}, fmt.Errorf("%w: length %d is below the fixed part's", ErrCorrupt, h.LengthBytes)
	}
	return h, nil
}

// Verify decodes and checks the one batch that is exactly b: length and CRC.
func Verify(b []byte) (Header, error) {
	h, err := ParseHeader(b)
	if err != nil {
		return h, err
	}
	if h.SizeBytes() != len(b) {
		return h, fmt.Errorf("%w: says %d bytes, has %d", ErrCorrupt, h.SizeBytes(), len(b))
	}
	if got := crc32.Checksum(b[attributesAt:], Castagnoli); got != h.CRC {
		return h, fmt.Errorf("%w: CRC %08x, says %08x", ErrCorrupt, got, h.CRC)
	}
	return h, nil
}

// PutBaseOffset writes the base offset into a batch's header (outside the CRC).
func PutBaseOffset(b []byte, o Offset) {
	binary.BigEndian.PutUint64(b[baseOffsetAt:], uint64(o))
}

// PutLeaderEpoch writes the leader epoch into a batch's header (outside the CRC).
func PutLeaderEpoch(b []byte, e Epoch) {
	binary.BigEndian.PutUint32(b[leaderEpochAt:], uint32(e))
}

// StampLogAppendTime rewrites the batch for message.timestamp.type=LogAppendTime:
// sets the timestamp type bit and the max timestamp, and the CRC anew. Readers
// then take every record's time from the max timestamp (Kafka's rule).
// It returns the CRC.
func StampLogAppendTime(b []byte, timeMillis int64) uint32 {
	be := binary.BigEndian
	be.PutUint16(b[attributesAt:], be.Uint16(b[attributesAt:])|LogAppendTimeBit)
	be.PutUint64(b[maxTimeAt:], uint64(timeMillis))
	sum := crc32.Checksum(b[attributesAt:], Castagnoli)
	be.PutUint32(b[crcAt:], sum)
	return sum
}
