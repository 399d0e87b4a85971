package broker

import (
	"encoding/binary"
	"fmt"
)

// reader takes big-endian integers off a saved state and remembers the first
// thing that did not fit, so that callers check once at the end.
type reader struct {
	b   []byte
	err error
}

func (r *reader) fail(format string, args ...any) {
	if r.err == nil {
		r.err = fmt.Errorf("partition state: "+format, args...)
	}
}

func (r *reader) take(n int) []byte {
	if r.err == nil && len(r.b) < n {
		r.fail("%d bytes left, %d expected", len(r.b), n)
	}
	if r.err != nil {
		return make([]byte, n)
	}
	v := r.b[:n]
	r.b = r.b[n:]
	return v
}

func (r *reader) u8() uint8   { return r.take(1)[0] }
func (r *reader) u16() uint16 { return binary.BigEndian.Uint16(r.take(2)) }
func (r *reader) u64() uint64 { return binary.BigEndian.Uint64(r.take(8)) }

// u32 stops loops that run as often as it says once something did not fit.
func (r *reader) u32() uint32 {
	v := binary.BigEndian.Uint32(r.take(4))
	if r.err != nil {
		return 0
	}
	return v
}
