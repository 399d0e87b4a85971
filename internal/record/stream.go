package record

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
)

var streamReaders = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, 32<<10) }}

// streamRecords decompresses a batch's records and calls each with every
// record's offset and time deltas, until it returns false. Keys and values are
// skipped over, so memory does not depend on the batch. A nil each only checks.
func streamRecords(b []byte, h Header, lim Limits, each func(offsetDelta int64, timeDeltaMillis int64) bool) error {
	body := b[HeaderBytes:]
	return decompress(h.Compression(), body, lim.decompressedBytes(len(body)), func(r io.Reader) error {
		br := streamReaders.Get().(*bufio.Reader)
		br.Reset(r)
		defer func() {
			br.Reset(nil)
			streamReaders.Put(br)
		}()
		s := recordStream{r: br}
		for i := range int64(h.Count) {
			if i >= int64(lim.MaxRecords) {
				return fmt.Errorf("%w: %d records, the limit is %d", ErrTooLarge, h.Count, lim.MaxRecords)
			}
			timeDelta, err := s.record(i)
			if err != nil {
				return s.fail(err, i, h.Count)
			}
			if each != nil && !each(i, timeDelta) {
				return nil
			}
		}
		if _, err := br.ReadByte(); err != io.EOF {
			if err == nil {
				err = errors.New("bytes behind the last record")
			}
			return s.fail(err, int64(h.Count), h.Count)
		}
		return nil
	})
}

// recordStream reads records' framing; left counts down the current one's bytes.
type recordStream struct {
	r    *bufio.Reader
	left int64
}

var errFraming = errors.New("lengths do not fit")

func (s *recordStream) fail(err error, i int64, count int32) error {
	if errors.Is(err, ErrTooLarge) {
		return err
	}
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("%w: record %d of %d: %w", ErrInvalid, i, count, err)
}

// ReadByte implements io.ByteReader over the current record.
func (s *recordStream) ReadByte() (byte, error) {
	if s.left--; s.left < 0 {
		return 0, errFraming
	}
	return s.r.ReadByte()
}

func (s *recordStream) skip(least int64) error {
	n, err := binary.ReadVarint(s)
	if err != nil {
		return err
	}
	if n < least || n > s.left {
		return errFraming
	}
	if n <= 0 {
		return nil
	}
	s.left -= n
	_, err = s.r.Discard(int(n))
	return err
}

func (s *recordStream) record(want int64) (timeDelta int64, err error) {
	s.left = binary.MaxVarintLen64
	length, err := binary.ReadVarint(s)
	if err != nil {
		return 0, err
	}
	if length < 0 {
		return 0, errFraming
	}
	s.left = length
	if _, err = s.ReadByte(); err != nil { // attributes
		return 0, err
	}
	if timeDelta, err = binary.ReadVarint(s); err != nil {
		return 0, err
	}
	delta, err := binary.ReadVarint(s)
	if err != nil {
		return 0, err
	}
	if delta != want {
		return 0, fmt.Errorf("offset delta %d", delta)
	}
	return timeDelta, s.content()
}

func (s *recordStream) content() error {
	if err := s.skip(-1); err != nil { // key
		return err
	}
	if err := s.skip(-1); err != nil { // value
		return err
	}
	headers, err := binary.ReadVarint(s)
	if err != nil {
		return err
	}
	if headers < 0 || headers > s.left {
		return errFraming
	}
	for range headers {
		if err := s.skip(0); err != nil {
			return err
		}
		if err := s.skip(-1); err != nil {
			return err
		}
	}
	if s.left != 0 {
		return errFraming
	}
	return nil
}
