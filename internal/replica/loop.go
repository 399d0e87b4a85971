package replica

import (
	"fmt"
	"slices"
	"sync"

	"go.etcd.io/raft/v3/raftpb"
)

// loop is one goroutine that runs many groups: those that have something in
// their inbox, in the order in which it came. A group without news costs nothing.
type loop struct {
	mu      sync.Mutex
	wake    *sync.Cond
	queue   []*Group
	stopped bool
	done    chan struct{}
}

func newLoop() *loop {
	l := &loop{done: make(chan struct{})}
	l.wake = sync.NewCond(&l.mu)
	return l
}

func (l *loop) enqueue(g *Group) {
	l.mu.Lock()
	l.queue = append(l.queue, g)
	if len(l.queue) == 1 {
		l.wake.Signal()
	}
	l.mu.Unlock()
}

func (l *loop) run() {
	defer close(l.done)
	var batch []*Group
	for {
		l.mu.Lock()
		for len(l.queue) == 0 && !l.stopped {
			l.wake.Wait()
		}
		if len(l.queue) == 0 {
			l.mu.Unlock()
			return
		}
		batch, l.queue = l.queue, batch[:0]
		l.mu.Unlock()
		for i, g := range batch {
			g.turn()
			batch[i] = nil
		}
	}
}

// stop ends the loop once its queue is empty.
func (l *loop) stop() {
	l.mu.Lock()
	l.stopped = true
	l.wake.Broadcast()
	l.mu.Unlock()
	<-l.done
}

// turn lets the group deal with everything in its inbox.
func (g *Group) turn() {
	in := g.take()
	if g.core != nil {
		g.hear(&in)
	}
	if g.core == nil {
		g.refuse(&in)
	} else {
		for range in.ticks {
			if !g.quiet {
				g.tickOnce()
			}
		}
		settled := g.idleTicks >= quietAfter
		if g.host.writer.Crowded() {
			refuse(in.proposals, ErrBusy)
		} else {
			g.core.propose(in.proposals)
		}
		g.work()
		for _, f := range in.calls {
			f()
		}
		// A call may have asked raft for something.
		if g.core != nil && len(in.calls) > 0 {
			g.core.ask()
			g.work()
		}
		if g.core != nil && len(g.core.tokens) > 0 {
			g.core.dropTokens()
		}
		if m := g.mark; m != nil && g.core != nil {
			g.hush(m)
		}
		g.mark = nil
		if settled && g.core != nil && g.core.idle() && g.core.heard() && g.peersAlive() {
			g.goQuiet()
		}
	}
	in.reset()
	g.spare = in
}

// hear takes what the WAL and the peers have sent. It leaves in the inbox the messages
// that it did not come to, as an earlier one has ended the replica.
func (g *Group) hear(in *inbox) {
	for _, w := range in.stored {
		if g.core != nil {
			g.afterStored(w)
		}
		w.free()
	}
	for _, m := range in.messages {
		if wakes(m.raft) {
			g.wakeUp()
		}
	}
	done := 0
	for ; done < len(in.messages) && g.core != nil; done++ {
		g.receive(in.messages[done])
	}
	in.messages = slices.Delete(in.messages, 0, done)
}

// refuse answers proposals to a group that cannot take any.
func (g *Group) refuse(in *inbox) {
	err := g.failed
	if err == nil {
		err = ErrStopped
	}
	refuse(in.proposals, err)
	for _, m := range in.messages {
		m.buf.Release()
	}
	for _, f := range in.calls {
		f()
	}
}

func refuse(proposals []Proposal, err error) {
	for _, p := range proposals {
		p.Buf.Release()
		p.Done(nil, err)
	}
}

// receive takes a peer's message.
func (g *Group) receive(m Message) {
	switch t := m.raft.GetType(); {
	case g.declines(m.raft), g.passesOver(m.raft):
		m.buf.Release()
	case isLapseWord(m.raft):
		m.buf.Release()
		g.hearWord(m.raft)
	case g.lapse != nil && !g.lapse.admits(m.raft):
		m.buf.Release()
	case g.core.forgot(m.raft):
		m.buf.Release()
		g.fail(fmt.Errorf("%w: entries %d to %d", ErrForgotten, g.core.log.last()+1, m.raft.GetCommit()))
	case t == raftpb.MsgSnap:
		// Raft hears of it when the copy is here.
		from := m.raft.GetFrom()
		m.buf.Release()
		if m.raft.GetTerm() >= g.core.term {
			g.fetch(from)
		}
	case t == raftpb.MsgApp && (g.installing || g.unsettled):
		// What it brings belongs behind the copy. It comes again.
		m.buf.Release()
	case isMark(m.raft):
		m.buf.Release()
		g.mark = m.raft
	case g.core.overrules(m.raft):
		m.buf.Release()
		g.fail(fmt.Errorf("%w in term %d, from entry %d on", ErrOverruled, m.raft.GetTerm(), m.raft.GetIndex()+1))
	default:
		g.core.receive(m)
	}
}

