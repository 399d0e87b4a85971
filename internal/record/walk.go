package record

import (
	"encoding/binary"
	"fmt"
)

// A record within a batch, all numbers zigzag varints:
//
//	length of what follows, attributes (1 byte), timestamp delta, offset delta,
//	key length (−1: null), key, value length (−1: null), value,
//	header count, then per header: key length, key, value length (−1: null), value

// varint reads one zigzag varint at b[at:] and returns the position after it,
// or −1 if there is none of at most ten bytes. Small enough to be inlined.
func varint(b []byte, at int) (int64, int) {
	if uint(at) < uint(len(b)) {
		if c := b[at]; c < 0x80 { // by far the most common
			return int64(c>>1) ^ -int64(c&1), at + 1
		}
	}
	return longVarint(b, at)
}

func longVarint(b []byte, at int) (int64, int) {
	if uint(at) >= uint(len(b)) {
		return 0, -1
	}
	if at+1 < len(b) && b[at+1] < 0x80 { // two bytes
		v := uint64(b[at]&0x7f) | uint64(b[at+1])<<7
		return int64(v>>1) ^ -int64(v&1), at + 2
	}
	v, n := binary.Uvarint(b[at:])
	if n <= 0 {
		return 0, -1
	}
	return int64(v>>1) ^ -int64(v&1), at + n
}

// skipBytes skips a length and as many bytes; least is −1 where null is allowed.
func skipBytes(b []byte, at int, least int64) int {
	n, at := varint(b, at)
	if at < 0 || n < least || n > int64(len(b)-at) {
		return -1
	}
	return at + int(max(n, 0))
}

// checkRecords walks over count uncompressed records that must fill b exactly.
// Hot path: no allocation unless it fails.
func checkRecords(b []byte, count int) error {
	for i := range count {
		length, at := varint(b, 0)
		if at < 0 || length < 0 || length > int64(len(b)-at) {
			return fmt.Errorf("%w: record %d of %d: bad length", ErrInvalid, i, count)
		}
		end := at + int(length)
		if why := checkRecord(b[at:end], int64(i)); why != "" {
			return fmt.Errorf("%w: record %d of %d: %s", ErrInvalid, i, count, why)
		}
		b = b[end:]
	}
	if len(b) != 0 {
		return fmt.Errorf("%w: %d bytes behind the last record", ErrInvalid, len(b))
	}
	return nil
}

// checkRecord checks one record's body and says what is wrong with it, if anything.
func checkRecord(r []byte, offsetDelta int64) string {
	_, at := varint(r, 1) // after the attributes
	if at < 0 {
		return "bad timestamp delta"
	}
	delta, at := varint(r, at)
	if at < 0 || delta != offsetDelta {
		return "bad offset delta"
	}
	if at = skipBytes(r, at, -1); at < 0 {
		return "bad key length"
	}
	if at = skipBytes(r, at, -1); at < 0 {
		return "bad value length"
	}
	if at == len(r)-1 && r[at] == 0 { // no headers: by far the most common
		return ""
	}
	return checkHeaders(r, at)
}

func checkHeaders(r []byte, at int) string {
	headers, at := varint(r, at)
	if at < 0 || headers < 0 || headers > int64(len(r)-at) {
		return "bad header count"
	}
	for range headers {
		if at = skipBytes(r, at, 0); at < 0 {
			return "bad header key length"
		}
		if at = skipBytes(r, at, -1); at < 0 {
			return "bad header value length"
		}
	}
	if at != len(r) {
		return "length does not fit the content"
	}
	return ""
}
