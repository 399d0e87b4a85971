package wal

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// hole is a part of a damaged block that holds no sound record.
type hole struct {
	off, end int
	cause    error
}

// salvage replays every sound record between a damaged block's start and to,
// and names what is damaged between them: the group, if a hole can be shown to be
// one record of it, else nobody's, which is to be taken as anyone's. header is
// the block's if that is sound, and to its end then. A block whose header alone
// is damaged loses nothing.
//
// Invariant: what is neither replayed nor known to be padding is named.
func (s *scan) salvage(f *reader, from Position, to int64, header *block, cause error) error {
	b, err := f.at(from.Offset, int(to-from.Offset))
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("wal: read %s at %d: %w", fileName(from.File), from.Offset, err)
	}
	if err != nil {
		s.damage(Position{from.File, from.Offset + int64(len(b))}, nil, fmt.Errorf("the file is cut short, it went to offset %d", to))
	}
	if len(b) <= blockHeaderBytes {
		return nil
	}
	if header != nil {
		b = b[:min(len(b), header.length)]
	}
	sound, holes, end, err := s.soundRecords(b, from, header == nil)
	if err != nil {
		return err
	}
	one := header != nil && sound+len(holes) == header.records // each is one record
	for _, h := range holes {
		whose := b[h.off:h.end]
		if !one && !exact(b, h) {
			whose = nil
		}
		s.damage(Position{from.File, from.Offset + int64(h.off)}, whose, fmt.Errorf("%w (%w)", h.cause, cause))
	}
	switch {
	case len(holes) > 0:
	case header != nil && sound != header.records,
		header == nil && !wholeWithoutHeader(b, sound, end):
		s.damage(from, nil, cause)
	}
	return nil
}

// soundRecords replays the sound records in b, which begins with a block's
// header, and tells what is between them and where the last thing ends. padded:
// zeros up to b's end are padding.
func (s *scan) soundRecords(b []byte, from Position, padded bool) (sound int, holes []hole, end int, err error) {
	off := blockHeaderBytes
	for off < len(b) {
		if padded && zeros(b[off:]) {
			break
		}
		r, size, bad := parseRecord(b[off:], Position{from.File, from.Offset + int64(off)})
		if bad != nil {
			h := hole{off, nextRecord(b, from, off+8), bad}
			holes = append(holes, h)
			off = h.end
			continue
		}
		sound++
		s.rec.Records++
		if err := s.replay(r); err != nil {
			return sound, holes, off, err
		}
		off += size
	}
	return sound, holes, off, nil
}

// nextRecord finds the next sound record; len(b): none.
func nextRecord(b []byte, from Position, off int) int {
	for ; off+recordBytes <= len(b); off += 8 {
		if b[off+8] == 0 || int(binary.LittleEndian.Uint16(b[off+10:])) >= alignBytes {
			continue // no record's kind, or no gap's length behind it
		}
		if _, _, err := parseRecord(b[off:], Position{from.File, from.Offset + int64(off)}); err == nil {
			return off
		}
	}
	return len(b)
}

// exact reports whether a hole has the length that its first bytes, taken for a
// record's header, say: then it is that one record.
func exact(b []byte, h hole) bool {
	if h.end-h.off < recordBytes {
		return false
	}
	gap, n, err := extent(b[h.off:])
	if err != nil {
		return false
	}
	end := h.off + paddedBytes(gap, n)
	return end == h.end || h.end == len(b) && end < h.end && h.end-end < alignBytes && zeros(b[end:])
}

// wholeWithoutHeader reports whether the records found are all that a block had
// whose header is damaged: what is behind them is padding, and the header's
// count or its length, of which one damaged place leaves one, agrees.
func wholeWithoutHeader(b []byte, sound, end int) bool {
	if len(b)-end >= alignBytes || zeros(b[:blockHeaderBytes]) {
		return false
	}
	length, records := binary.LittleEndian.Uint32(b[40:]), binary.LittleEndian.Uint32(b[44:])
	return int(records) == sound || int(length) == end
}

func zeros(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}
