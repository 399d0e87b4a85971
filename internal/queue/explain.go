package queue

import (
	"fmt"
	"slices"

	"github.com/tube-mq/tube/internal/record"
)

// blocked is what stopped a Take.
type blocked uint8

const (
	free blocked = iota
	noCredit
	looked
	nothingNew
	paused
	inFlight
	rateMessages
	rateBytes
	handExclusive
	handDrains
	avoidsMember
	keysFull
	failuresFull
	spanFull
	unreadable
)

// Reasons why nothing moves in a partition of a group, for programs.
const (
	ReasonMoving      = "moving"
	ReasonNothing     = "nothing_new"
	ReasonNoConsumer  = "no_consumer"
	ReasonNoCredit    = "no_credit"
	ReasonPaused      = "paused"
	ReasonLeased      = "all_leased"
	ReasonInFlight    = "in_flight_limit"
	ReasonRate        = "rate"
	ReasonWaiting     = "waiting_for_due_time"
	ReasonKey         = "key_blocked"
	ReasonParked      = "key_parked"
	ReasonSuspects    = "suspects"
	ReasonDeadLetters = "dead_letters_not_written"
	ReasonStorage     = "unreadable"
	ReasonFailures    = "too_many_failures"
	ReasonFilter      = "filter"
	ReasonNoCursor    = "not_opened"
)

// Explanation says why a group does or does not move in one partition.
type Explanation struct {
	Partition record.Partition
	Member    string // of a broadcast group: whose cursor
	Reason    string // one of the constants
	Sentence  string // the same for people
	Counts
	Ready        int64 // could be handed out now
	Leased       int64
	Waiting      int64 // to be tried again later
	HeldBack     int64 // behind their keys
	Dying        int64 // dead letters to be written
	Parked       int64 // dead, kept for their keys' sake
	Filtered     int64 // left out by the filter since this leader began
	Consumers    int   // sessions seen in the last minute, on this node
	Receivers    int   // that wait for messages now
	NextMillis   int64 // wall clock, about: when something is due; 0: nothing is
	BlockedBy    record.Offset
	OldestLease  *Pending // of a key that is blocked: its owner's, if it is in hand
	FilterErrors int64    // of Filtered: the filter failed
}

// Pending is a message that was handed out or failed, and is not done.
type Pending struct {
	Partition   record.Partition
	Offset      record.Offset
	Status      string        // leased, asked, settling, waiting, ready, suspect, dying, parked, blocked
	Attempts    int           // that failed, counted
	DueMillis   int64         // of one that waits
	BlockedBy   record.Offset // the message of the same key that it waits for; −1: none
	Member      string
	Address     string
	Session     string
	LeaseID     string
	SinceMillis int64
	UntilMillis int64
	Records     []Attempt
}

// Explain says why nothing moves. waiting is how many receivers wait on this node.
func (d *Desk) Explain(nowMillis int64, waiting int) Explanation {
	e := Explanation{Partition: d.cfg.Partition, Member: d.cfg.Member, Receivers: waiting, BlockedBy: -1}
	var found bool
	end := d.cfg.Source.End()
	d.cfg.Read(func(s *State) { e.Counts, found = s.Counts(d.cfg.Group, d.cfg.Member, end) })
	if !found {
		e.Reason, e.Sentence = ReasonNoCursor, "the group has not begun in this partition yet"
		return e
	}
	e.Leased, e.Waiting = int64(d.leases.count), d.waits.count()+d.unseenWaits(nowMillis, end)
	e.Dying, e.Parked, e.Filtered = d.dying.count(), d.parked.count(), d.filtered
	if d.keys != nil {
		e.HeldBack = int64(d.keys.held)
	}
	e.Ready = max(0, e.Backlog-e.Leased-e.Waiting-e.Delayed-e.HeldBack-e.Dying-e.Parked)
	for _, h := range d.cfg.Hands.bySession {
		if nowMillis-h.seenMillis < forgetHandMillis || h.count > 0 {
			e.Consumers++
		}
	}
	e.NextMillis = d.DeadlineMillis()
	if l := d.leases.ending(); l != nil {
		p := d.pendingLease(l)
		e.OldestLease = &p
	}
	if e.NextMillis == 0 && e.Delayed > 0 {
		d.cfg.Read(func(s *State) { e.NextMillis = s.NextDueMillis() })
	}
	e.Reason, e.Sentence = d.why(nowMillis, &e)
	if e.FilterErrors = d.filterErrors; d.filterErr != nil {
		e.Sentence += fmt.Sprintf("; the filter failed for %s since this leader began, which count as not wanted, last with: %v", messagesDo(e.FilterErrors, "", ""), d.filterErr)
	}
	return e
}

