package kafka

import (
	"encoding/binary"
	"fmt"
)

// maxProduceParts is how many partitions, and how many topics, a produce request
// may name. A frame of 100 MiB has room for millions, for each of which the
// decoder would take memory.
const maxProduceParts = 100_000

// checkProduceShape walks over a produce request without keeping anything and
// refuses one with too many parts. Other damage is left to the decoder.
func checkProduceShape(version int16, frame []byte) error {
	flexible := version >= 9
	_, body, err := skipHeader(frame, flexible)
	if err != nil {
		return err
	}
	s := shape{b: body, flexible: flexible}
	if version >= 3 {
		s.skip(s.length(2)) // transactional id
	}
	s.skip(2 + 4) // acks, timeout
	topics := s.length(4)
	parts := 0
	for range topics {
		if version >= 13 {
			s.skip(16)
		} else {
			s.skip(s.length(2))
		}
		n := s.length(4)
		if parts += max(n, 0); topics > maxProduceParts || parts > maxProduceParts {
			return fmt.Errorf("%w: produce of %d topics and more than %d partitions", errFrame, topics, maxProduceParts)
		}
		for range n {
			s.skip(4)
			s.skip(s.length(4))
			s.tags()
		}
		if s.tags(); s.over {
			return nil
		}
	}
	return nil
}

// shape reads over a request; over is set when it ends too early.
type shape struct {
	b        []byte
	flexible bool
	over     bool
}

func (s *shape) skip(n int) {
	if n = max(n, 0); n > len(s.b) {
		s.b, s.over = nil, true
		return
	}
	s.b = s.b[n:]
}

func (s *shape) uvarint() int {
	v, n := binary.Uvarint(s.b)
	if n <= 0 || v > 1<<31 {
		s.b, s.over = nil, true
		return 0
	}
	s.b = s.b[n:]
	return int(v)
}

// length reads a length of width bytes, or a compact one; −1 is null. What is
// longer than what is left ends the walk.
func (s *shape) length(width int) int {
	n := 0
	switch {
	case s.flexible:
		n = s.uvarint() - 1
	case len(s.b) < width:
		s.over = true
	case width == 2:
		n = int(int16(binary.BigEndian.Uint16(s.b)))
		s.b = s.b[2:]
	default:
		n = int(int32(binary.BigEndian.Uint32(s.b)))
		s.b = s.b[4:]
	}
	if s.over || n > len(s.b) {
		s.b, s.over = nil, true
		return 0
	}
	return n
}

func (s *shape) tags() {
	if !s.flexible {
		return
	}
	for n := s.uvarint(); n > 0 && !s.over; n-- {
		s.uvarint()
		s.skip(s.uvarint())
	}
}
