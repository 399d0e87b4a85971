package kafka

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Frame format:
//
//	offset  size  field
//	0       4     length of what follows
//	4       2     API key
//	6       2     API version
//	8       4     correlation id
//	12      2     length of the client id, −1 for none     (header v1 on)
//	14      n     client id
//	…       …     tagged fields, if the request is flexible (header v2)
//	…       …     body
//
// Source: Kafka protocol guide, "Request Header".

// headBytes is read before anything is allocated: it says what the frame is.
const headBytes = 12

// head is the part of a frame that every request has.
type head struct {
	sizeBytes   int // of the frame without its length field
	key         int16
	version     int16
	correlation int32
}

// errFrame is a frame that nobody can answer: the connection is closed.
var errFrame = errors.New("bad frame")

// frameSize checks a frame's length before anything else of it is looked at.
func frameSize(b []byte, maxBytes int) (int, error) {
	n := int32(binary.BigEndian.Uint32(b))
	if n < headBytes-4 || int64(n) > int64(maxBytes) {
		return 0, fmt.Errorf("%w: length %d is not in [%d, %d]", errFrame, n, headBytes-4, maxBytes)
	}
	return int(n), nil
}

func parseHead(b []byte) head {
	be := binary.BigEndian
	return head{
		sizeBytes: int(be.Uint32(b)), key: int16(be.Uint16(b[4:])), version: int16(be.Uint16(b[6:])), correlation: int32(be.Uint32(b[8:])),
	}
}

// skipHeader takes the client id and the header's tags off what follows the head.
func skipHeader(b []byte, flexible bool) (clientID, body []byte, err error) {
	if len(b) < 2 {
		return nil, nil, fmt.Errorf("%w: no client id", errFrame)
	}
	n := int(int16(binary.BigEndian.Uint16(b)))
	b = b[2:]
	if n > len(b) {
		return nil, nil, fmt.Errorf("%w: client id of %d bytes, %d left", errFrame, n, len(b))
	}
	if n > 0 {
		clientID, b = b[:n], b[n:]
	}
	if !flexible {
		return clientID, b, nil
	}
	count, k := binary.Uvarint(b)
	if k <= 0 || count > uint64(len(b)) {
		return nil, nil, fmt.Errorf("%w: header tags", errFrame)
	}
	b = b[k:]
	for range count {
		_, k := binary.Uvarint(b)
		if k <= 0 {
			return nil, nil, fmt.Errorf("%w: header tag", errFrame)
		}
		size, m := binary.Uvarint(b[k:])
		if m <= 0 || size > uint64(len(b)-k-m) {
			return nil, nil, fmt.Errorf("%w: header tag", errFrame)
		}
		b = b[k+m+int(size):]
	}
	return clientID, b, nil
}

// decode makes a request of a frame's bytes behind the head. With alias, strings
// lie in b as []byte fields do.
func decode(h head, b []byte, alias bool) (kmsg.Request, []byte, error) {
	req := kmsg.RequestForKey(h.key)
	if req == nil {
		return nil, nil, fmt.Errorf("%w: unknown API key %d", errFrame, h.key)
	}
	req.SetVersion(h.version)
	id, body, err := skipHeader(b, req.IsFlexible())
	if err != nil {
		return nil, nil, err
	}
	read := req.ReadFrom
	if u, ok := req.(kmsg.UnsafeReadFrom); ok && alias {
		read = u.UnsafeReadFrom
	}
	if err := read(body); err != nil {
		return nil, nil, fmt.Errorf("%w: %s v%d: %w", errFrame, kmsg.NameForKey(h.key), h.version, err)
	}
	return req, id, nil
}
