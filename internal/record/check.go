package record

import "fmt"

// Limits bound what one batch may cost whoever looks into it. Zero values mean
// the defaults named here.
type Limits struct {
	// MaxRecordsBytes that a batch's records may have: 128 MiB.
	MaxRecordsBytes int64
	// MaxRatio of decompressed to compressed bytes, for batches whose records
	// grow beyond ratioFloorBytes: 1,000.
	MaxRatio int64
	// MaxRecords in one batch: 1,000,000.
	MaxRecords int
}

// ratioFloorBytes is what any batch may decompress to whatever its ratio: zeros
// compress well, and this much hurts nobody.
const ratioFloorBytes = 4 << 20

func (l Limits) withDefaults() Limits {
	if l.MaxRecordsBytes <= 0 {
		l.MaxRecordsBytes = 128 << 20
	}
	if l.MaxRatio <= 0 {
		l.MaxRatio = 1000
	}
	if l.MaxRecords <= 0 {
		l.MaxRecords = 1_000_000
	}
	return l
}

// decompressedBytes is the most that compressedBytes may become.
func (l Limits) decompressedBytes(compressedBytes int) int64 {
	return min(l.MaxRecordsBytes, max(ratioFloorBytes, l.MaxRatio*int64(compressedBytes)))
}

// Check decides whether a producer may send the one batch that is exactly b:
// length, CRC, attributes, counts, producer fields and, when it is not
// compressed, each record's framing. It allocates nothing unless it fails and
// does not decompress: CheckCompressed does, where that is wanted.
//
// Errors: ErrCorrupt, ErrInvalid, ErrTooLarge, ErrOldMagic. Source: Kafka's LogValidator.
func Check(b []byte, lim Limits) (Header, error) {
	h, err := Verify(b)
	if err != nil {
		return h, err
	}
	if err := h.checkFields(lim.withDefaults()); err != nil {
		return h, err
	}
	if h.Compression() != None {
		return h, nil
	}
	return h, checkRecords(b[HeaderBytes:], int(h.Count))
}

// CheckCompressed decompresses the records of a batch that Check accepted and
// checks their framing, without keeping them: memory stays at the codec's
// window whatever the batch claims. For an uncompressed batch it does nothing.
//
// Errors: ErrInvalid for what is not what it says, ErrTooLarge over the limits.
func CheckCompressed(b []byte, lim Limits) error {
	h, err := ParseHeader(b)
	if err != nil || h.Compression() == None {
		return err
	}
	return streamRecords(b, h, lim.withDefaults(), nil)
}

// checkFields checks the header's fields against each other.
func (h Header) checkFields(lim Limits) error {
	switch {
	case h.IsControl():
		return fmt.Errorf("%w: a control batch from a producer", ErrInvalid)
	case h.IsTransactional():
		return fmt.Errorf("%w: transactions are not supported", ErrInvalid)
	case h.Attributes&LogAppendTimeBit != 0:
		return fmt.Errorf("%w: a producer may not claim LogAppendTime", ErrInvalid)
	case h.Attributes&^CompressionMask != 0:
		return fmt.Errorf("%w: unknown attributes %#x", ErrInvalid, uint16(h.Attributes))
	case h.Compression() > Zstd:
		return fmt.Errorf("%w: unknown compression %d", ErrInvalid, h.Compression())
	case h.Count < 1:
		return fmt.Errorf("%w: %d records", ErrInvalid, h.Count)
	case int64(h.Count) > int64(lim.MaxRecords):
		return fmt.Errorf("%w: %d records, the limit is %d", ErrTooLarge, h.Count, lim.MaxRecords)
	case h.LastOffsetDelta != h.Count-1:
		return fmt.Errorf("%w: %d records, but a last offset delta of %d", ErrInvalid, h.Count, h.LastOffsetDelta)
	}
	return h.checkProducer()
}

// checkProducer is lenient about the epoch and the sequence of batches without
// a producer id: clients differ in what they write there.
func (h Header) checkProducer() error {
	switch {
	case h.ProducerID < NoProducer:
		return fmt.Errorf("%w: producer id %d", ErrInvalid, h.ProducerID)
	case h.ProducerID >= 0 && h.ProducerEpoch < 0:
		return fmt.Errorf("%w: producer %d with epoch %d", ErrInvalid, h.ProducerID, h.ProducerEpoch)
	case h.ProducerID >= 0 && h.BaseSequence < 0:
		return fmt.Errorf("%w: producer %d with sequence %d", ErrInvalid, h.ProducerID, h.BaseSequence)
	}
	return nil
}
