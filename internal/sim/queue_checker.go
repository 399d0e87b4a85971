package sim

import (
	"errors"
	"fmt"
	"time"

	"github.com/tube-mq/tube/internal/queue"
	"github.com/tube-mq/tube/internal/record"
)

// queueChecker knows of each queue group what its log says, from the first replica that
// applied an entry, and what was handed out and answered, and compares the two.
type queueChecker struct {
	q           *queues
	c           *cluster
	teams       map[record.Group]*queueHistory
	completions map[string]*completion
}

func newQueueChecker(q *queues) *queueChecker {
	return &queueChecker{q: q, c: q.c, teams: map[record.Group]*queueHistory{}, completions: map[string]*completion{}}
}

func (k *queueChecker) fail(format string, args ...any) { k.c.check.fail(format, args...) }

// sent: a sender was answered that its message is stored.
func (k *queueChecker) sent(t *team, m message, s queue.Sent) {
	h := k.of(t)
	if s.Offset < 0 || s.Offset >= record.Offset(len(h.log)) {
		k.fail("group %d says that client %d's message %d is at offset %d, %d are there", t.id, m.client, m.sequence, s.Offset, len(h.log))
	}
	at := h.log[s.Offset]
	if at.client != m.client || at.sequence != m.sequence || at.sum != m.sum {
		k.fail("group %d says that client %d's message %d is at offset %d, where client %d's %d is", t.id, m.client, m.sequence, s.Offset, at.client, at.sequence)
	}
	if s.Duplicate {
		k.c.faults.count("queue: repeat answered with the first one's place")
		if first := h.byID[idOf(m)]; first != s.Offset {
			k.fail("group %d says that id %s is at offset %d, it is at %d", t.id, idOf(m), s.Offset, first)
		}
	}
	k.c.check.acknowledged(t, m, uint64(s.Offset))
}

// took is what a node has for a session and has not handed out.
type took struct {
	k     *queueChecker
	n     *node
	h     *cursorHistory
	fates map[record.Offset]*fate
	// stale were done already by the word of a later leader: they must not be handed out.
	stale map[record.Offset]bool
}

// taken looks at messages that a node has for a member's session.
func (k *queueChecker) taken(n *node, p *partition, g *queueGroup, member, session string, got []queue.Delivery) *took {
	h, gh := k.of(g.t), k.cursor(g, member)
	term := p.term()
	if member != "" {
		k.c.faults.count("queue: taken by a broadcast member")
	}
	x := &took{k, n, gh, map[record.Offset]*fate{}, map[record.Offset]bool{}}
	for i := range got {
		d := &got[i]
		k.content(n, h, d)
		f := gh.fate(d.Lease.Offset)
		f.leases++
		x.fates[d.Lease.Offset] = f
		deposed := f.changed > term || gh.placed > term // a later leader has had it, of which this one does not know
		m := &h.log[d.Lease.Offset]
		switch {
		case f.done && deposed:
			k.c.faults.count("queue: taken by a deposed leader after it was done")
			x.stale[d.Lease.Offset] = true
		case f.done:
			k.fail("node %d hands out offset %d of %s in term %d, which is done (dead %v, answered %v)", n.id, d.Lease.Offset, gh, term, f.dead, f.answered)
		case !deposed && d.Lease.Attempt != f.fails+1:
			k.fail("node %d hands out offset %d of %s as attempt %d, it has failed %d times", n.id, d.Lease.Offset, gh, d.Lease.Attempt, f.fails)
		}
		k.due(n, g, m)
		k.wanted(n, gh, term, m)
		k.valid(n, gh, term, session, d, m)
		if g.settings.OrderByKey && m.key != "" && gh.placed <= term {
			k.order(n, h, gh, m)
		}
		if g.settings.AutoAck {
			continue
		}
		gh.out[d.Lease.Offset] = &handed{
			node: n, life: n.life, term: term, nonce: d.Lease.Nonce, session: session, key: m.key, alone: d.Alone,
			until: k.c.now + g.settings.Lease - clockSlack,
		}
	}
	return x
}

// wanted: the group is not paused, its filter lets the message through, and its rate does.
func (k *queueChecker) wanted(n *node, h *cursorHistory, term record.Term, m *storedMessage) {
	g := h.g
	if life, told := g.paused[n]; told && life == n.life {
		k.fail("node %d hands out offset %d of %s, which is paused", n.id, m.offset, h)
	}
	if g.unwanted != nil && g.unwanted(m.message) {
		k.fail("node %d hands out offset %d of %s, which its filter leaves out", n.id, m.offset, h)
	}
	if g.rate == 0 || !k.q.straight {
		return
	}
	if h.meters[term] == nil {
		h.meters[term] = &meter{tokens: 3 * max(g.rate, 1), at: k.c.now}
	}
	if !h.meters[term].takes(g.rate, k.c.now) {
		k.fail("node %d hands out offset %d of %s in term %d, more than %v a second", n.id, m.offset, h, term, g.rate)
	}
	k.c.faults.count("queue: message handed out at a rate")
}

