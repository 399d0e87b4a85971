package queue

import (
	"container/heap"
	"errors"
	"math"
	"strconv"

	"github.com/tube-mq/tube/internal/record"
)

func itoa(v int64) string { return strconv.FormatInt(v, 10) }

// Desk hands out the messages of one cursor in one partition: a group's, or a
// broadcast member's. It belongs to the leader. What it wants done it leaves in
// Effects, to be taken after every call.
//
// Times are ms of the queue clock (see Clock). A desk is not safe for concurrent use;
// those of one group share Hands, so they are used one at a time.
type Desk struct {
	cfg         DeskConfig
	begunMillis int64
	out         Effects
	cursor      uint32 // CursorOf its group and member
	generation  uint32 // of the State's cursor; leases of another are void

	// next is where the State is looked through for new messages. fresh are those
	// found before it that were not handed out yet.
	next  record.Offset
	fresh []Candidate

	// leases has what is in hand: leased, or with a settlement that is not committed.
	// Nothing in it is handed out.
	leases *leases
	held   int // those held or asked about

	// ready, suspects: to be handed out again. waiting: not before a time. dying: to be
	// dead letters. parked: the same, but kept for their keys' sake. All are looked up in
	// the State once more before anything is done with them.
	ready, suspects, dying, parked offsets
	// retrying, letting: of the last two, whose failures are being forgotten, and who are
	// being let go. Invariant: no message is in both.
	retrying, letting offsets
	waiting           dueHeap
	// waits: the messages of waiting that wait still. Those that were settled, retried or
	// lost meanwhile stay in the heap until their time, and are passed over then.
	waits offsets
	avoid map[record.Offset]avoided

	keys         *keys // nil: not by key
	given        Given
	filtered     int64
	filterErrors int64
	filterErr    error
	deadErr      error // why the last dead letter could not be written
	sourceErr    error
	lastAsk      blocked // what stopped the last Take
	lastTake     int64

	picking picking // the Take under way
}

// avoided says to whom a message had better not go at once: who had it and did not answer.
type avoided struct {
	member      string
	untilMillis int64
}

// DeskConfig of a Desk.
type DeskConfig struct {
	Group      GroupID
	Member     string // of a broadcast group: whose cursor
	Partition  record.Partition
	Partitions int // of the topic: the group's rates are shared out by it
	Settings   Settings
	Filter     Filter // nil: everything
	// Read gives sight of the State, which must not be kept.
	Read   func(func(*State))
	Source Source
	Hands  *Hands
	// Rates of the group's desks on this node; nil: rates of this desk alone.
	Rates *Rates
	// Given is what desks of this cursor gave in this term. All leases of earlier terms have
	// smaller nonces.
	Given Given
}

// Effects are what a Desk wants done.
type Effects struct {
	Ops   []Op  // to be committed in this order, and told back by Committed
	Asks  []Ask // to be put to consumers, and told back by Answer
	Dying []record.Offset
	// Gone: messages are below the log's start, of which the State does not know.
	Gone bool
	// Wake: there is something for who waits.
	Wake bool
}

// Ask is a question to a consumer: what about these?
type Ask struct {
	Member Member
	Leases []Lease
}

// Taken is a message handed out.
type Taken struct {
	Lease       Lease
	Message     *Message
	UntilMillis int64 // 0: acknowledged by itself, there is no lease
	// Alone: it is a suspect; its consumer gets nothing else until it is settled.
	Alone bool
}

// Taking asks for messages.
type Taking struct {
	Member   Member
	Max      int
	MaxBytes int // the first is given whatever its size, unless Begun
	Begun    bool
	Held     int // leases of the group that the member holds on other nodes
	// Hold: leases are given also if the group acknowledges by itself, as whoever asks
	// acknowledges what he has handed out.
	Hold bool
}

// NewDesk starts from the State.
func NewDesk(cfg DeskConfig, nowMillis int64) *Desk {
	cfg.Partitions = max(cfg.Partitions, 1)
	d := &Desk{cfg: cfg, given: cfg.Given, begunMillis: nowMillis, cursor: CursorOf(cfg.Group, cfg.Member), leases: newLeases()}
	if d.cfg.Rates == nil {
		d.cfg.Rates = NewRates()
	}
	d.reset()
	d.cfg.Rates.join(cfg.Settings, cfg.Partitions, nowMillis)
	d.Configure(cfg.Settings, cfg.Filter, nowMillis)
	return d
}

