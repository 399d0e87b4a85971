package queue

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"

	"github.com/tube-mq/tube/internal/record"
)

// String is the lease's id as clients see it: partition, offset, attempt, nonce,
// cursor and generation, so that any node can tell whom to ask, and a group a lease of
// another, or of before it was set to go on elsewhere.
func (l Lease) String() string {
	b := make([]byte, 0, 64)
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
	return string(b)
}

// ParseLease reads what String wrote. Anything else is ErrLeaseUnknown.
func ParseLease(id string) (Lease, error) {
	var parts [6]string
	n := 0
	for rest, more := id, true; more && n <= len(parts); n++ {
		var part string
		if part, rest, more = strings.Cut(rest, "-"); n < len(parts) {
			parts[n] = part
		}
	}
	bad := func() (Lease, error) { return Lease{}, fmt.Errorf("%w: %.80q is no lease id", ErrLeaseUnknown, id) }
	if len(id) > 96 || n < 4 || n > 6 {
		return bad()
	}
	p, err1 := strconv.ParseUint(parts[0], 10, 31)
	o, err2 := strconv.ParseUint(parts[1], 10, 63)
	a, err3 := strconv.ParseUint(parts[2], 10, 31)
	nonce, err4 := strconv.ParseUint(parts[3], 16, 64)
	if err1 != nil || err2 != nil || err3 != nil || err4 != nil || nonce == 0 {
		return bad()
	}
	l := Lease{Partition: record.Partition(p), Offset: record.Offset(o), Attempt: int(a), Nonce: nonce}
	for i, to := range []*uint32{&l.Cursor, &l.Generation}[:n-4] {
		v, err := strconv.ParseUint(parts[4+i], 16, 32)
		if err != nil || v == 0 {
			return bad()
		}
		*to = uint32(v)
	}
	return l, nil
}

// CursorOf is what leases of a group's cursor bear, of a broadcast member's if there
// is one. Partitions and offsets of two groups are the same, and nonces may be: without
// it a lease of one group would acknowledge a message of the other. Never 0.
func CursorOf(group GroupID, member string) uint32 {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, 64), uint64(group))
	return uint32(hashKey(append(b, member...))) | 1<<31
}
