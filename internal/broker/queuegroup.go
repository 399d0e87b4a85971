package broker

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tube-mq/tube/internal/queue"
	"github.com/tube-mq/tube/internal/record"
)

// queueGroup is one group on this node: its desks in the partitions that are led
// here, and who waits for messages. A group that nobody uses has no desk, no timer
// and no goroutine.
type queueGroup struct {
	q  *queues
	t  *queueTopic
	id queue.GroupID
	// told is what SetQueueGroups was told last; t.mu guards it.
	told QueueGroup

	mu    sync.Mutex // guards what follows and all desks
	spec  QueueGroup
	hands *queue.Hands
	rates map[string]*queue.Rates // of a broadcast group by member
	desks map[deskKey]*desk
	given map[deskKey]queue.Given // by desks that were dropped, while their terms last
	turn  int                     // which partition is asked first
	timer Timer
	// timerAt is when the timer will go off, by the queue clock; 0: it is not set.
	timerAt int64

	inboxMu sync.Mutex
	inbox   []func()
	running bool

	waiters waiters
	// broadcast is spec's; a group is one or the other for good.
	broadcast atomic.Bool
	// opening: members' cursors that are being begun.
	opening map[deskKey]bool
}

type deskKey struct {
	partition record.Partition
	member    string // of a broadcast group
}

// desk is a queue.Desk with what it belongs to.
type desk struct {
	*queue.Desk
	g          *queueGroup
	p          *Partition
	key        deskKey
	term       uint64
	closed     bool
	seenMillis int64 // when the State was last told that the broadcast member lives
}

func newQueueGroup(q *queues, t *queueTopic, spec QueueGroup) *queueGroup {
	g := &queueGroup{
		q: q, t: t, id: spec.ID, told: spec, spec: spec, hands: queue.NewHands(),
		rates: map[string]*queue.Rates{}, desks: map[deskKey]*desk{}, given: map[deskKey]queue.Given{}, opening: map[deskKey]bool{},
	}
	g.broadcast.Store(spec.Settings.Broadcast)
	return g
}

// post has f run with the group's lock held, in the order of the calls, without
// blocking the caller.
func (g *queueGroup) post(f func()) {
	g.inboxMu.Lock()
	defer g.inboxMu.Unlock()
	g.inbox = append(g.inbox, f)
	if !g.running {
		g.running = true
		g.q.spawn(g.work)
	}
}

func (g *queueGroup) work() {
	for {
		g.inboxMu.Lock()
		list := g.inbox
		g.inbox = nil
		if len(list) == 0 {
			g.running = false
			g.inboxMu.Unlock()
			return
		}
		g.inboxMu.Unlock()
		g.mu.Lock()
		for _, f := range list {
			f()
		}
		g.mu.Unlock()
	}
}

// configure takes over what the group was told last.
func (g *queueGroup) configure() {
	g.post(func() {
		g.t.mu.Lock()
		g.spec = g.told
		g.t.mu.Unlock()
		now := g.q.nowMillis()
		for _, d := range g.inOrder() {
			d.Configure(g.spec.Settings, g.spec.Filter, now)
			g.carry(d, nil)
		}
		g.wakeAll()
	})
}

// close ends a group that was deleted, or all of them when the node stops.
func (g *queueGroup) close() {
	g.mu.Lock()
	for _, d := range g.inOrder() {
		g.dropDesk(d)
	}
	if g.timer != nil {
		g.timer.Stop()
	}
	g.mu.Unlock()
	g.waiters.close()
}

// inOrder are the desks: of a passive broker in an order that is always the same. Some
// may be closed meanwhile. The caller holds mu.
func (g *queueGroup) inOrder() []*desk {
	list := slices.Collect(maps.Values(g.desks))
	if g.q.b.cfg.Passive {
		slices.SortFunc(list, func(a, b *desk) int {
			return cmp.Or(cmp.Compare(a.key.partition, b.key.partition), cmp.Compare(a.key.member, b.key.member))
		})
	}
	return list
}

// dropDesk forgets a desk; what it held is there to be handed out by the next.
// The caller holds mu.
func (g *queueGroup) dropDesk(d *desk) {
	if d.closed {
		return
	}
	d.closed = true
	d.Close(g.q.nowMillis())
	g.given[d.key] = d.Given()
	delete(g.desks, d.key)
	if r := g.rates[d.key.member]; d.key.member != "" && r.Desks() == 0 {
		delete(g.rates, d.key.member)
	}
}

// ledChanged drops desks of a partition that this node does not lead any more, or
// leads anew, and has who waits look again.
func (g *queueGroup) ledChanged(p *Partition) {
	if g.idle() {
		return
	}
	g.post(func() {
		for _, d := range g.inOrder() {
			if d.p == p {
				g.valid(d)
			}
		}
		g.wakeAll()
	})
}

// idle says that nobody waits and no desk is there; asked without mu, so it may be
// wrong about what begins just now, which looks for itself.
func (g *queueGroup) idle() bool {
	if g.waiters.count() > 0 || !g.mu.TryLock() {
		return false
	}
	defer g.mu.Unlock()
	return len(g.desks) == 0
}

// valid says whether a desk is still its partition's leader's; if not it is dropped.
func (g *queueGroup) valid(d *desk) bool {
	s := d.p.group.Status()
	if d.closed || !s.Leading || uint64(s.Term) != d.term || d.p.damage.Load() != nil {
		g.dropDesk(d)
		return false
	}
	return true
}

