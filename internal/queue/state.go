package queue

import (
	"maps"
	"math"
	"slices"

	"github.com/tube-mq/tube/internal/record"
)

// Limits of one partition's state. What keeps them is named with each.
const (
	// MaxFailures is how many messages that failed may wait to be tried again, over
	// all groups of the partition: at it, desks hand out no new ones. Some 100 bytes each.
	MaxFailures = 500_000
	// MaxRecordBytes of attempts' records are kept: beyond it, and beyond the last
	// MaxRecords of a message, they are not.
	MaxRecordBytes = 64 << 20
	MaxRecords     = 32
	// MaxCursors is how many cursors there may be, of groups and of broadcast members:
	// desks open no more. Some 200 bytes each, and what is not done in order.
	MaxCursors = 100_000
	// MaxDead is how many of the latest dead messages a cursor knows by offset.
	MaxDead = 100_000
	// MaxSpan is how far a group may be ahead of its first message that is not done:
	// desks hand out nothing beyond.
	MaxSpan = 1 << 34
)

// State is the replicated half of a partition's queue groups. It depends on the log
// alone: the same commands and batches give the same state, and the same bytes of it.
// It is owned by the partition's machine.
type State struct {
	clockMillis int64 // the largest queue clock in the log
	start       record.Offset
	groups      map[GroupID]*group
	delays      delays
	cancelled   offsets // from start on: what groups that begin later leave out
	ids         ids

	generations uint32 // given to cursors, so that no two of them have the same
	cursors     int    // of all groups
	failures    int    // likewise
	recordBytes int

	intents       map[string][]byte // by id; see intents.go
	intendedBytes int
}

// group is a queue group of this partition.
type group struct {
	// cursors by member; that of a group which shares has the name "".
	cursors map[string]*cursor
}

// cursor is what one reader, a group or a broadcast member, is done with.
type cursor struct {
	// generation is another one after each seek: what was begun before it does not count.
	generation uint32
	seenMillis int64 // of a broadcast member
	// floor: everything below is done. done: what is at or above and done.
	// Invariant: floor is not in done.
	floor record.Offset
	done  offsets
	// suspects and failures are not done. Invariant: none is below floor.
	suspects offsets
	failures map[record.Offset]*failure
	dead     offsets // the latest of them, from the log's start on

	acked, died, lost int64 // messages, since the cursor began
}

// failure is what is known of a message that failed.
type failure struct {
	attempts  int32 // counted
	final     bool  // never again
	dueMillis int64
	records   []Attempt // the latest MaxRecords
}

// NewState is the state of a partition that has no groups.
func NewState() *State { return &State{groups: map[GroupID]*group{}} }

// Applied is what a command or a batch changed that others must hear of.
type Applied struct {
	Fired []record.Offset // messages whose time has come, in the order of time
	Lost  []Lost          // groups that lost messages to retention
}

// Lost says that a group's messages went with the log's start before they were done.
type Lost struct {
	Group  GroupID
	Member string
	Count  int64         // of messages
	Before record.Offset // the log begins here
}

// Apply carries out a command (see AppendCommand); end is the log's end. It is
// deterministic and never refuses an op: what does not fit the state changes nothing.
func (s *State) Apply(command []byte, end record.Offset) (Applied, error) {
	clock, ops, err := ParseCommand(command)
	if err != nil {
		return Applied{}, err
	}
	var out Applied
	s.pass(clock)
	s.clockMillis = max(s.clockMillis, clock)
	for i := range ops {
		s.apply(&ops[i], end, &out)
	}
	out.Fired = s.delays.fire(s.clockMillis)
	return out, nil
}

func (s *State) apply(o *Op, end record.Offset, out *Applied) {
	switch o.Kind {
	case OpOpen:
		s.open(o, end)
	case OpDrop:
		s.drop(o.Group, o.Member)
	case OpSeek:
		s.seek(o, end)
	case OpCancel:
		s.cancel(o.Offsets)
	case OpMove:
		s.delays.move(o.Offset, max(o.DueMillis, 1))
	case OpIntend:
		s.intend(o.Member, o.Data)
	case OpIntended:
		s.intended(o.Member)
	case OpTrim:
		s.trim(min(o.Offset, end), out)
	default:
		if c := s.cursor(o.Group, o.Member); c != nil && (o.Generation == 0 || o.Generation == c.generation) {
			s.settle(c, o, end)
		}
	}
}

// settle carries out the ops that concern messages of one cursor.
func (s *State) settle(c *cursor, o *Op, end record.Offset) {
	switch o.Kind {
	case OpAck:
		for _, at := range o.Offsets {
			if s.finish(c, at, end) {
				c.acked++
			}
		}
	case OpDead:
		for _, at := range o.Offsets {
			if s.finish(c, at, end) {
				c.died++
				c.dead.add(at)
			}
		}
		for c.dead.count() > MaxDead {
			first, _ := c.dead.next(0)
			c.dead.remove(first)
		}
	case OpSuspect:
		for _, at := range o.Offsets {
			if c.open(at, end) {
				c.suspects.add(at)
			}
		}
	case OpFail:
		if c.open(o.Offset, end) {
			s.fail(c, o)
		}
	case OpRetry:
		if f := c.failures[o.Offset]; f != nil {
			s.forget(c, o.Offset, f)
		}
	}
}

