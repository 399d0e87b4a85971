package queue

import (
	"maps"
	"slices"

	"github.com/tube-mq/tube/internal/record"
)

func (s *State) cursor(id GroupID, member string) *cursor {
	g := s.groups[id]
	if g == nil {
		return nil
	}
	return g.cursors[member]
}

// open begins a group or a member's cursor; what is there already stays.
func (s *State) open(o *Op, end record.Offset) {
	g := s.groups[o.Group]
	if g == nil {
		g = &group{map[string]*cursor{}}
		s.groups[o.Group] = g
	}
	if c := g.cursors[o.Member]; c != nil {
		c.seenMillis = max(c.seenMillis, s.clockMillis)
		return
	}
	if o.Offset < 0 || s.cursors >= MaxCursors {
		return
	}
	c := &cursor{seenMillis: s.clockMillis}
	g.cursors[o.Member] = c
	s.cursors++
	s.place(c, o.Offset, end)
}

// generation of a cursor; 0: there is none.
func (s *State) generation(id GroupID, member string) uint32 {
	if c := s.cursor(id, member); c != nil {
		return c.generation
	}
	return 0
}

// place puts a cursor at an offset, with nothing done but what was cancelled.
func (s *State) place(c *cursor, at, end record.Offset) {
	s.generations++
	c.generation = s.generations
	for o, f := range c.failures {
		s.forget(c, o, f)
	}
	c.suspects = offsets{}
	at = min(max(at, s.start), end)
	s.undone(at)
	c.floor = at
	c.done.copyFrom(&s.cancelled, c.floor)
	c.floor = c.done.nextAbsent(c.floor)
	c.done.removeBelow(c.floor)
}

func (s *State) seek(o *Op, end record.Offset) {
	g := s.groups[o.Group]
	if g == nil {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(g.cursors)) {
		if o.Member == "" || o.Member == name {
			s.place(g.cursors[name], o.Offset, end)
		}
	}
}

func (s *State) drop(id GroupID, member string) {
	g := s.groups[id]
	if g == nil {
		return
	}
	for name, c := range g.cursors {
		if member != "" && member != name {
			continue
		}
		for o, f := range c.failures {
			s.forget(c, o, f)
		}
		delete(g.cursors, name)
		s.cursors--
	}
	if member == "" {
		delete(s.groups, id)
	}
}

// Groups lists the groups of the partition, in order.
func (s *State) Groups() []GroupID { return slices.Sorted(maps.Keys(s.groups)) }

// GroupCount is how many groups the partition has.
func (s *State) GroupCount() int { return len(s.groups) }

// Has says whether the partition has a group's cursor; a member of "" asks for the
// group as such.
func (s *State) Has(id GroupID, member string) bool {
	g := s.groups[id]
	return g != nil && (member == "" || g.cursors[member] != nil)
}

// Members lists the broadcast members that have cursors, with when they were last
// seen (ms of the queue clock).
func (s *State) Members(id GroupID) map[string]int64 {
	out := map[string]int64{}
	if g := s.groups[id]; g != nil {
		for name, c := range g.cursors {
			if name != "" {
				out[name] = c.seenMillis
			}
		}
	}
	return out
}

// Full says that no further cursor can be opened.
func (s *State) Full() bool { return s.cursors >= MaxCursors }

// ClockMillis is the largest queue clock in the log: a new leader's must not be behind.
func (s *State) ClockMillis() int64 { return s.clockMillis }

// NextDueMillis is when to fire what waits for its time; 0: nothing does.
func (s *State) NextDueMillis() int64 { return s.delays.next() }

// DelayedCount is how many messages wait for their time.
func (s *State) DelayedCount() int { return s.delays.len() }

// DueMillis is when a message is due that waits for its time; 0: it does not.
func (s *State) DueMillis(o record.Offset) int64 { return s.delays.due(o) }

// Delayed lists messages that wait for their time, by offset from one on, at most max.
func (s *State) Delayed(from record.Offset, max int) []Delayed { return s.delays.list(from, max) }

// Start is where the log begins as the state knows it.
func (s *State) Start() record.Offset { return s.start }

// Floor is below which a group, all its members, is done with everything; −1: no
// such group here. The log may be cut up to the floors of all groups without loss.
func (s *State) Floor(id GroupID) record.Offset {
	g := s.groups[id]
	if g == nil {
		return -1
	}
	least := record.Offset(-1)
	for _, c := range g.cursors {
		if least < 0 || c.floor < least {
			least = c.floor
		}
	}
	return least
}

// Trim takes notice that the log begins at an offset, by an entry without a queue clock.
func (s *State) Trim(to record.Offset) Applied {
	var out Applied
	s.trimUnclocked(to, &out)
	return out
}
