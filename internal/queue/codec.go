package queue

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/tube-mq/tube/internal/record"
)

// Numbers are uvarints, signed ones zigzag, strings and bytes have their length in
// front: this file writes and reads them for commands, annexes and snapshots.

func appendUint(b []byte, v uint64) []byte { return binary.AppendUvarint(b, v) }

func appendInt(b []byte, v int64) []byte { return binary.AppendVarint(b, v) }

func appendBytes(b, v []byte) []byte { return append(appendUint(b, uint64(len(v))), v...) }

func appendString(b []byte, v string) []byte { return append(appendUint(b, uint64(len(v))), v...) }

// appendOffsets writes offsets as differences: in ascending order they take a byte or two each.
func appendOffsets(b []byte, list []record.Offset) []byte {
	b = appendUint(b, uint64(len(list)))
	last := record.Offset(0)
	for _, o := range list {
		b = appendInt(b, int64(o-last))
		last = o
	}
	return b
}

// reader takes values off encoded bytes and remembers the first thing that did not
// fit, so that callers check once at the end. It allocates no more than the input is long.
type reader struct {
	b   []byte
	err error
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("queue state: "+format, args...)
	}
	r.b = nil
}

func (r *reader) byte() byte {
	if len(r.b) == 0 {
		r.fail("it ends where a byte is expected")
		return 0
	}
	v := r.b[0]
	r.b = r.b[1:]
	return v
}

func (r *reader) uint() uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 {
		r.fail("it ends within a number")
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) int() int64 {
	v, n := binary.Varint(r.b)
	if n <= 0 {
		r.fail("it ends within a number")
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) uint32() uint32 {
	v := r.uint()
	if v > math.MaxUint32 {
		r.fail("%d where 32 bits are expected", v)
		return 0
	}
	return uint32(v)
}

// offset is an uint that is an offset.
func (r *reader) offset() record.Offset {
	v := r.uint()
	if v > math.MaxInt64 {
		r.fail("offset %d", v)
		return 0
	}
	return record.Offset(v)
}

// count is how many things of at least leastBytes each follow.
func (r *reader) count(leastBytes int) int {
	v := r.uint()
	if v > uint64(len(r.b)/leastBytes) {
		r.fail("%d things announced in %d bytes", v, len(r.b))
		return 0
	}
	return int(v)
}

// bytes lie in the input.
func (r *reader) bytes(atMost int) []byte {
	n := r.count(1)
	if n > atMost {
		r.fail("%d bytes where at most %d may be", n, atMost)
		return nil
	}
	v := r.b[:n:n]
	r.b = r.b[n:]
	return v
}

func (r *reader) string(atMost int) string { return string(r.bytes(atMost)) }

func (r *reader) offsets() []record.Offset {
	n := r.count(1)
	if n == 0 {
		return nil
	}
	list := make([]record.Offset, 0, n)
	last := int64(0)
	for range n {
		last += r.int()
		list = append(list, record.Offset(last))
	}
	if r.err != nil {
		return nil
	}
	return list
}

// end makes what is left over a mistake.
func (r *reader) end() error {
	if r.err == nil && len(r.b) > 0 {
		r.fail("%d bytes too many", len(r.b))
	}
	return r.err
}