// reset forgets everything and begins at the floor. Leases that were given may still
// be settled, as those of an earlier leader may, unless the cursor was set elsewhere.
func (d *Desk) reset() {
	d.leases.each(0, func(l *lease) bool {
		d.letGo(l)
		d.given.end(l.offset)
		return true
	})
	d.leases, d.held = newLeases(), 0
	d.next, d.fresh, d.waiting = 0, nil, nil
	d.ready, d.suspects, d.dying, d.parked = offsets{}, offsets{}, offsets{}, offsets{}
	d.retrying, d.letting, d.waits = offsets{}, offsets{}, offsets{}
	d.avoid = map[record.Offset]avoided{}
	before := d.generation
	d.cfg.Read(func(s *State) { d.generation = s.generation(d.cfg.Group, d.cfg.Member) })
	if before != 0 && before != d.generation {
		d.given.ended = offsets{} // those leases are void
	}
	d.keys = nil
	if d.cfg.Settings.OrderByKey {
		d.keys = newKeys()
	}
}

// Close gives back what hands hold of this desk, which is used no more.
func (d *Desk) Close(nowMillis int64) {
	d.reset()
	d.cfg.Rates.leave(d.cfg.Settings, d.cfg.Partitions, nowMillis)
	if d.cfg.Hands.drainFor == d {
		d.cfg.Hands.draining, d.cfg.Hands.drainFor = nil, nil
	}
}

// Configure takes over changed settings. Leases stay, unless the order by key changed.
func (d *Desk) Configure(s Settings, f Filter, nowMillis int64) {
	old := d.cfg.Settings
	d.cfg.Settings, d.cfg.Filter = s, f
	d.cfg.Rates.configure(s, d.cfg.Partitions, nowMillis)
	if old.OrderByKey != s.OrderByKey || old.ParkKey != s.ParkKey {
		d.reset()
	}
	d.out.Wake = true
}

// Take hands out what there is for a member, as far as it can. An error of the
// Source is told only if nothing was handed out. more says that another try at once
// may bring something.
func (d *Desk) Take(nowMillis int64, t Taking) (taken []Taken, more bool, err error) {
	d.Tick(nowMillis)
	d.lastTake = nowMillis
	h := d.cfg.Hands.of(t.Member, nowMillis)
	p := &d.picking
	*p = picking{d: d, now: nowMillis, t: t, h: h, end: d.cfg.Source.End()}
	defer func() { *p = picking{} }() // nothing that was read is held on to
	if stop := d.mayTake(nowMillis, h, t); stop != free {
		d.lastAsk = stop
		return nil, false, nil
	}
	if !d.suspects.empty() {
		switch {
		case h.count == 0 && t.Held == 0:
			p.suspects()
			if len(p.taken) > 0 {
				return p.done()
			}
		case d.cfg.Hands.drain(h, d, nowMillis):
			d.lastAsk = handDrains
			return nil, false, nil
		}
	}
	p.run()
	return p.done()
}

// mayTake says what keeps a member from getting anything at all.
func (d *Desk) mayTake(nowMillis int64, h *hand, t Taking) blocked {
	if d.cfg.Settings.Paused {
		return paused
	}
	if h.exclusive {
		return handExclusive
	}
	if d.cfg.Hands.drains(h, t.Held, d) {
		return handDrains
	}
	if why, _ := d.cfg.Rates.ready(nowMillis); why != free {
		return why
	}
	if d.held >= d.cfg.Settings.MaxInFlight {
		return inFlight
	}
	return free
}

// picking is one Take under way.
type picking struct {
	d     *Desk
	now   int64
	t     Taking
	h     *hand
	end   record.Offset
	taken []Taken
	bytes int
	looks int // messages looked at
	// full, span: there may be more new ones, but too many have failed, or they are too far
	// from the floor.
	full, span bool
	stop       blocked
	err        error

	acks []record.Offset // filtered out, or trusted
	// near is what was read last: messages in a row, from nearAt on.
	near   []Message
	nearAt record.Offset
}

// maxLooks is how many messages one Take looks at, most of which a filter may leave out.
const maxLooks = 4096

func (p *picking) done() ([]Taken, bool, error) {
	d := p.d
	if len(p.acks) > 0 {
		d.out.Ops = append(d.out.Ops, d.op(OpAck, p.acks))
	}
	d.lastAsk, d.sourceErr = p.stop, p.err
	if len(p.taken) > 0 {
		return p.taken, false, nil
	}
	return nil, p.stop == looked, p.err
}

func (d *Desk) op(kind OpKind, list []record.Offset) Op {
	return Op{Kind: kind, Group: d.cfg.Group, Member: d.cfg.Member, Generation: d.generation, Offsets: list}
}