// handedOut looks at what of that leaves the node.
func (x *took) handedOut(got []queue.Delivery) {
	k := x.k
	for i := range got {
		k.c.faults.count("queue: message handed out")
		o := got[i].Lease.Offset
		f := x.fates[o]
		f.handed++
		switch {
		case x.stale[o]:
			k.fail("node %d hands out offset %d of %s, which was done when it was taken", x.n.id, o, x.h)
		case !x.h.g.settings.AutoAck:
			continue
		case f.handed > 1:
			k.fail("node %d hands out offset %d of %s, which acknowledges by itself, for the second time", x.n.id, o, x.h)
		case !f.done && !f.superseded:
			k.fail("node %d hands out offset %d of %s, which acknowledges by itself, and it is not acknowledged", x.n.id, o, x.h)
		}
		k.c.faults.count("queue: message handed out and done")
	}
}

// clockSlack is more than by what two queue clocks differ, in runs in which wall clocks
// are right when a node starts.
const clockSlack = 500 * time.Millisecond

func (k *queueChecker) content(n *node, h *queueHistory, d *queue.Delivery) {
	o := d.Lease.Offset
	if o >= record.Offset(len(h.log)) {
		k.fail("node %d hands out offset %d of group %d, %d are committed", n.id, o, h.t.id, len(h.log))
	}
	want, m := h.log[o], parse(d.Value)
	if m.offset = uint64(o); m != want.message || d.ID != want.id || string(d.Key) != want.key {
		k.fail("node %d hands out client %d's message %d, id %q, as offset %d of group %d, which is client %d's %d, id %q", n.id, m.client, m.sequence, d.ID, o, h.t.id, want.client, want.sequence, want.id)
	}
}

// due: not before its time, by the clock of whoever's was ahead most.
func (k *queueChecker) due(n *node, g *queueGroup, m *storedMessage) {
	if m.dueMillis == 0 {
		return
	}
	k.c.faults.count("queue: delayed message handed out")
	latest := epoch.Add(k.c.now + max(k.q.ahead, 0) + k.c.now/1000 + time.Millisecond).UnixMilli()
	if m.dueMillis > latest {
		k.fail("node %d hands out offset %d of %s %d ms before it is due", n.id, m.offset, g, m.dueMillis-latest)
	}
}

// valid: one lease at a time of a message, as one leader gives them, and of a key; and
// nothing to who has a suspect in hand.
func (k *queueChecker) valid(n *node, gh *cursorHistory, term record.Term, session string, d *queue.Delivery, m *storedMessage) {
	if !k.q.straight {
		return // clocks that run into each other end leases early
	}
	for o, x := range gh.out {
		switch {
		case !k.holds(x, n, term) || o == d.Lease.Offset && x.nonce == d.Lease.Nonce:
		case o == d.Lease.Offset:
			k.fail("node %d hands out offset %d of %s in term %d, which %s has until %v", n.id, o, gh, term, x.session, x.until)
		case x.session == session && (x.alone || d.Alone):
			k.fail("node %d gives %s offset %d of %s (alone %v) while it has offset %d in hand (alone %v)", n.id, session, d.Lease.Offset, gh, d.Alone, o, x.alone)
		case gh.g.settings.OrderByKey && m.key != "" && x.key == m.key:
			k.fail("node %d hands out offset %d of %s, key %s, while %s has offset %d of that key until %v", n.id, d.Lease.Offset, gh, m.key, x.session, o, x.until)
		}
	}
}

// holds says whether a lease is certainly valid at a leader.
func (k *queueChecker) holds(x *handed, n *node, term record.Term) bool {
	return x.node == n && x.life == n.life && x.term == term && x.until > k.c.now
}

// order: all earlier messages of a key are done, but for those sent with a delay.
func (k *queueChecker) order(n *node, h *queueHistory, gh *cursorHistory, m *storedMessage) {
	list := h.byKey[m.key]
	i := gh.first[m.key]
	for i < len(list) && gh.fate(list[i]).done {
		i++
	}
	gh.first[m.key] = i
	if i < len(list) && list[i] < record.Offset(m.offset) {
		k.fail("node %d hands out offset %d of %s, and offset %d of the same key %s is not done", n.id, m.offset, gh, list[i], m.key)
	}
}