// unseenWaits is how many messages that failed wait for their time, of those that the
// desk has not come to since it began.
func (d *Desk) unseenWaits(nowMillis int64, end record.Offset) (n int64) {
	if d.next >= end && len(d.fresh) == 0 {
		return 0
	}
	seen := d.next
	if len(d.fresh) > 0 {
		seen = d.fresh[0].Offset
	}
	d.cfg.Read(func(s *State) {
		if c := s.cursor(d.cfg.Group, d.cfg.Member); c != nil {
			for o, f := range c.failures {
				if o >= seen && f.dueMillis > nowMillis && !d.leases.has(o) && !d.dying.has(o) {
					n++
				}
			}
		}
	})
	return n
}

func (d *Desk) why(nowMillis int64, e *Explanation) (reason, sentence string) {
	switch {
	case d.cfg.Settings.Paused:
		return ReasonPaused, "the group is paused: resume it"
	case e.Backlog == 0:
		return ReasonNothing, "everything is done: there is nothing new"
	case d.sourceErr != nil:
		return ReasonStorage, fmt.Sprintf("the partition cannot be read: %v", d.sourceErr)
	case d.deadErr != nil && e.Dying > 0:
		return ReasonDeadLetters, fmt.Sprintf("%s, which cannot be written: %v", messagesDo(e.Dying, "is to be a dead letter", "are to be dead letters"), d.deadErr)
	case e.FailuresFull:
		return ReasonFailures, fmt.Sprintf("%d messages of the partition failed and wait to be tried again: no new ones until some of them are done", MaxFailures)
	case e.Delayed == e.Backlog:
		return ReasonWaiting, "all that is there was sent with a delay and is not due yet: " + messagesDo(e.Backlog, "", "")
	case e.Ready > 0 && d.RateMillis(nowMillis) != 0:
		return ReasonRate, "the group's rate is used up for the moment"
	case d.held >= d.cfg.Settings.MaxInFlight:
		return ReasonInFlight, fmt.Sprintf("%s in hand, the group's limit in each partition: acknowledge, or raise max-in-flight", messagesDo(int64(d.held), "is", "are"))
	case e.Ready == 0:
		return d.whyNoneReady(nowMillis, e)
	case e.Consumers == 0 && e.Receivers == 0:
		return ReasonNoConsumer, fmt.Sprintf("%s ready, but no consumer has asked for any", messagesDo(e.Ready, "is", "are"))
	case e.Suspects > 0 && (d.lastAsk == handExclusive || d.lastAsk == handDrains || e.Suspects == e.Ready):
		return ReasonSuspects, fmt.Sprintf("%s lost together with others; such go one at a time, each to a consumer that holds nothing else", messagesDo(e.Suspects, "was", "were"))
	case e.Receivers == 0:
		return ReasonNoCredit, fmt.Sprintf("%s ready, but no consumer asks for more: all are busy, or grant no credit", messagesDo(e.Ready, "is", "are"))
	case e.Filtered > 0 && d.lastAsk == looked:
		return ReasonFilter, "the filter leaves out what is there; it is being looked through"
	}
	return ReasonMoving, fmt.Sprintf("%s ready and being handed out", messagesDo(e.Ready, "is", "are"))
}

// whyNoneReady: there is a backlog, and all of it is somewhere.
func (d *Desk) whyNoneReady(nowMillis int64, e *Explanation) (reason, sentence string) {
	if e.HeldBack > 0 {
		owner, waiting := d.keys.worst()
		e.BlockedBy = owner
		state, reason := "in hand", ReasonKey
		if l := d.leases.at(owner); l != nil {
			p := d.pendingLease(l)
			e.OldestLease = &p
			if p.Member != "" {
				state = fmt.Sprintf("in hand of consumer %q", p.Member)
			}
		}
		switch {
		case d.parked.has(owner):
			reason, state = ReasonParked, "parked: it failed too often; tube queue retry hands it out again, or skips it"
		case d.dying.has(owner):
			state = "to be a dead letter"
		case !d.leases.has(owner):
			state = "waiting to be tried again"
		}
		return reason, fmt.Sprintf("%s behind others of the same key; %d of them for offset %d, which is %s", messagesDo(e.HeldBack, "waits", "wait"), waiting, owner, state)
	}
	if e.Parked > 0 {
		o, _ := d.parked.next(0)
		e.BlockedBy = o
		return ReasonParked, fmt.Sprintf("offset %d failed too often and is parked: tube queue retry hands it out again, or skips it", o)
	}
	if e.Leased > 0 && e.OldestLease != nil {
		return ReasonLeased, fmt.Sprintf("%s in hand, which is all there is; the next lease, of offset %d with consumer %q, ends in %.1f s",
			messagesDo(e.Leased, "is", "are"), e.OldestLease.Offset, e.OldestLease.Member, float64(e.OldestLease.UntilMillis-nowMillis)/1000)
	}
	if e.Waiting > 0 || e.Delayed > 0 {
		return ReasonWaiting, fmt.Sprintf("%s to be tried again and %d for the time they were sent for", messagesDo(e.Waiting, "waits", "wait"), e.Delayed)
	}
	return ReasonDeadLetters, fmt.Sprintf("%s being written to the dead letters", messagesDo(e.Dying, "is", "are"))
}

