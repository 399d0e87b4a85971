package peer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"time"

	"github.com/tube-mq/tube/internal/record"
)

const (
	headerBytes   = 9 // length, kind, CRC32C
	uncounted     = 4 // the length itself
	kindHeartbeat = 0

	// writeBytes is what one write hands to the system at most. It has a deadline
	// each, so the slowest peer that is put up with takes writeBytes in writeTimeout.
	writeBytes = 1 << 20
	maxVectors = 512
	// copyBytes is the size up to which a part is copied beside its header: a
	// vector for each costs more than the copy.
	copyBytes    = 4 << 10
	scratchBytes = 256 << 10

	// readBytes is the size of the buffers that connections are read into; frames
	// up to shareBytes are handed on where they lie in one. Larger ones are read
	// into their own, which begins with growBytes at the most.
	readBytes  = 256 << 10
	shareBytes = 64<<10 + 512
	growBytes  = 1 << 20
	// spaceBytes is the space below which reading goes on in another buffer.
	spaceBytes = 16 << 10
)

var (
	errDamaged   = errors.New("the CRC32C of a frame does not fit")
	errMalformed = errors.New("malformed frame")
)

// Frame is one message. Its parts, one after the other, are its body; they must
// not change until Release, which is called exactly once: after the write, or
// when the frame is dropped. Release may be nil.
type Frame struct {
	Kind    byte
	Parts   [][]byte
	Release func()
}

func (f *Frame) release() {
	if f.Release != nil {
		f.Release()
	}
}

func (f *Frame) bodyBytes() int {
	n := 0
	for _, p := range f.Parts {
		n += len(p)
	}
	return n
}

func putHeader(h []byte, kind byte, parts [][]byte) {
	n := headerBytes - uncounted
	h[4] = kind
	sum := crc32.Checksum(h[4:5], record.Castagnoli)
	for _, p := range parts {
		n += len(p)
		sum = crc32.Update(sum, record.Castagnoli, p)
	}
	binary.LittleEndian.PutUint32(h, uint32(n))
	binary.LittleEndian.PutUint32(h[5:], sum)
}

// frameWriter gathers frames and writes many of them at once.
type frameWriter struct {
	conn net.Conn
	// scratch holds headers and small parts. Invariant: it is never reallocated,
	// since vectors point into it; scratch[sealed:] is in no vector yet.
	scratch []byte
	sealed  int
	vectors net.Buffers
	bytes   int // in vectors and scratch, not written yet
}

func newFrameWriter(conn net.Conn) *frameWriter {
	return &frameWriter{conn: conn, scratch: make([]byte, 0, scratchBytes), vectors: make(net.Buffers, 0, maxVectors)}
}

// add takes a frame up; it may write.
func (w *frameWriter) add(kind byte, parts [][]byte) error {
	if err := w.makeRoom(headerBytes); err != nil {
		return err
	}
	at := len(w.scratch)
	w.scratch = w.scratch[:at+headerBytes]
	putHeader(w.scratch[at:], kind, parts)
	w.bytes += headerBytes
	for _, p := range parts {
		if len(p) <= copyBytes {
			if err := w.makeRoom(len(p)); err != nil {
				return err
			}
			w.scratch = append(w.scratch, p...)
			w.bytes += len(p)
			continue
		}
		if err := w.refer(p); err != nil {
			return err
		}
	}
	return nil
}

func (w *frameWriter) makeRoom(n int) error {
	if len(w.scratch)+n > cap(w.scratch) {
		return w.flush()
	}
	return nil
}

func (w *frameWriter) seal() {
	if w.sealed < len(w.scratch) {
		w.vectors = append(w.vectors, w.scratch[w.sealed:])
		w.sealed = len(w.scratch)
	}
}

func (w *frameWriter) refer(part []byte) error {
	for len(part) > 0 {
		if w.full() {
			if err := w.flush(); err != nil {
				return err
			}
		}
		w.seal()
		n := min(len(part), writeBytes-w.bytes)
		w.vectors = append(w.vectors, part[:n])
		w.bytes += n
		part = part[n:]
	}
	return nil
}

func (w *frameWriter) full() bool {
	return w.bytes >= writeBytes || len(w.vectors) >= maxVectors-2
}

