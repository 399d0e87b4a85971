package queue

import "github.com/tube-mq/tube/internal/record"

// Known says which records of a batch carry ids of messages that are here already, by
// the annexe's clock. It is part of applying the batch's entry, whether the batch is
// stored then (Batch) or not.
func (s *State) Known(a *Annexe) []Repeat {
	s.pass(a.ClockMillis)
	var repeats []Repeat
	now := max(s.clockMillis, a.ClockMillis)
	floor := record.Offset(-1)
	for _, id := range a.IDs {
		e, ok := s.ids.find(id.Hash)
		if !ok {
			continue
		}
		if now > e.untilMillis {
			if floor < 0 {
				floor = s.MinFloor()
			}
			if s.ids.stale(e, now, s.clockMillis, floor) {
				continue
			}
		}
		repeats = append(repeats, Repeat{id.Delta, e.offset})
	}
	return repeats
}

// FindID is the offset of the message that came with an id, while it is remembered.
func (s *State) FindID(h MessageHash) (record.Offset, bool) {
	e, ok := s.ids.find(h)
	return e.offset, ok
}

// Batch takes what a batch that was stored at base brings along. repeats are the
// records that queue groups do not get, as their ids are known.
func (s *State) Batch(a *Annexe, base record.Offset, repeats []Repeat) Applied {
	skip := map[int32]bool{}
	for _, r := range repeats {
		skip[r.Delta] = true
	}
	var out Applied
	for _, d := range a.Delays {
		if !skip[d.Delta] && d.DueMillis > a.ClockMillis {
			s.delays.add(base+record.Offset(d.Delta), d.DueMillis)
		}
	}
	s.pass(a.ClockMillis)
	s.clockMillis = max(s.clockMillis, a.ClockMillis)
	out.Fired = s.delays.fire(s.clockMillis)
	before := s.ids.len()
	for _, id := range a.IDs {
		if !skip[id.Delta] {
			s.follow(a.AfterMillis)
			s.ids.add(knownID{id.Hash, base + record.Offset(id.Delta), s.clockMillis + a.WindowMillis, a.AfterMillis})
		}
	}
	// Looking for the floor of all groups is not for every batch with ids; one
	// without says that they may have been switched off.
	if n := s.ids.len(); n/64 != before/64 || n > 0 && len(a.IDs) == 0 {
		s.ids.expire(s.clockMillis, s.MinFloor())
	}
	for _, r := range repeats {
		o := base + record.Offset(r.Delta)
		s.cancelled.add(o)
		s.suppress(o)
	}
	return out
}