// settling looks at a consumer's word on a lease; the answer is to be told.
func (k *queueChecker) settling(n *node, p *partition, g *queueGroup, s queue.Settlement) (heard func(error)) {
	gh, term, o := k.leased(g, s.Lease), p.term(), s.Lease.Offset
	f := gh.fate(o)
	answered := f.answered // later it may be, by another lease, while a majority confirms what is refused
	says := 0
	void := s.Lease.Generation != gh.generation && gh.placed <= term
	held := gh.out[o]
	other := held != nil && held.nonce != s.Lease.Nonce && k.holds(held, n, term) && k.q.straight && !f.done
	switch {
	case s.Verdict == queue.Acknowledge:
		says = gh.says(s.Lease)
		f.said += says
	case s.Verdict == queue.Extend && held != nil && held.nonce == s.Lease.Nonce:
		held.until = min(held.until, k.c.now) // until it is answered
	}
	if s.Verdict != queue.Extend && held != nil && held.nonce == s.Lease.Nonce {
		delete(gh.out, o)
	}
	return func(err error) {
		switch {
		case err == nil && void && s.Verdict != queue.Acknowledge:
			k.fail("node %d takes verdict %d on offset %d of %s by a lease of before it was set elsewhere", n.id, s.Verdict, o, gh)
		case err == nil && other && s.Verdict != queue.Release:
			k.fail("node %d takes verdict %d on offset %d of %s by a lease of term %d, while %s has it by another", n.id, s.Verdict, o, g, s.Lease.Nonce>>32, held.session)
		case s.Verdict != queue.Acknowledge:
		case err == nil:
			k.acknowledged(n, g, f, s.Lease, term)
		case answered && !f.superseded && !unheard(err) && uint64(term) >= s.Lease.Nonce>>32:
			k.fail("node %d answers %v to an acknowledgement of offset %d of %s that was answered already", n.id, err, o, g)
		case !unheard(err):
			f.said -= says // nothing was changed
		}
	}
}

// acknowledged: an acknowledgement is answered.
func (k *queueChecker) acknowledged(n *node, g *queueGroup, f *fate, l queue.Lease, term record.Term) {
	if !f.done && !f.superseded {
		k.fail("node %d answers an acknowledgement of offset %d of %s that is not committed", n.id, l.Offset, g)
	}
	f.answered = true
	k.c.faults.count("queue: acknowledgement answered")
	if l.Nonce>>32 < uint64(term) {
		k.c.faults.count("queue: acknowledged to a later leader")
	}
}

// completing looks at an acknowledge-and-send; the answer is to be told, and is told
// back as whether it was done.
func (k *queueChecker) completing(n *node, x *completion) (heard func([]error, error) bool) {
	taken := map[*fate]int{}
	for _, l := range x.leases {
		gh := k.leased(x.home, l)
		f := gh.fate(l.Offset)
		taken[f] = gh.says(l)
		f.said += taken[f]
		if held := gh.out[l.Offset]; held != nil && held.nonce == l.Nonce {
			delete(gh.out, l.Offset)
		}
	}
	return func(errs []error, err error) bool {
		if err == nil {
			err = errors.Join(errs...)
			x.refused = err != nil
		}
		switch {
		case x.refused:
			for f, says := range taken {
				f.said -= says
			}
			if x.intended {
				k.fail("node %d refuses %s, which is intended: %v", n.id, x.id, err)
			}
			k.c.faults.count("queue: complete refused")
		case err == nil && !x.intended:
			k.fail("node %d answers %s, which is not committed", n.id, x.id)
		}
		return err == nil
	}
}

// saidDone: a consumer that was asked says that a message is done.
func (k *queueChecker) saidDone(g *queueGroup, l queue.Lease) {
	h := k.leased(g, l)
	h.fate(l.Offset).said += h.says(l)
}

// answeredInquiry: what the answer makes of the lease is not known.
func (k *queueChecker) answeredInquiry(g *queueGroup, l queue.Lease) {
	h := k.leased(g, l)
	if x := h.out[l.Offset]; x != nil && x.nonce == l.Nonce {
		delete(h.out, l.Offset)
	}
}

// sessionEnds: a node is told that a session has ended.
func (k *queueChecker) sessionEnds(n *node, session string) {
	for h := range k.cursors {
		for o, x := range h.out {
			if x.node == n && x.session == session {
				delete(h.out, o)
			}
		}
	}
}

// left says what of the queues is not done; "": nothing.
func (k *queueChecker) left() string {
	for h := range k.cursors {
		for o := range k.of(h.g.t).log {
			if f := h.fate(record.Offset(o)); !f.done {
				return fmt.Sprintf("offset %d of %s is neither acknowledged nor dead: failed %d times, handed out %d times", o, h, f.fails, f.leases)
			}
		}
	}
	for _, t := range k.c.teams {
		if t.queue == nil {
			continue
		}
		if h := k.of(t); len(h.intents) > 0 {
			return fmt.Sprintf("%d intents of group %d are not carried out", len(h.intents), t.id)
		}
	}
	return ""
}

// end compares what is left with what happened.
func (k *queueChecker) end() {
	for id := 1; id <= k.q.completes; id++ {
		x := k.completions[fmt.Sprint("complete-", id)]
		if x.intended != (x.stored == 1) {
			k.fail("%s: acknowledged %v, sent %d times", x.id, x.intended, x.stored)
		}
	}
	for h := range k.cursors {
		t := h.g.t
		c := t.leader().here[t.id].machine.(*partition).p.QueueCountsOf(h.g.id, h.member)
		if c.Backlog != 0 || c.Floor != record.Offset(len(k.of(t).log)) {
			k.fail("%s has a backlog of %d, and is at %d of %d", h, c.Backlog, c.Floor, len(k.of(t).log))
		}
		if c.Acknowledged != h.acked || c.Dead != h.died || c.Lost != h.gone {
			k.fail("%s says that %d are acknowledged, %d dead, %d lost; it were %d, %d and %d", h, c.Acknowledged, c.Dead, c.Lost, h.acked, h.died, h.gone)
		}
	}
}