func (g *Group) afterStored(w *writing) {
	for i, term := range w.terms {
		// Another leader's entry may stand there by now.
		if sl := g.core.log.at(w.first + uint64(i)); sl != nil && sl.term == term {
			sl.pos = w.positions[i]
		}
	}
	if w.settled {
		g.unsettled = false
	}
	for _, m := range w.after {
		if g.core == nil {
			return
		}
		switch {
		case m.GetTo() == uint64(g.core.id):
			g.core.step(m)
		case g.unsettled && m.GetType() == raftpb.MsgAppResp && !m.GetReject():
			// It would say that the copy is durable, as raft believes, which answers so
			// to a repeated snapshot. The leader asks again.
		default:
			g.send(m)
		}
	}
}

// work carries out raft's effects until there are none.
func (g *Group) work() {
	applied := false
	for g.failed == nil {
		e, ok := g.core.ready()
		if !ok {
			break
		}
		g.wakeUp()
		if e.snapshot {
			if g.switchOver(e); g.core == nil {
				break
			}
		} else {
			g.write(e)
		}
		late := g.core.anyTellsMore(e.messages)
		if !late {
			if g.sendAll(e.messages); g.core == nil {
				break
			}
		}
		g.core.reads.answered(e.reads)
		for _, en := range e.apply {
			applied = true
			if err := g.applyOne(en); err != nil {
				g.fail(err)
				g.spec.Machine.Applied()
				return
			}
		}
		for _, m := range e.applied {
			g.core.step(m)
		}
		if late {
			if g.sendAll(e.messages); g.core == nil {
				break
			}
		}
		g.core.afterSends()
		g.core.reads.reached(g.core.applied)
		g.core.ask()
		g.core.trim()
	}
	if g.core != nil {
		g.sendAll(g.core.settle())
	}
	if g.core != nil {
		g.recollect()
		g.core.unload(g.host.keepPayloadBytes())
	}
	if applied {
		g.dirty = true
		g.spec.Machine.Applied()
	}
	g.publish()
}

// sendAll sends messages to other replicas. The replica may fail of it.
func (g *Group) sendAll(ms []*raftpb.Message) {
	for _, m := range ms {
		if g.core != nil {
			g.core.hold(m)
			g.send(m)
		}
	}
}

// publish makes the leadership known if it changed.
func (g *Group) publish() {
	s := Status{}
	if g.core != nil {
		s = g.core.status()
		if s.Leader != 0 {
			g.wary = 0
		}
		if alone := g.core.alone(); alone != g.alone.Load() {
			g.alone.Store(alone)
			g.retick()
		}
	}
	if s == *g.status.Load() {
		return
	}
	changed := s // what is equal need not be on the heap
	g.status.Store(&changed)
	g.spec.Machine.Led(s)
	g.retick()
}

func (g *Group) applyOne(en *raftpb.Entry) error {
	index, term := en.GetIndex(), en.GetTerm()
	switch {
	case en.GetType() != raftpb.EntryNormal:
		g.core.applyConfChange(en)
		g.core.finish(index, term, nil)
		return nil
	}
	if err := g.load(index); err != nil {
		return err
	}
	entry := g.core.entry(en)
	if len(entry.Data) == 0 { // a new leader's first entry
		g.core.finish(index, term, nil)
		return nil
	}
	result := g.spec.Machine.Apply(entry)
	g.host.single.observe(g, entry, result)
	if f, ok := result.(Fatal); ok && f.Fatal() != nil {
		return fmt.Errorf("entry %d: %w", index, f.Fatal())
	}
	g.core.finish(index, term, result)
	return nil
}

// fail stops the replica: its data here cannot be trusted. Other groups go on.
func (g *Group) fail(err error) {
	g.failed = err
	g.held = g.host.checkpoint.forgotten.Load()
	g.setDamage(&err)
	g.spec.Logger.Error("replica stopped", "group", g.spec.Group, "err", err)
	g.rouse()
	g.core.abandon(ErrDamaged)
	g.core = nil
	g.publish()
}
