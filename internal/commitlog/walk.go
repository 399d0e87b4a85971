package commitlog

import (
	"errors"
	"fmt"
	"io"

	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/vfs"
)

// walkWindowBytes is how much of a segment a walk reads at once.
const walkWindowBytes = 256 << 10

// walk goes over the batches of a segment's file from pos, where offset next
// begins, to sizeBytes, or until visit returns false. Each must begin where the
// one before ends, carry the next offset and no older leader epoch; with verify
// its CRC must fit too.
// It returns how far it got; the error is a *CorruptError.
func walk(f vfs.File, file string, pos int64, next record.Offset, sizeBytes int64, verify bool, visit func(h record.Header, pos int64) bool) (int64, record.Offset, error) {
	w := window{f: f, sizeBytes: sizeBytes}
	defer w.close()
	epoch := record.Epoch(-1)
	for pos < sizeBytes {
		b, err := w.at(pos, record.HeaderBytes)
		if err != nil {
			return pos, next, &CorruptError{file, pos, err}
		}
		h, err := headerAt(b, next, sizeBytes-pos)
		if err == nil && h.LeaderEpoch < epoch {
			err = fmt.Errorf("%w: %d behind %d", errEpoch, h.LeaderEpoch, epoch)
		}
		if err == nil && verify {
			if b, err = w.at(pos, h.SizeBytes()); err == nil {
				_, err = record.Verify(b)
			}
		}
		if err != nil {
			return pos, next, &CorruptError{file, pos, err}
		}
		if !visit(h, pos) {
			break
		}
		pos += int64(h.SizeBytes())
		next, epoch = h.NextOffset(), h.LeaderEpoch
	}
	return pos, next, nil
}

// headerAt decodes the header of the batch that must begin b with offset next
// and fit into leftBytes.
func headerAt(b []byte, next record.Offset, leftBytes int64) (record.Header, error) {
	h, err := record.ParseHeader(b)
	switch {
	case err != nil:
		return h, err
	case h.BaseOffset != next:
		return h, fmt.Errorf("%w: base offset %d where %d must be", record.ErrCorrupt, h.BaseOffset, next)
	case h.LastOffsetDelta < 0:
		return h, fmt.Errorf("%w: last offset delta %d", record.ErrCorrupt, h.LastOffsetDelta)
	case int64(h.SizeBytes()) > leftBytes:
		return h, fmt.Errorf("%w: a batch of %d bytes, %d are left", record.ErrCorrupt, h.SizeBytes(), leftBytes)
	}
	return h, nil
}

// window is a part of a file in memory.
type window struct {
	f         vfs.File
	sizeBytes int64
	buf       *record.Buffer
	pos       int64
}

func (w *window) close() {
	w.buf.Release()
	w.buf = nil
}

// at returns n bytes of the file from pos on, valid until the next call.
func (w *window) at(pos int64, n int) ([]byte, error) {
	if pos+int64(n) > w.sizeBytes {
		return nil, fmt.Errorf("%w: ends within a batch", record.ErrCorrupt)
	}
	if w.buf == nil || pos < w.pos || pos+int64(n) > w.pos+int64(len(w.buf.B)) {
		w.buf.Release()
		w.buf = record.NewBuffer(int(min(max(int64(n), walkWindowBytes), w.sizeBytes-pos)))
		w.pos = pos
		if err := readFull(w.f, w.buf.B, pos); err != nil {
			w.close()
			return nil, err
		}
	}
	at := int(pos - w.pos)
	return w.buf.B[at : at+n], nil
}

// readFull reads all of b from pos on; less is an error, as the size was known.
func readFull(f vfs.File, b []byte, pos int64) error {
	n, err := f.ReadAt(b, pos)
	if n == len(b) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("read of %d bytes gave %d: %w", len(b), n, err)
}