// desk finds the desk of a partition, or makes it. The caller holds mu.
//
// Errors: ErrNotLeader and what else keeps the partition from serving;
// queue.ErrUnknownGroup: the group, or the member's cursor, has not begun here yet.
func (g *queueGroup) desk(p *Partition, member string) (*desk, error) {
	key := deskKey{p.id.Partition, member}
	if d := g.desks[key]; d != nil && d.p == p && g.valid(d) {
		return d, nil
	}
	if err := p.serving(-1); err != nil {
		return nil, err
	}
	term := uint64(p.group.Status().Term)
	m := p.machine
	m.mu.Lock()
	has := m.queues.Has(g.id, member) && (member != "" || !g.spec.Settings.Broadcast)
	clock := m.queues.ClockMillis()
	m.mu.Unlock()
	if !has {
		return nil, queue.ErrUnknownGroup
	}
	g.q.atLeast(clock)
	given := queue.FirstOf(term)
	if old, ok := g.given[key]; ok && old.Of(term) {
		given = old
	}
	delete(g.given, key)
	g.t.mu.Lock()
	partitions := g.t.spec.Partitions
	g.t.mu.Unlock()
	now := g.q.nowMillis()
	rates := g.rates[member]
	if rates == nil {
		rates = queue.NewRates()
		g.rates[member] = rates
	}
	d := &desk{g: g, p: p, key: key, term: term, seenMillis: now}
	d.Desk = queue.NewDesk(queue.DeskConfig{
		Group: g.id, Member: member, Partition: p.id.Partition, Partitions: partitions,
		Settings: g.spec.Settings, Filter: g.spec.Filter, Hands: g.hands, Rates: rates, Source: messages{p}, Given: given,
		Read: func(read func(*queue.State)) {
			m.mu.Lock()
			defer m.mu.Unlock()
			read(m.queues)
		},
	}, now)
	g.desks[key] = d
	return d, nil
}

// carry carries out what a desk wants done. then is called when its ops are
// committed, or at once if there are none. more ops go into the same entry. The caller
// holds mu.
func (g *queueGroup) carry(d *desk, then func(error), more ...queue.Op) {
	if d.closed {
		if then != nil {
			then(ErrNotLeader)
		}
		return
	}
	e := d.Effects()
	if e.Gone {
		g.trim(d.p)
	}
	e.Ops = append(e.Ops, more...)
	switch {
	case len(e.Ops) > 0:
		d.p.queue.submit(errand{ops: e.Ops, desk: d, then: then})
	case then != nil:
		then(nil)
	}
	for _, a := range e.Asks {
		g.ask(d, a)
	}
	if len(e.Dying) > 0 {
		d.p.queue.deaths.add(d, e.Dying)
	}
	if e.Wake {
		g.wake()
	}
	g.schedule(d.DeadlineMillis())
}

// trim tells the State that the log begins where a memory log does since a restart.
func (g *queueGroup) trim(p *Partition) {
	start, _ := p.log.Bounds()
	p.queue.submit(errand{ops: []queue.Op{{Kind: queue.OpTrim, Offset: start}}})
}

func (g *queueGroup) ask(d *desk, a queue.Ask) {
	answer := func(l queue.Lease, how queue.Answer) {
		g.post(func() {
			if !d.closed {
				d.Answer(g.q.nowMillis(), l, how)
				g.carry(d, nil)
			}
		})
	}
	if f := g.q.hooks.Ask; f != nil {
		f(g.id, a, answer)
		return
	}
	for _, l := range a.Leases {
		answer(l, queue.AnswerUnknown)
	}
}

// schedule sets the group's timer for a time by the queue clock; 0: no need. The
// caller holds mu.
func (g *queueGroup) schedule(atMillis int64) {
	if atMillis == 0 || g.timerAt != 0 && g.timerAt <= atMillis {
		return
	}
	g.timerAt = atMillis
	wait := time.Duration(min(max(0, atMillis-g.q.nowMillis()), maxTimerMillis)) * time.Millisecond
	if g.timer == nil {
		g.timer = g.q.b.cfg.AfterFunc(wait, func() { g.post(g.tick) })
	} else {
		g.timer.Reset(wait)
	}
}

// tick does what is due at all desks.
func (g *queueGroup) tick() {
	g.timerAt = 0
	now := g.q.nowMillis()
	for _, d := range g.inOrder() {
		if !g.valid(d) {
			continue
		}
		d.Tick(now)
		g.carry(d, nil)
	}
	g.wake() // a rate may let something through again
}

// fired tells the desks of a partition what is due now.
func (g *queueGroup) fired(p *Partition, list []record.Offset) {
	if g.idle() {
		return
	}
	g.post(func() {
		for _, d := range g.inOrder() {
			if d.p == p {
				d.Fired(list)
				g.carry(d, nil)
			}
		}
	})
}

// trimmed tells the desk of a cursor that its messages went with the log's start.
func (g *queueGroup) trimmed(p *Partition, x queue.Lost) {
	if g.idle() {
		return
	}
	g.post(func() {
		if d := g.desks[deskKey{p.id.Partition, x.Member}]; d != nil && d.p == p {
			d.Trimmed(x.Before)
			g.carry(d, nil)
		}
	})
}

func (g *queueGroup) sessionGone(session string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.hands.Has(session) {
		return
	}
	now := g.q.nowMillis()
	for _, d := range g.inOrder() {
		d.SessionGone(now, session)
		g.carry(d, nil)
	}
	g.hands.Gone(session)
}