// messagesDo is "1 message is" or "3 messages are", for example.
func messagesDo(n int64, one, many string) string {
	noun, verb := " messages", many
	if n == 1 {
		noun, verb = " message", one
	}
	if verb != "" {
		verb = " " + verb
	}
	return itoa(n) + noun + verb
}

func (d *Desk) pendingLease(l *lease) Pending {
	p := Pending{
		Partition: d.cfg.Partition, Offset: l.offset, Status: "settling", Attempts: int(l.attempt) - 1,
		SinceMillis: d.sinceMillis(l), UntilMillis: d.untilMillis(l), LeaseID: d.leaseOf(l).String(), BlockedBy: -1,
	}
	switch l.state {
	case held:
		p.Status = "leased"
	case asked:
		p.Status = "asked"
	}
	if h := d.handOf(l); h != nil {
		p.Member, p.Address, p.Session = h.member.ID, h.member.Address, h.member.Session
	}
	return p
}

// Pending lists what is in hand, failed or held back behind its key, by offset from one
// on, at most max.
func (d *Desk) Pending(nowMillis int64, from record.Offset, max int) []Pending {
	var list []record.Offset
	d.leases.each(from, func(l *lease) bool {
		list = append(list, l.offset)
		return len(list) < max
	})
	if d.keys != nil {
		list = d.keys.heldFrom(list, from)
	}
	list = d.waits.appendFrom(list, from, max)
	d.cfg.Read(func(s *State) {
		if c := s.cursor(d.cfg.Group, d.cfg.Member); c != nil {
			for o := range c.failures {
				if o >= from {
					list = append(list, o)
				}
			}
			list = c.suspects.appendFrom(list, from, max)
		}
	})
	slices.Sort(list)
	list = slices.Compact(list)
	out := []Pending{}
	for _, o := range list[:min(len(list), max)] {
		out = append(out, d.pending(nowMillis, o))
	}
	return out
}

// pending describes one message.
func (d *Desk) pending(nowMillis int64, o record.Offset) Pending {
	var t Trace
	d.cfg.Read(func(s *State) { t, _ = s.Trace(d.cfg.Group, d.cfg.Member, o) })
	if l := d.leases.at(o); l != nil {
		p := d.pendingLease(l)
		p.Records = t.Records
		return p
	}
	p := Pending{
		Partition: d.cfg.Partition, Offset: o, Status: "ready", Attempts: t.Attempts, DueMillis: t.DueMillis, Records: t.Records, BlockedBy: -1,
	}
	owner, blocked := d.blockedBy(o)
	switch {
	case d.parked.has(o):
		p.Status = "parked"
	case d.dying.has(o):
		p.Status = "dying"
	case blocked:
		p.Status, p.BlockedBy = "blocked", owner
	case d.waits.has(o):
		p.Status, p.DueMillis = "waiting", d.waitsUntil(o, t.DueMillis)
	case t.DueMillis > nowMillis:
		p.Status = "waiting"
	case t.Suspect:
		p.Status = "suspect"
	}
	return p
}

// blockedBy is the message of the same key that a message waits for, also where the
// desk has not come to it yet; false: none.
func (d *Desk) blockedBy(o record.Offset) (owner record.Offset, blocked bool) {
	if d.keys == nil {
		return -1, false
	}
	if owner, blocked = d.keys.before(o); blocked || d.keys.owns(o) {
		return owner, blocked
	}
	m, err := d.cfg.Source.Messages(o)
	if err != nil || m[0].KeyNull {
		return -1, false
	}
	return d.keys.ownerOf(hashKey(m[0].Key))
}

// waitsUntil is when a message that waits comes again, given when it does by the State.
func (d *Desk) waitsUntil(o record.Offset, dueMillis int64) int64 {
	for _, e := range d.waiting {
		if e.Offset == o {
			dueMillis = max(dueMillis, e.DueMillis)
		}
	}
	return dueMillis
}

// Trace says where a message is: done, dead, cancelled, delayed, new, or one of
// Pending's, in which case p is set.
func (d *Desk) Trace(nowMillis int64, o record.Offset) (status string, t Trace, p *Pending) {
	var ok bool
	d.cfg.Read(func(s *State) { t, ok = s.Trace(d.cfg.Group, d.cfg.Member, o) })
	if !ok {
		return "unknown", t, nil
	}
	if status = t.Status(); status != "" {
		return status, t, nil
	}
	x := d.pending(nowMillis, o)
	return x.Status, t, &x
}

// Status is what the State alone can say; empty: not more than that it is not done.
func (t Trace) Status() string {
	switch {
	case t.Dead:
		return "dead"
	case t.Done && t.Cancelled:
		return "cancelled"
	case t.Done:
		return "done"
	case t.DueMillis != 0 && t.Attempts == 0:
		return "delayed"
	}
	return ""
}
