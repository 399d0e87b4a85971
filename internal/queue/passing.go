package queue

import (
	"sort"

	"github.com/tube-mq/tube/internal/record"
)

// passing takes note of when the floor of all groups passed messages whose ids are
// remembered: an id's window counts from then, too.
//
// The floor of all groups is looked for in all cursors. That is not for every entry, so it
// is done once in a step, a 32nd of the window, and before an entry changes anything: what
// has passed by then did so at the log's clock at the latest, and at most a step earlier.
// So an id is remembered for its window at least, and for a 32nd of it longer at most.
// *Rejected*: marks of floors and times, which a list of ids in the order of their offsets
// makes needless: what a mark would say is written to the ids that it is about, once.
//
// A cursor that is opened or set back makes messages undone again; those of their ids that
// are remembered wait for it as if it had always been there. A group that is deleted is
// done with everything at that moment. Without any cursor only the sending counts.
//
// The zero value is not in use: no id came with a window that counts from then.
type passing struct {
	// leastMillis is the smallest such window since there were no ids; 0: not in use.
	leastMillis int64
	// floor: below it every group is done, and ids know since when.
	// Invariant: it is not beyond MinFloor.
	floor record.Offset
	// lookedMillis is the clock of the entry before which the floor was looked for last.
	lookedMillis int64
	// unclocked: floors have moved with an entry that bears no queue clock, later than the
	// log's clock says.
	unclocked bool
}

// leastStepMillis is how often the floor of all groups is looked for at most.
const leastStepMillis = 100

func (p *passing) inUse() bool { return p.leastMillis > 0 }

func (p *passing) stepMillis() int64 { return max(p.leastMillis/32, leastStepMillis) }

// pass takes note of what every group is done with. It is called before an entry with
// a clock changes anything.
func (s *State) pass(clockMillis int64) {
	p := &s.ids.passing
	if !p.inUse() || !p.unclocked && clockMillis-p.lookedMillis <= p.stepMillis() {
		return
	}
	at := s.clockMillis
	if p.unclocked {
		at = max(at, clockMillis)
	}
	s.ids.passed(s.MinFloor(), at)
	p.lookedMillis, p.unclocked = max(s.clockMillis, clockMillis), false
}

// passed: at a time at the latest every group was done below an offset.
func (s *ids) passed(floor record.Offset, atMillis int64) {
	known := s.order[s.head:]
	from := sort.Search(len(known), func(i int) bool { return known[i].offset >= s.passing.floor })
	for i := from; i < len(known) && known[i].offset < floor; i++ {
		if e := &known[i]; e.afterMillis > 0 {
			e.untilMillis = max(e.untilMillis, atMillis+e.afterMillis)
		}
	}
	s.passing.floor = floor
}

// until is how long an id is remembered at least if every group is done with its message.
func (s *ids) until(e knownID, clockMillis int64) int64 {
	if e.afterMillis == 0 || e.offset < s.passing.floor {
		return e.untilMillis
	}
	return max(e.untilMillis, clockMillis+e.afterMillis)
}

// follow begins to look, if this is the first id that needs it.
func (s *State) follow(afterMillis int64) {
	p := &s.ids.passing
	switch {
	case afterMillis == 0:
	case !p.inUse():
		*p = passing{leastMillis: afterMillis, floor: s.MinFloor(), lookedMillis: s.clockMillis}
	default:
		p.leastMillis = min(p.leastMillis, afterMillis)
	}
}

// undone: a cursor is about to be put at an offset. What need not be remembered by now is
// forgotten first, so that it does not depend on how far forgetting has come.
func (s *State) undone(at record.Offset) {
	p := &s.ids.passing
	if !p.inUse() || at >= p.floor {
		return
	}
	if s.ids.expire(s.clockMillis, p.floor); p.inUse() {
		p.floor = at
	}
}

// trimUnclocked is trim by an entry that bears no queue clock.
func (s *State) trimUnclocked(to record.Offset, out *Applied) {
	p := &s.ids.passing
	if !p.inUse() {
		s.trim(to, out)
		return
	}
	if !p.unclocked {
		s.ids.passed(s.MinFloor(), s.clockMillis)
	}
	s.trim(to, out)
	p.unclocked = p.unclocked || s.MinFloor() > p.floor
}

// least ms, floor, looked ms, u8 unclocked
func (p *passing) append(b []byte) []byte {
	b = appendUint(b, uint64(p.leastMillis))
	b = appendUint(b, uint64(p.floor))
	b = appendUint(b, uint64(p.lookedMillis))
	return append(b, bit(p.unclocked))
}

func (p *passing) restore(r *reader) {
	*p = passing{leastMillis: int64(r.uint()), floor: r.offset(), lookedMillis: int64(r.uint()), unclocked: r.byte() != 0}
	if !p.inUse() || p.lookedMillis < 0 {
		r.fail("ids with a window of %d ms, looked at %d", p.leastMillis, p.lookedMillis)
	}
}
