package queue

import (
	"bytes"
	"fmt"
	"math"

	"github.com/RoaringBitmap/roaring/v2"

	"github.com/tube-mq/tube/internal/record"
)

// offsets is a set of offsets: roaring bitmaps, one for each 2³² of them. A
// million with holes in between take some 130 KiB, a range of any length a few bytes.
// The zero value is empty.
type offsets struct {
	// parts are in ascending order of high. Invariant: none is empty.
	parts []part
}

type part struct {
	high int64 // offset >> 32
	bits *roaring.Bitmap
}

func split(o record.Offset) (high int64, low uint32) { return int64(o) >> 32, uint32(o) }

func join(high int64, low int64) record.Offset { return record.Offset(high<<32 + low) }

// part finds the bitmap for a high half, or where it belongs.
func (s *offsets) part(high int64) (i int, ok bool) {
	for i < len(s.parts) && s.parts[i].high < high {
		i++
	}
	return i, i < len(s.parts) && s.parts[i].high == high
}

func (s *offsets) has(o record.Offset) bool {
	high, low := split(o)
	i, ok := s.part(high)
	return ok && s.parts[i].bits.Contains(low)
}

// add reports whether o is new.
func (s *offsets) add(o record.Offset) bool {
	high, low := split(o)
	return s.make(high).CheckedAdd(low)
}

func (s *offsets) make(high int64) *roaring.Bitmap {
	i, ok := s.part(high)
	if !ok {
		s.parts = append(s.parts, part{})
		copy(s.parts[i+1:], s.parts[i:])
		s.parts[i] = part{high, roaring.New()}
	}
	return s.parts[i].bits
}

// remove reports whether o was there.
func (s *offsets) remove(o record.Offset) bool {
	high, low := split(o)
	i, ok := s.part(high)
	if !ok || !s.parts[i].bits.CheckedRemove(low) {
		return false
	}
	s.dropEmpty(i)
	return true
}

func (s *offsets) dropEmpty(i int) {
	if s.parts[i].bits.IsEmpty() {
		s.parts = append(s.parts[:i], s.parts[i+1:]...)
	}
}

// removeBelow takes out all that is smaller than o and says how many.
func (s *offsets) removeBelow(o record.Offset) (n int64) {
	high, low := split(o)
	for len(s.parts) > 0 && s.parts[0].high < high {
		n += int64(s.parts[0].bits.GetCardinality())
		s.parts = s.parts[1:]
	}
	if len(s.parts) > 0 && s.parts[0].high == high {
		b := s.parts[0].bits
		if k := b.CardinalityInRange(0, uint64(low)); k > 0 {
			n += int64(k)
			b.RemoveRange(0, uint64(low))
			s.dropEmpty(0)
		}
	}
	return n
}

// next is the smallest member ≥ o; ok is false if there is none.
func (s *offsets) next(o record.Offset) (_ record.Offset, ok bool) {
	high, low := split(o)
	i, _ := s.part(high)
	for ; i < len(s.parts); i++ {
		p := s.parts[i]
		if p.high > high {
			low = 0
		}
		if v := p.bits.NextValue(low); v >= 0 {
			return join(p.high, v), true
		}
	}
	return 0, false
}

// nextAbsent is the smallest offset ≥ o that is no member.
func (s *offsets) nextAbsent(o record.Offset) record.Offset {
	for {
		high, low := split(o)
		i, ok := s.part(high)
		if !ok {
			return o
		}
		// Holes are mostly near. (Bitmap.NextAbsentValue is wrong in all containers but
		// the first, as of v2.30.0.)
		bits := s.parts[i].bits
		at := uint64(low)
		for range 64 {
			if at > math.MaxUint32 {
				break
			}
			if !bits.Contains(uint32(at)) {
				return join(high, int64(at))
			}
			at++
		}
		if it := bits.UnsetIterator(at, 1<<32); at <= math.MaxUint32 && it.HasNext() {
			return join(high, int64(it.Next()))
		}
		o = join(high+1, 0)
	}
}

func (s *offsets) count() (n int64) {
	for _, p := range s.parts {
		n += int64(p.bits.GetCardinality())
	}
	return n
}

// from is how many members are ≥ o.
func (s *offsets) from(o record.Offset) (n int64) {
	high, low := split(o)
	for _, p := range s.parts {
		switch {
		case p.high > high:
			n += int64(p.bits.GetCardinality())
		case p.high == high:
			n += int64(p.bits.CardinalityInRange(uint64(low), 1<<32))
		}
	}
	return n
}

// appendFrom appends the first of a set from an offset on, at most max, to a list.
func (s *offsets) appendFrom(list []record.Offset, from record.Offset, max int) []record.Offset {
	for o, ok := s.next(from); ok && max > 0; o, ok = s.next(o + 1) {
		list = append(list, o)
		max--
	}
	return list
}

func (s *offsets) empty() bool { return len(s.parts) == 0 }

// copyFrom makes s what t has from o on.
func (s *offsets) copyFrom(t *offsets, o record.Offset) {
	s.parts = nil
	for _, p := range t.parts {
		s.parts = append(s.parts, part{p.high, p.bits.Clone()})
	}
	s.removeBelow(o)
}

// uvarint parts; each: uvarint high, uvarint bytes, the bitmap in roaring's
// portable format, its containers in the smallest form: the same set gives the
// same bytes, whatever its history.
func (s *offsets) append(b []byte) []byte {
	b = appendUint(b, uint64(len(s.parts)))
	for _, p := range s.parts {
		p.bits.RunOptimize()
		data, err := p.bits.ToBytes()
		if err != nil {
			panic(fmt.Sprintf("queue: a bitmap in memory cannot be written: %v", err))
		}
		b = appendUint(b, uint64(p.high))
		b = appendBytes(b, data)
	}
	return b
}

func (s *offsets) restore(r *reader) {
	s.parts = nil
	for range r.count(2) {
		p := part{int64(r.uint()), roaring.New()}
		data := r.bytes(math.MaxInt)
		if r.err != nil {
			return
		}
		if p.high >= 1<<31 || len(s.parts) > 0 && p.high <= s.parts[len(s.parts)-1].high {
			r.fail("bitmaps out of order")
			return
		}
		read, err := p.bits.ReadFrom(bytes.NewReader(data))
		if err == nil && int(read) != len(data) {
			err = fmt.Errorf("%d bytes of %d belong to it", read, len(data))
		}
		if err == nil {
			err = p.bits.Validate()
		}
		if err == nil && p.bits.IsEmpty() {
			err = fmt.Errorf("it is empty")
		}
		if err != nil {
			r.fail("bitmap: %v", err)
			return
		}
		s.parts = append(s.parts, p)
	}
}