// suspects hands out one suspect.
func (p *picking) suspects() {
	d := p.d
	for o, ok := d.suspects.next(0); ok && len(p.taken) == 0 && p.room(); o, ok = d.suspects.next(o + 1) {
		if p.avoids(o) {
			continue
		}
		d.suspects.remove(o)
		if d.leases.has(o) {
			continue
		}
		k, ok := d.look(o, p.end)
		if !ok {
			d.done(o)
			continue
		}
		if d.isDead(k) {
			d.where(k, p.now).add(o)
			continue
		}
		k.Suspect = true
		p.offer(k)
	}
}

// run hands out what is to be had again, then what is new.
func (p *picking) run() {
	d := p.d
	for o, ok := d.ready.next(0); ok && p.room(); o, ok = d.ready.next(o + 1) {
		if p.avoids(o) {
			continue
		}
		d.ready.remove(o)
		if d.leases.has(o) {
			continue // being settled; what follows is for when that is committed
		}
		k, ok := d.look(o, p.end)
		switch {
		case !ok:
			d.done(o)
		default:
			p.consider(k)
		}
	}
	for p.room() {
		k, ok := p.nextFresh()
		if !ok {
			return
		}
		p.consider(k)
	}
}

// look asks the State about a message that is to be handed out again.
func (d *Desk) look(o, end record.Offset) (k Candidate, ok bool) {
	d.cfg.Read(func(s *State) { k, ok = s.Candidate(d.cfg.Group, d.cfg.Member, o, end) })
	return k, ok
}

// room says whether more may be handed out.
func (p *picking) room() bool {
	d := p.d
	switch {
	case p.err != nil:
		return false
	case len(p.taken) >= p.t.Max:
		p.stop = noCredit
	case len(p.taken) > 0 && p.taken[0].Alone:
		return false
	case p.looks >= maxLooks:
		p.stop = looked
	case d.held >= d.cfg.Settings.MaxInFlight || len(p.acks) >= d.cfg.Settings.MaxInFlight && d.cfg.Settings.AutoAck:
		p.stop = inFlight
	case p.bytes > 0 && p.bytes >= p.t.MaxBytes:
		p.stop = noCredit
	default:
		if why, _ := d.cfg.Rates.ready(p.now); why != free {
			p.stop = why
			return false
		}
		return true
	}
	return false
}

func (p *picking) avoids(o record.Offset) bool {
	a, ok := p.d.avoid[o]
	if !ok {
		return false
	}
	if a.member != p.t.Member.ID || p.now >= a.untilMillis || !p.d.cfg.Hands.othersThan(a.member, p.now) {
		return false
	}
	p.stop = avoidsMember
	return true
}

// freshBatch is how many new messages are found at a time.
const freshBatch = 256

func (p *picking) nextFresh() (Candidate, bool) {
	d := p.d
	if d.keys != nil && d.keys.held >= MaxHeldBack {
		p.stop = keysFull
		return Candidate{}, false
	}
	for {
		if len(d.fresh) == 0 && !p.find() {
			return Candidate{}, false
		}
		if len(d.fresh) == 0 {
			if p.looks++; p.looks >= maxLooks {
				p.stop = looked
				return Candidate{}, false
			}
			continue
		}
		k := d.fresh[0]
		d.fresh = d.fresh[1:]
		if !d.leases.has(k.Offset) && !d.waits.has(k.Offset) {
			return k, true
		}
	}
}

// find looks through the State for new messages; false: there are none.
func (p *picking) find() bool {
	d := p.d
	from := d.next
	d.cfg.Read(p.read)
	switch {
	case p.full:
		p.stop = failuresFull
	case p.span:
		p.stop = spanFull
	case d.next == from:
		p.stop = nothingNew
	default:
		return true
	}
	return false
}

// read takes the next new messages from the State.
func (p *picking) read(s *State) {
	d := p.d
	c := s.cursor(d.cfg.Group, d.cfg.Member)
	p.span = c != nil && d.next >= c.floor+MaxSpan
	if p.full = s.failures >= MaxFailures; !p.full {
		d.fresh, d.next = s.Fresh(d.fresh[:0], d.cfg.Group, d.cfg.Member, d.next, p.end, freshBatch)
	}
}

// consider hands out a message, or puts it where it belongs.
func (p *picking) consider(k Candidate) {
	d := p.d
	if d.keys == nil {
		if where := d.where(k, p.now); where != nil {
			where.add(k.Offset)
			return
		}
		if k.DueMillis > p.now {
			d.wait(k.Offset, k.DueMillis)
			return
		}
	}
	p.offer(k)
}