func (w *frameWriter) flush() error {
	w.seal()
	if len(w.vectors) == 0 {
		return nil
	}
	if err := w.conn.SetWriteDeadline(time.Now().Add(writeTimeout)); err != nil {
		return err
	}
	rest := w.vectors // WriteTo moves its receiver, and clears what it points to
	_, err := rest.WriteTo(w.conn)
	w.vectors, w.scratch, w.sealed, w.bytes = w.vectors[:0], w.scratch[:0], 0, 0
	return err
}

// frameReader reads frames of a connection.
type frameReader struct {
	src      io.Reader
	maxBytes int // of a body

	// cur is what src is read into; cur.B[from:to] is not handed on yet. The
	// receivers of earlier frames may hold the bytes before that.
	cur      *record.Buffer
	from, to int
	// large is the buffer of the frame handed on last, if it has its own.
	large *record.Buffer
}

func newFrameReader(src io.Reader, maxBytes int) *frameReader {
	return &frameReader{src: src, maxBytes: maxBytes, cur: record.NewBuffer(readBytes)}
}

// next returns a frame. Body and buffer are the reader's until the next call; the
// caller retains the buffer to keep the body. io.EOF is an end between frames.
func (r *frameReader) next() (kind byte, buf *record.Buffer, body []byte, err error) {
	r.large.Release()
	r.large = nil
	if err := r.fill(headerBytes); err != nil {
		return 0, nil, nil, err
	}
	h := r.cur.B[r.from : r.from+headerBytes : r.from+headerBytes]
	counted, sum := binary.LittleEndian.Uint32(h), binary.LittleEndian.Uint32(h[5:])
	if counted < headerBytes-uncounted {
		return 0, nil, nil, fmt.Errorf("%w: length %d", errMalformed, counted)
	}
	size := int64(counted) - (headerBytes - uncounted)
	if size > int64(r.maxBytes) {
		return 0, nil, nil, fmt.Errorf("%w: %d bytes are more than the limit of %d", errMalformed, size, r.maxBytes)
	}
	kind = h[4]
	got := crc32.Checksum(h[4:5], record.Castagnoli)
	if headerBytes+size <= shareBytes {
		buf, body, err = r.share(int(size))
	} else {
		buf, body, err = r.own(int(size))
	}
	if err != nil {
		return 0, nil, nil, err
	}
	if got = crc32.Update(got, record.Castagnoli, body); got != sum {
		return 0, nil, nil, fmt.Errorf("%w: kind %d, %d bytes, %08x where the header says %08x", errDamaged, kind, size, got, sum)
	}
	return kind, buf, body, nil
}

// fill makes cur.B[from:to] hold n bytes at least.
func (r *frameReader) fill(n int) error {
	have := r.to - r.from
	if have >= n {
		return nil
	}
	if r.from+n > len(r.cur.B) || len(r.cur.B)-r.to < spaceBytes {
		b := record.NewBuffer(readBytes)
		copy(b.B, r.cur.B[r.from:r.to])
		r.cur.Release()
		r.cur, r.from, r.to = b, 0, have
	}
	read, err := io.ReadAtLeast(r.src, r.cur.B[r.to:], n-have)
	r.to += read
	if errors.Is(err, io.EOF) && have > 0 {
		err = io.ErrUnexpectedEOF
	}
	return err
}

// share hands on a body where it lies.
func (r *frameReader) share(size int) (*record.Buffer, []byte, error) {
	if err := r.fill(headerBytes + size); err != nil {
		return nil, nil, err
	}
	at := r.from + headerBytes
	r.from = at + size
	return r.cur, r.cur.B[at:r.from:r.from], nil
}

// own reads a body into a buffer of its own, which grows as the bytes come.
func (r *frameReader) own(size int) (*record.Buffer, []byte, error) {
	r.from += headerBytes
	r.large = record.NewBuffer(min(size, growBytes))
	got := copy(r.large.B, r.cur.B[r.from:r.to])
	r.from += got
	for {
		n, err := io.ReadFull(r.src, r.large.B[got:])
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return nil, nil, err
		}
		if got += n; got == size {
			return r.large, r.large.B, nil
		}
		b := record.NewBuffer(min(size, 4*got))
		copy(b.B, r.large.B)
		r.large.Release()
		r.large = b
	}
}

func (r *frameReader) close() {
	r.large.Release()
	r.cur.Release()
	r.large, r.cur = nil, nil
}
