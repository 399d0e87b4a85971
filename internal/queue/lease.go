package queue

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"

	"github.com/tube-mq/tube/internal/record"
)

// String is the lease's id as clients see it: partition, offset, attempt, nonce,
// cursor and generation, so that any node can tell whom to ask, and a group a lease of
// another, or of before it was set to go on elsewhere.
func (l Lease) String() string { return string(l.Append(make([]byte, 0, 64))) }

// Append is String's text behind b: at most maxLeaseID bytes.
func (l Lease) Append(b []byte) []byte {
	b = append(strconv.AppendInt(b, int64(l.Partition), 10), '-')
	b = append(strconv.AppendInt(b, int64(l.Offset), 10), '-')
	b = append(strconv.AppendInt(b, int64(l.Attempt), 10), '-')
	b = strconv.AppendUint(b, l.Nonce, 16)
	if l.Cursor != 0 {
		b = strconv.AppendUint(append(b, '-'), uint64(l.Cursor), 16)
		if l.Generation != 0 {
			b = strconv.AppendUint(append(b, '-'), uint64(l.Generation), 16)
		}
	}
	return b
}

// maxLeaseID is the length in bytes of the longest lease id.
const maxLeaseID = 96

// ParseLease reads what String wrote. Anything else is ErrLeaseUnknown.
func ParseLease(id string) (Lease, error) {
	p, rest, ok1 := number(id, 10, math.MaxInt32)
	o, rest, ok2 := number(rest, 10, math.MaxInt64)
	a, rest, ok3 := number(rest, 10, math.MaxInt32)
	nonce, rest, ok4 := number(rest, 16, math.MaxUint64)
	ok := len(id) <= maxLeaseID && ok1 && ok2 && ok3 && ok4 && nonce != 0 && id[len(id)-1] != '-'
	l := Lease{Partition: record.Partition(p), Offset: record.Offset(o), Attempt: int(a), Nonce: nonce}
	for _, to := range []*uint32{&l.Cursor, &l.Generation} {
		if rest == "" {
			break
		}
		var v uint64
		var is bool
		v, rest, is = number(rest, 16, math.MaxUint32)
		ok = ok && is && v != 0
		*to = uint32(v)
	}
	if !ok || rest != "" {
		return Lease{}, fmt.Errorf("%w: %.80q is no lease id", ErrLeaseUnknown, id)
	}
	return l, nil
}

// number takes a number of at least one digit and the hyphen behind it, if there is
// one, off a string.
func number(s string, base, most uint64) (v uint64, rest string, ok bool) {
	for i := 0; i < len(s); i++ {
		c := uint64(s[i])
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c == '-':
			return v, s[i+1:], i > 0
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return 0, s, false
		}
		if c >= base || v > (most-c)/base {
			return 0, s, false
		}
		v = v*base + c
	}
	return v, "", s != ""
}

// CursorOf is what leases of a group's cursor bear, of a broadcast member's if there
// is one. Partitions and offsets of two groups are the same, and nonces may be: without
// it a lease of one group would acknowledge a message of the other. Never 0.
func CursorOf(group GroupID, member string) uint32 {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, 64), uint64(group))
	return uint32(hashKey(append(b, member...))) | 1<<31
}