// open says that there is such a message and that it is not done.
func (c *cursor) open(o, end record.Offset) bool {
	return o >= c.floor && o < end && o-c.floor < MaxSpan && !c.done.has(o)
}

// finish marks a message as done and reports whether it was not.
func (s *State) finish(c *cursor, o, end record.Offset) bool {
	if !c.open(o, end) {
		return false
	}
	c.suspects.remove(o)
	if f := c.failures[o]; f != nil {
		s.forget(c, o, f)
	}
	if o != c.floor {
		c.done.add(o)
		return true
	}
	c.floor++
	if !c.done.empty() {
		c.floor = c.done.nextAbsent(c.floor)
		c.done.removeBelow(c.floor)
	}
	return true
}

func (s *State) fail(c *cursor, o *Op) {
	f := c.failures[o.Offset]
	if f == nil {
		f = &failure{}
		if c.failures == nil {
			c.failures = map[record.Offset]*failure{}
		}
		c.failures[o.Offset] = f
		s.failures++
	}
	f.attempts++
	f.final = f.final || o.Final
	f.dueMillis = o.DueMillis
	if o.Attempt.Member != "" || o.Attempt.Reason != "" {
		s.note(f, o.Attempt)
	}
}

// note keeps the record of an attempt, within the limits.
func (s *State) note(f *failure, a Attempt) {
	if len(f.records) == MaxRecords {
		s.recordBytes -= f.records[0].sizeBytes()
		f.records = slices.Delete(f.records, 0, 1)
	}
	if s.recordBytes+a.sizeBytes() > MaxRecordBytes {
		return
	}
	s.recordBytes += a.sizeBytes()
	f.records = append(f.records, a)
}

func (a *Attempt) sizeBytes() int { return 64 + len(a.Member) + len(a.Address) + len(a.Reason) }

func (s *State) forget(c *cursor, o record.Offset, f *failure) {
	for i := range f.records {
		s.recordBytes -= f.records[i].sizeBytes()
	}
	delete(c.failures, o)
	s.failures--
	if len(c.failures) == 0 {
		c.failures = nil
	}
}

// trim takes notice that the log begins at an offset. What groups were not done
// with is lost, and told.
func (s *State) trim(to record.Offset, out *Applied) {
	if to <= s.start {
		return
	}
	s.start = to
	s.delays.removeBelow(to)
	s.cancelled.removeBelow(to)
	for of, c := range s.inOrder {
		c.dead.removeBelow(to)
		if c.floor >= to {
			continue
		}
		lost := c.undoneBelow(to)
		s.moveFloor(c, to)
		if lost > 0 {
			c.lost += lost
			out.Lost = append(out.Lost, Lost{of.Group, of.Member, lost, to})
		}
	}
}

// cursorKey names a cursor.
type cursorKey struct {
	Group  GroupID
	Member string
}

// inOrder goes through all cursors by group and name.
func (s *State) inOrder(yield func(cursorKey, *cursor) bool) {
	for _, id := range slices.Sorted(maps.Keys(s.groups)) {
		g := s.groups[id]
		for _, name := range slices.Sorted(maps.Keys(g.cursors)) {
			if !yield(cursorKey{id, name}, g.cursors[name]) {
				return
			}
		}
	}
}

// undoneBelow is how many messages below an offset are not done.
func (c *cursor) undoneBelow(to record.Offset) int64 {
	return max(0, int64(to-c.floor)-(c.done.count()-c.done.from(to)))
}

// WouldLose are the cursors that lose messages if the log begins at an offset: what a
// trim would tell.
func (s *State) WouldLose(to record.Offset) []Lost {
	var out []Lost
	if to <= s.start || to <= s.MinFloor() {
		return nil
	}
	for of, c := range s.inOrder {
		if n := c.undoneBelow(to); n > 0 {
			out = append(out, Lost{of.Group, of.Member, n, to})
		}
	}
	return out
}

// moveFloor gives up everything below an offset.
func (s *State) moveFloor(c *cursor, to record.Offset) {
	c.floor = to
	c.done.removeBelow(to)
	c.suspects.removeBelow(to)
	for o, f := range c.failures {
		if o < to {
			s.forget(c, o, f)
		}
	}
	c.floor = c.done.nextAbsent(to)
	c.done.removeBelow(c.floor)
}

// MinFloor is below which every group is done with everything.
func (s *State) MinFloor() record.Offset {
	least := record.Offset(math.MaxInt64)
	for _, g := range s.groups {
		for _, c := range g.cursors {
			least = min(least, c.floor)
		}
	}
	return least
}

func (s *State) cancel(list []record.Offset) {
	for _, o := range list {
		if !s.delays.move(o, 0) {
			continue
		}
		s.cancelled.add(o)
		s.suppress(o)
	}
}

// suppress makes a message done for all groups.
func (s *State) suppress(o record.Offset) {
	for _, g := range s.groups {
		for _, c := range g.cursors {
			s.finish(c, o, o+1)
		}
	}
}
