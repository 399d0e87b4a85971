package bench

import (
	"encoding/binary"
	"fmt"
	"io"
)

// nullProduceVersion is the highest Produce that the null broker takes: the last
// one before flexible encoding, which is quicker to take apart by hand. Requests
// of versions 3 to 8 look alike.
const nullProduceVersion = 7

// produce takes a Produce request apart while it comes in. Records are read and
// dropped, never gathered.
//
//	client id, transactional id: string; acks: int16; timeout: int32
//	[topic: string, [partition: int32, records: bytes]]
func (n *nullConn) produce(restBytes int64) error {
	r := nullReader{in: n.in, left: restBytes}
	r.skipString()
	r.skipString()
	acks := r.int16()
	r.int32()
	topics := r.count()
	n.reply = binary.BigEndian.AppendUint32(n.reply, uint32(topics))
	for range topics {
		n.reply = r.copyString(n.reply)
		partitions := r.count()
		n.reply = binary.BigEndian.AppendUint32(n.reply, uint32(partitions))
		for range partitions {
			n.reply = binary.BigEndian.AppendUint32(n.reply, uint32(r.int32()))
			r.skip(int64(r.int32()))
			n.reply = append(n.reply, nullPartitionAnswer[:]...)
			if r.err != nil {
				return r.err
			}
		}
	}
	r.skip(r.left)
	if r.err != nil || acks == 0 {
		return r.err
	}
	n.reply = append(n.reply, 0, 0, 0, 0) // throttle
	return n.send()
}

// nullPartitionAnswer is what follows the partition: error 0, base offset 0, no
// append time, log start 0. Nothing is counted, as the client does not look at it.
var nullPartitionAnswer = func() (a [2 + 8 + 8 + 8]byte) {
	for i := 10; i < 18; i++ {
		a[i] = 0xff
	}
	return a
}()

// nullReader reads the fields of one request from a stream. After an error it
// reads zeros; who uses it looks at err before it loops on.
type nullReader struct {
	in interface {
		io.Reader
		Peek(int) ([]byte, error)
		Discard(int) (int, error)
	}
	left int64 // bytes of the request not yet read
	err  error
}

func (r *nullReader) next(size int) []byte {
	if r.err == nil && int64(size) > r.left {
		r.err = fmt.Errorf("%w: field past its end", errNullFrame)
	}
	if r.err != nil {
		return make([]byte, size)
	}
	b, err := r.in.Peek(size)
	if err != nil {
		r.err = err
		return make([]byte, size)
	}
	_, r.err = r.in.Discard(size)
	r.left -= int64(size)
	return b
}

func (r *nullReader) int16() int16 { return int16(binary.BigEndian.Uint16(r.next(2))) }
func (r *nullReader) int32() int32 { return int32(binary.BigEndian.Uint32(r.next(4))) }

// count reads an array's length; each element has at least four bytes.
func (r *nullReader) count() int32 {
	c := r.int32()
	if r.err == nil && (c < 0 || int64(c)*4 > r.left) {
		r.err = fmt.Errorf("%w: array of %d", errNullFrame, c)
	}
	if r.err != nil {
		return 0
	}
	return c
}

// skip drops size bytes; a negative size, which means null, drops none.
func (r *nullReader) skip(size int64) {
	if size <= 0 || r.err != nil {
		return
	}
	if size > r.left {
		r.err = fmt.Errorf("%w: field past its end", errNullFrame)
		return
	}
	_, r.err = r.in.Discard(int(size))
	r.left -= size
}

func (r *nullReader) skipString() { r.skip(int64(r.int16())) }

// copyString appends the string's wire form to dst.
func (r *nullReader) copyString(dst []byte) []byte {
	size := r.int16()
	dst = binary.BigEndian.AppendUint16(dst, uint16(size))
	if size <= 0 {
		return dst
	}
	return append(dst, r.next(int(size))...)
}