// where is the set that a message belongs to which is not to be handed out now; nil:
// it is, or has to wait for its time.
func (d *Desk) where(k Candidate, nowMillis int64) *offsets {
	switch {
	case d.isDead(k):
		if d.cfg.Settings.OrderByKey && d.cfg.Settings.ParkKey {
			return &d.parked
		}
		if d.dying.add(k.Offset) {
			d.out.Dying = append(d.out.Dying, k.Offset)
		}
		return &d.dying
	case k.DueMillis > nowMillis:
		return nil
	case k.Suspect:
		return &d.suspects
	}
	return nil
}

func (d *Desk) isDead(k Candidate) bool {
	return k.Final || k.Attempts >= d.cfg.Settings.MaxAttempts
}

// offer reads a message and hands it out, unless the group does not want it or its
// key is taken.
func (p *picking) offer(k Candidate) {
	d := p.d
	p.looks++
	m, err := p.message(k.Offset)
	switch {
	case errors.Is(err, ErrGone):
		d.out.Gone = true
		d.done(k.Offset)
		return
	case err != nil:
		p.err, p.stop = err, unreadable
		d.ready.add(k.Offset)
		return
	case !d.wants(m):
		d.filtered++
		p.acks = append(p.acks, k.Offset)
		d.done(k.Offset)
		return
	}
	if d.keys != nil && !m.KeyNull && !d.keys.enter(k.Offset, hashKey(m.Key)) {
		return
	}
	if d.dying.has(k.Offset) {
		return // skipped by an operator; it is none that failed too often
	}
	if d.keys != nil {
		// Only now, as who is to wait or to die has its key all the while.
		if where := d.where(k, p.now); where != nil && (where != &d.suspects || p.h.count > 0 || len(p.taken) > 0 || p.t.Held > 0) {
			where.add(k.Offset)
			return
		}
		if k.DueMillis > p.now {
			d.wait(k.Offset, k.DueMillis)
			return
		}
	}
	if n := m.SizeBytes(); (p.bytes > 0 || p.t.Begun) && p.bytes+n > p.t.MaxBytes {
		d.back(k)
		p.bytes = max(p.t.MaxBytes, 1)
		return
	}
	p.give(k, m)
}

// message reads a message, unless it came along with the one before.
func (p *picking) message(o record.Offset) (*Message, error) {
	if i := o - p.nearAt; i >= 0 && i < record.Offset(len(p.near)) {
		return &p.near[i], nil
	}
	near, err := p.d.cfg.Source.Messages(o)
	if err != nil {
		return nil, err
	}
	p.near, p.nearAt = near, o
	return &near[0], nil
}

// wait has a message come again at a time.
func (d *Desk) wait(o record.Offset, dueMillis int64) {
	d.waits.add(o)
	heap.Push(&d.waiting, Delayed{o, dueMillis})
}

// back puts a message where it will be found again.
func (d *Desk) back(k Candidate) {
	if k.Suspect {
		d.suspects.add(k.Offset)
	} else {
		d.ready.add(k.Offset)
	}
}

func (d *Desk) wants(m *Message) bool {
	if d.cfg.Filter == nil {
		return true
	}
	ok, err := d.cfg.Filter(m)
	if err != nil {
		d.filterErrors++
		d.filterErr = err
		return false
	}
	return ok
}

func (p *picking) give(k Candidate, m *Message) {
	d := p.d
	d.given.Nonce++
	t := Taken{Lease: Lease{d.cfg.Partition, k.Offset, k.Attempts + 1, d.given.Nonce, d.cursor, d.generation}, Message: m}
	size := m.SizeBytes()
	d.cfg.Rates.take(size)
	p.bytes += max(size, 1)
	delete(d.avoid, k.Offset)
	if d.cfg.Settings.AutoAck && !p.t.Hold {
		p.acks = append(p.acks, k.Offset)
		// Till it is committed nobody else gets it.
		d.leases.add(k.Offset).state = acking
	} else {
		t.UntilMillis = p.now + d.cfg.Settings.Lease.Milliseconds()
		t.Alone = k.Suspect
		l := d.leases.add(k.Offset)
		l.nonce, l.attempt, l.alone = d.given.Nonce, int16(min(k.Attempts+1, math.MaxInt16)), k.Suspect
		d.hold(l, p.h, p.now, t.UntilMillis)
	}
	p.taken = append(p.taken, t)
}
