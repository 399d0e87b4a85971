package queue

import "github.com/tube-mq/tube/internal/record"

// Candidate is a message that is not done, as the State knows it.
type Candidate struct {
	Offset    record.Offset
	Attempts  int  // deliveries that failed, counted
	Final     bool // never to be delivered again
	Suspect   bool // was lost together with others
	DueMillis int64
}

func (c *cursor) candidate(o record.Offset) Candidate {
	k := Candidate{Offset: o}
	if f := c.failures[o]; f != nil {
		k.Attempts, k.Final, k.DueMillis = int(f.attempts), f.final, f.dueMillis
	}
	k.Suspect = !c.suspects.empty() && c.suspects.has(o)
	return k
}

// Candidate is what is known of one message; ok is false if it is done, not there
// (end is the log's), or waits for its time.
func (s *State) Candidate(id GroupID, member string, o, end record.Offset) (_ Candidate, ok bool) {
	c := s.cursor(id, member)
	if c == nil || !c.open(o, end) || s.delays.due(o) != 0 {
		return Candidate{}, false
	}
	return c.candidate(o), true
}

// Fresh appends candidates from an offset on to a list, at most max, looking at no
// more than 16 times as many messages. next is where to go on. If it is lost which
// messages wait there are none.
func (s *State) Fresh(list []Candidate, id GroupID, member string, from, end record.Offset, max int) (fresh []Candidate, next record.Offset) {
	c := s.cursor(id, member)
	if c == nil {
		return list, from
	}
	o := from
	if o < c.floor {
		o = c.floor
	}
	end = min(end, c.floor+MaxSpan)
	plain := c.done.empty() && c.failures == nil && c.suspects.empty()
	given := len(list)
	defer func() {
		if s.Err() != nil {
			fresh, next = list[:given], end
		}
	}()
	walk := s.delays.walk(o)
	waits, more := walk.next()
	for looked := 0; o < end && len(list) < max && looked < 16*max; looked++ {
		if !plain {
			if o = c.done.nextAbsent(o); o >= end {
				return list, end
			}
		}
		for more && waits.Offset < o {
			waits, more = walk.next()
		}
		if more && waits.Offset == o {
			o++
			continue
		}
		if plain {
			list = append(list, Candidate{Offset: o})
		} else {
			list = append(list, c.candidate(o))
		}
		o++
	}
	return list, o
}

// IsDone says whether a group is done with a message.
func (s *State) IsDone(id GroupID, member string, o record.Offset) bool {
	c := s.cursor(id, member)
	return c != nil && (o < c.floor || c.done.has(o))
}

// Attempts are the records of a message's failed deliveries, and how many there were.
func (s *State) Attempts(id GroupID, member string, o record.Offset) (count int, records []Attempt) {
	if c := s.cursor(id, member); c != nil {
		if f := c.failures[o]; f != nil {
			return int(f.attempts), append([]Attempt(nil), f.records...)
		}
	}
	return 0, nil
}

// Counts of a cursor, in messages.
type Counts struct {
	Floor                     record.Offset // everything below is done
	Backlog                   int64         // not done
	Delayed                   int64         // of the backlog, not due yet since they were sent
	Failed                    int64         // of the backlog, failed before
	Suspects                  int64         // of the backlog, to be handed out alone
	Acknowledged, Dead, Lost  int64         // since the cursor began; lost to retention
	FailuresFull, CursorsFull bool          // a limit of the partition is reached
}

// Counts of a group's cursor; false: there is none.
func (s *State) Counts(id GroupID, member string, end record.Offset) (Counts, bool) {
	c := s.cursor(id, member)
	if c == nil {
		return Counts{}, false
	}
	return Counts{
		Floor: c.floor, Backlog: max(0, int64(end-c.floor)-c.done.count()),
		Delayed: s.delays.from(c.floor), Failed: int64(len(c.failures)), Suspects: c.suspects.count(),
		Acknowledged: c.acked, Dead: c.died, Lost: c.lost,
		FailuresFull: s.failures >= MaxFailures, CursorsFull: s.Full(),
	}, true
}

// Trace is what became of a message in one group, as far as the State knows.
type Trace struct {
	Done, Dead bool
	DueMillis  int64 // waits until then; 0: not
	Attempts   int
	Suspect    bool
	Records    []Attempt
	Cancelled  bool
}

// Trace follows a message; false: the group has no such cursor.
func (s *State) Trace(id GroupID, member string, o record.Offset) (Trace, bool) {
	c := s.cursor(id, member)
	if c == nil {
		return Trace{}, false
	}
	t := Trace{Done: o < c.floor || c.done.has(o), Dead: c.dead.has(o), Cancelled: s.cancelled.has(o)}
	if t.Done {
		return t, true
	}
	k := c.candidate(o)
	t.Attempts, t.DueMillis, t.Suspect = k.Attempts, k.DueMillis, k.Suspect
	if due := s.delays.due(o); due != 0 {
		t.DueMillis = due
	}
	_, t.Records = s.Attempts(id, member, o)
	return t, true
}
