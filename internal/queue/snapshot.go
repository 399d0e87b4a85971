package queue

import (
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/tube-mq/tube/internal/record"
)

// stateVersion is what a state is written as while it has no ids with a window that counts
// from when all groups are done (passing.go), windowsVersion otherwise: programs that do
// not know of that refuse the state, and go on reading others.
const (
	stateVersion   = 2
	windowsVersion = 3
)

// Append writes the state: the same one gives the same bytes. They are good for nothing
// if Err says so.
//
//	u8 version, clock ms, start, generations, delays, cancelled, ids,
//	groups in order: id, cursors by name: name, generation, seen ms, floor, acked, dead, lost,
//	done, suspects, dead offsets, failures by offset: offset, attempts, u8 final, due ms, records;
//	intents by id: id, data
func (s *State) Append(b []byte) []byte {
	version := byte(stateVersion)
	if s.ids.passing.inUse() {
		version = windowsVersion
	}
	b = append(b, version)
	b = appendUint(b, uint64(s.clockMillis))
	b = appendUint(b, uint64(s.start))
	b = appendUint(b, uint64(s.generations))
	b = s.delays.append(b)
	b = s.cancelled.append(b)
	b = s.ids.append(b)
	b = appendUint(b, uint64(len(s.groups)))
	for _, id := range slices.Sorted(maps.Keys(s.groups)) {
		g := s.groups[id]
		b = appendUint(b, uint64(id))
		b = appendUint(b, uint64(len(g.cursors)))
		for _, name := range slices.Sorted(maps.Keys(g.cursors)) {
			b = g.cursors[name].append(appendString(b, name))
		}
	}
	return s.appendIntents(b)
}

func (c *cursor) append(b []byte) []byte {
	b = appendUint(b, uint64(c.generation))
	for _, v := range []int64{c.seenMillis, int64(c.floor), c.acked, c.died, c.lost} {
		b = appendUint(b, uint64(v))
	}
	b = c.done.append(b)
	b = c.suspects.append(b)
	b = c.dead.append(b)
	b = appendUint(b, uint64(len(c.failures)))
	last := record.Offset(0)
	for _, o := range slices.Sorted(maps.Keys(c.failures)) {
		f := c.failures[o]
		b = appendUint(b, uint64(o-last))
		b = appendUint(b, uint64(f.attempts))
		b = append(b, bit(f.final))
		b = appendInt(b, f.dueMillis)
		b = appendUint(b, uint64(len(f.records)))
		for i := range f.records {
			b = f.records[i].append(b)
		}
		last = o
	}
	return b
}

// Restore reads what Append wrote, all of b. On an error there is no state. It swaps to
// swap, if that is not nil.
func Restore(b []byte, swap Swap) (*State, error) {
	r := &reader{b: b}
	version := r.byte()
	if r.err == nil && version != stateVersion && version != windowsVersion {
		return nil, fmt.Errorf("queue state of version %d, this program knows %d and %d", version, stateVersion, windowsVersion)
	}
	s := NewState()
	s.SwapTo(swap)
	s.clockMillis, s.start, s.generations = int64(r.uint()), r.offset(), r.uint32()
	s.delays.restore(r)
	s.cancelled.restore(r)
	s.ids.restore(r, version == windowsVersion)
	lastID := GroupID(0)
	for i := range r.count(2) {
		id := GroupID(r.uint())
		if i > 0 && id <= lastID {
			r.fail("groups out of order")
		}
		lastID = id
		g := &group{map[string]*cursor{}}
		lastName := ""
		for k := range r.count(8) {
			name := r.string(MaxMemberBytes)
			if k > 0 && name <= lastName {
				r.fail("cursors of group %d out of order", id)
			}
			lastName = name
			g.cursors[name] = s.restoreCursor(r)
			s.cursors++
		}
		s.groups[id] = g
	}
	s.restoreIntents(r)
	if s.clockMillis < 0 {
		r.fail("clock %d", s.clockMillis)
	}
	if s.ids.passing.floor > s.MinFloor() {
		r.fail("all groups are done below %d, and not below %d", s.ids.passing.floor, s.MinFloor())
	}
	if err := r.end(); err != nil {
		s.Release()
		return nil, err
	}
	return s, nil
}

func (s *State) restoreCursor(r *reader) *cursor {
	c := &cursor{generation: r.uint32(), seenMillis: int64(r.uint()), floor: r.offset(), acked: int64(r.uint()), died: int64(r.uint()), lost: int64(r.uint())}
	c.done.restore(r)
	c.suspects.restore(r)
	c.dead.restore(r)
	if first, ok := c.done.next(0); ok && first <= c.floor {
		r.fail("offset %d is done, the floor %d", first, c.floor)
	}
	if first, ok := c.suspects.next(0); ok && first < c.floor {
		r.fail("offset %d is a suspect, the floor %d", first, c.floor)
	}
	at := record.Offset(0)
	for i := range r.count(5) {
		delta := r.offset()
		if i > 0 && delta == 0 || delta > math.MaxInt64-at {
			r.fail("failures out of order")
		}
		at += delta
		f := &failure{}
		if n := r.uint(); n <= math.MaxInt32 {
			f.attempts = int32(n)
		} else {
			r.fail("%d attempts", n)
		}
		f.final, f.dueMillis = r.byte() != 0, r.int()
		n := r.count(4)
		if n > MaxRecords {
			r.fail("%d records of attempts, the limit is %d", n, MaxRecords)
		}
		for range n {
			if r.err != nil {
				break
			}
			a := r.attempt()
			f.records = append(f.records, a)
			s.recordBytes += a.sizeBytes()
		}
		if r.err != nil {
			break
		}
		if at < c.floor || c.done.has(at) {
			r.fail("failure of offset %d, which is done", at)
		}
		if c.failures == nil {
			c.failures = map[record.Offset]*failure{}
		}
		c.failures[at] = f
		s.failures++
	}
	return c
}
