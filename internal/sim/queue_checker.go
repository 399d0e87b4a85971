package sim

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"strconv"
	"strings"
	"time"

	"github.com/tube-mq/tube/internal/broker"
	"github.com/tube-mq/tube/internal/queue"
	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/replica"
)

// queueChecker knows of each queue group what its log says, from the first replica that
// applied an entry, and what was handed out and answered, and compares the two.
type queueChecker struct {
	q           *queues
	c           *cluster
	teams       map[record.Group]*queueHistory
	completions map[string]*completion
}

// queueHistory is one team's.
type queueHistory struct {
	t      *team
	log    []storedMessage // by offset
	byID   map[string]record.Offset
	byKey  map[string][]record.Offset // without those that were sent with a delay
	groups map[queue.GroupID]*groupHistory
	// intents are those of its completions that are not done.
	intents map[string]bool
}

type storedMessage struct {
	message
	id, key   string // key "": none
	dueMillis int64  // 0: at once
}

type groupHistory struct {
	g     *queueGroup
	fates []*fate // by offset
	// first, by key, is which of the key's messages may be the first that is not done.
	first map[string]int
	// letters are messages whose dead letter is committed and which are not let go.
	letters map[record.Offset]bool
	out     map[record.Offset]*handed // the latest leases that were neither settled nor ended
}

// fate is what became of a message in a group.
type fate struct {
	fails, suspects int
	final           bool
	changed         record.Term // of the last entry about it
	done, dead      bool
	// said: so many acknowledgements were asked for, or inquiries answered with done,
	// and were not refused.
	said     int
	answered bool // an acknowledgement was answered
	leases   int  // handed out so often
}

// handed is a lease that was handed out.
type handed struct {
	node    *node
	life    int
	term    record.Term
	nonce   uint64
	session string
	key     string
	alone   bool
	until   time.Duration // certainly valid until then, unless it was settled or its session ended
}

func newQueueChecker(q *queues) *queueChecker {
	return &queueChecker{q: q, c: q.c, teams: map[record.Group]*queueHistory{}, completions: map[string]*completion{}}
}

func (k *queueChecker) fail(format string, args ...any) { k.c.check.fail(format, args...) }

func (k *queueChecker) of(t *team) *queueHistory {
	h := k.teams[t.id]
	if h == nil {
		h = &queueHistory{t: t, byID: map[string]record.Offset{}, byKey: map[string][]record.Offset{}, groups: map[queue.GroupID]*groupHistory{}, intents: map[string]bool{}}
		for _, g := range t.queue.groups {
			h.groups[g.id] = &groupHistory{g: g, first: map[string]int{}, letters: map[record.Offset]bool{}, out: map[record.Offset]*handed{}}
		}
		k.teams[t.id] = h
	}
	return h
}

func (h *groupHistory) fate(o record.Offset) *fate {
	for record.Offset(len(h.fates)) <= o {
		h.fates = append(h.fates, &fate{})
	}
	return h.fates[o]
}

func (k *queueChecker) group(g *queueGroup) *groupHistory { return k.of(g.t).groups[g.id] }

// parse reads what encodeMessage wrote.
func parse(v []byte) message {
	return message{client: binary.LittleEndian.Uint32(v), sequence: binary.LittleEndian.Uint32(v[4:]), sum: crc32.ChecksumIEEE(v[8:])}
}

func summed(m message) message {
	m.sum = crc32.ChecksumIEEE(text(m))
	return m
}

func isLetter(id string) bool { return strings.HasPrefix(id, "dead-") }

// letterID is the message id of a message's dead letter.
func (g *queueGroup) letterID(o record.Offset) string {
	d := queue.DeadLetter{Group: g.id, Source: g.t.partition(), Message: &queue.Message{Offset: o}}
	return d.ID()
}

// applied is told of every entry of a team, once.
func (k *queueChecker) applied(t *team, e replica.Entry, result any) {
	ops, base, stored := broker.Applied(e, result)
	if stored {
		k.batch(t, e.Data, base)
	}
	for i := range ops {
		k.op(t, e.Term, &ops[i])
	}
}

// batch takes down a batch's messages.
func (k *queueChecker) batch(t *team, data []byte, base record.Offset) {
	h := k.of(t)
	if base != record.Offset(len(h.log)) {
		k.fail("group %d stores a batch at offset %d, %d messages are there", t.id, base, len(h.log))
	}
	head, err := record.ParseHeader(data)
	if err == nil {
		err = record.Each(data[:head.SizeBytes()], record.Limits{}, func(r record.Record) bool {
			m := storedMessage{message: parse(r.Value), key: string(r.Key)}
			m.offset = uint64(len(h.log))
			for _, x := range r.Headers {
				switch x.Key {
				case queue.HeaderMessageID:
					m.id = string(x.Value)
				case queue.HeaderDeliverAt:
					m.dueMillis, _ = strconv.ParseInt(string(x.Value), 10, 64)
				}
			}
			k.stored(h, m)
			return true
		})
	}
	if err != nil {
		k.fail("group %d stores what is no batch at offset %d: %v", t.id, base, err)
	}
}

func (k *queueChecker) stored(h *queueHistory, m storedMessage) {
	o := record.Offset(m.offset)
	h.log = append(h.log, m)
	if first, known := h.byID[m.id]; known && m.id != "" && h.t.queue.window > 0 {
		k.fail("group %d stores id %s at offset %d, and had it at %d", h.t.id, m.id, o, first)
	} else if !known && m.id != "" {
		h.byID[m.id] = o
	}
	if m.key != "" && m.dueMillis == 0 {
		h.byKey[m.key] = append(h.byKey[m.key], o)
	}
	if m.dueMillis > 0 {
		k.c.faults.count("queue: sent with a delay")
	}
	if m.client > completing && !isLetter(m.id) {
		x := k.completions[fmt.Sprint("complete-", m.client-completing)]
		x.stored++
		switch {
		case !x.intended:
			k.fail("%s sends its message to group %d, and nothing is acknowledged", x.id, h.t.id)
		case x.stored > 1:
			k.fail("%s sends its message to group %d %d times", x.id, h.t.id, x.stored)
		}
	}
	if isLetter(m.id) {
		k.letter(m)
	}
}

// letter: a dead letter is committed.
func (k *queueChecker) letter(m storedMessage) {
	k.c.faults.count("queue: dead letter written")
	for _, t := range k.c.teams {
		if t.queue == nil {
			continue
		}
		for _, g := range t.queue.groups {
			rest, ok := strings.CutPrefix(m.id, "dead-"+t.partition().String()+"-")
			offset, id, _ := strings.Cut(rest, "-")
			if !ok || id != fmt.Sprint(uint64(g.id)) {
				continue
			}
			o, _ := strconv.ParseInt(offset, 10, 64)
			h := k.group(g)
			if !h.fate(record.Offset(o)).done {
				h.letters[record.Offset(o)] = true
				k.q.window(t, windowLetter, func() bool { return h.letters[record.Offset(o)] })
			}
		}
	}
}

// op takes down one change of a queue's state.
func (k *queueChecker) op(t *team, term record.Term, op *queue.Op) {
	h := k.of(t)
	switch op.Kind {
	case queue.OpIntend:
		x := k.completions[op.Member]
		x.intended, h.intents[x.id] = true, true
		if x.refused {
			k.fail("%s was refused, and is intended all the same", x.id)
		}
		for _, l := range x.leases {
			if !k.group(x.home).fate(l.Offset).done {
				k.fail("%s is intended, and offset %d of %s is not acknowledged", x.id, l.Offset, x.home)
			}
		}
		k.c.faults.count("queue: complete intended")
		k.q.window(t, windowIntent, func() bool { return h.intents[x.id] })
		return
	case queue.OpIntended:
		x := k.completions[op.Member]
		if x.stored == 0 {
			k.fail("%s is done, and its message was not sent", x.id)
		}
		x.carried = true
		delete(h.intents, x.id)
		return
	}
	g := h.groups[op.Group]
	if g == nil {
		return // opened, ticked
	}
	for _, o := range op.Offsets {
		k.settled(h, g, term, op.Kind, o)
	}
	if op.Kind != queue.OpFail {
		return
	}
	f := g.fate(op.Offset)
	f.changed = term
	if f.done {
		return
	}
	f.fails++
	f.final = f.final || op.Final
	k.c.faults.count("queue: delivery failed")
	if f.fails > g.g.settings.MaxAttempts {
		k.fail("offset %d of %s failed %d times, %d are allowed", op.Offset, g.g, f.fails, g.g.settings.MaxAttempts)
	}
}

// settled: an offset is done, dead or a suspect.
func (k *queueChecker) settled(h *queueHistory, g *groupHistory, term record.Term, kind queue.OpKind, o record.Offset) {
	if o >= record.Offset(len(h.log)) {
		k.fail("offset %d of %s is settled (%d), and not there", o, g.g, kind)
	}
	f := g.fate(o)
	f.changed = term
	if f.done {
		return
	}
	switch kind {
	case queue.OpAck:
		if f.said == 0 {
			k.fail("offset %d of %s is acknowledged, and nobody said so", o, g.g)
		}
		f.done = true
		k.c.faults.count("queue: message acknowledged")
	case queue.OpDead:
		if g.g.settings.DeadLetter != "" {
			if _, written := k.of(h.t.queue.other).byID[g.g.letterID(o)]; !written {
				k.fail("offset %d of %s is let go as dead, and no dead letter of it is committed", o, g.g)
			}
		}
		if !f.final && f.fails < g.g.settings.MaxAttempts {
			k.fail("offset %d of %s is dead after %d failures of %d", o, g.g, f.fails, g.g.settings.MaxAttempts)
		}
		f.done, f.dead = true, true
		delete(g.letters, o)
		k.c.faults.count("queue: message dead")
	case queue.OpSuspect:
		if f.suspects++; f.suspects > 1 {
			k.fail("offset %d of %s is a suspect for the second time", o, g.g)
		}
		k.c.faults.count("queue: message suspected")
	}
	if f.done {
		delete(g.out, o)
	}
}

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
			k.fail("group %d says that id %s is at offset %d, first it was at %d", t.id, idOf(m), s.Offset, first)
		}
	}
	k.c.check.acknowledged(t, m, uint64(s.Offset))
}

// taken looks at messages that a node has for a session. It returns those that were done
// already by the word of a later leader: they must not be handed out.
func (k *queueChecker) taken(n *node, p *partition, g *queueGroup, session string, got []queue.Delivery) (stale map[record.Offset]bool) {
	h, gh := k.of(g.t), k.group(g)
	term := p.term()
	for i := range got {
		d := &got[i]
		k.content(n, h, d)
		f := gh.fate(d.Lease.Offset)
		f.leases++
		deposed := f.changed > term // a later leader has had it, of which this one does not know
		m := &h.log[d.Lease.Offset]
		switch {
		case f.done && deposed:
			k.c.faults.count("queue: taken by a deposed leader after it was done")
			if stale == nil {
				stale = map[record.Offset]bool{}
			}
			stale[d.Lease.Offset] = true
		case f.done:
			k.fail("node %d hands out offset %d of %s in term %d, which is done (dead %v, answered %v)", n.id, d.Lease.Offset, g, term, f.dead, f.answered)
		case !deposed && d.Lease.Attempt != f.fails+1:
			k.fail("node %d hands out offset %d of %s as attempt %d, it has failed %d times", n.id, d.Lease.Offset, g, d.Lease.Attempt, f.fails)
		}
		k.due(n, g, m)
		k.valid(n, gh, term, session, d, m)
		if g.settings.OrderByKey && m.key != "" {
			k.order(n, h, gh, m)
		}
		gh.out[d.Lease.Offset] = &handed{
			node: n, life: n.life, term: term, nonce: d.Lease.Nonce, session: session, key: m.key, alone: d.Alone,
			until: k.c.now + g.settings.Lease - clockSlack,
		}
	}
	return stale
}

// handedOut looks at what of that leaves the node.
func (k *queueChecker) handedOut(n *node, g *queueGroup, got []queue.Delivery, stale map[record.Offset]bool) {
	for i := range got {
		k.c.faults.count("queue: message handed out")
		if o := got[i].Lease.Offset; stale[o] {
			k.fail("node %d hands out offset %d of %s, which was done when it was taken", n.id, o, g)
		}
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
func (k *queueChecker) valid(n *node, gh *groupHistory, term record.Term, session string, d *queue.Delivery, m *storedMessage) {
	if !k.q.straight {
		return // clocks that run into each other end leases early
	}
	for o, x := range gh.out {
		switch {
		case !k.holds(x, n, term) || o == d.Lease.Offset && x.nonce == d.Lease.Nonce:
		case o == d.Lease.Offset:
			k.fail("node %d hands out offset %d of %s in term %d, which %s has until %v", n.id, o, gh.g, term, x.session, x.until)
		case x.session == session && (x.alone || d.Alone):
			k.fail("node %d gives %s offset %d of %s (alone %v) while it has offset %d in hand (alone %v)", n.id, session, d.Lease.Offset, gh.g, d.Alone, o, x.alone)
		case gh.g.settings.OrderByKey && m.key != "" && x.key == m.key:
			k.fail("node %d hands out offset %d of %s, key %s, while %s has offset %d of that key until %v", n.id, d.Lease.Offset, gh.g, m.key, x.session, o, x.until)
		}
	}
}

// holds says whether a lease is certainly valid at a leader.
func (k *queueChecker) holds(x *handed, n *node, term record.Term) bool {
	return x.node == n && x.life == n.life && x.term == term && x.until > k.c.now
}

// order: all earlier messages of a key are done, but for those sent with a delay.
func (k *queueChecker) order(n *node, h *queueHistory, gh *groupHistory, m *storedMessage) {
	list := h.byKey[m.key]
	i := gh.first[m.key]
	for i < len(list) && gh.fate(list[i]).done {
		i++
	}
	gh.first[m.key] = i
	if i < len(list) && list[i] < record.Offset(m.offset) {
		k.fail("node %d hands out offset %d of %s, and offset %d of the same key %s is not done", n.id, m.offset, gh.g, list[i], m.key)
	}
}

// settling looks at a consumer's word on a lease; the answer is to be told.
func (k *queueChecker) settling(n *node, p *partition, g *queueGroup, s queue.Settlement) (heard func(error)) {
	gh, term, o := k.group(g), p.term(), s.Lease.Offset
	f := gh.fate(o)
	held := gh.out[o]
	other := held != nil && held.nonce != s.Lease.Nonce && k.holds(held, n, term) && k.q.straight && !f.done
	switch {
	case s.Verdict == queue.Acknowledge:
		f.said++
	case s.Verdict == queue.Extend && held != nil && held.nonce == s.Lease.Nonce:
		held.until = min(held.until, k.c.now) // until it is answered
	}
	if s.Verdict != queue.Extend && held != nil && held.nonce == s.Lease.Nonce {
		delete(gh.out, o)
	}
	return func(err error) {
		switch {
		case err == nil && other && s.Verdict != queue.Release:
			k.fail("node %d takes verdict %d on offset %d of %s by a lease of term %d, while %s has it by another", n.id, s.Verdict, o, g, s.Lease.Nonce>>32, held.session)
		case s.Verdict != queue.Acknowledge:
		case err == nil:
			k.acknowledged(n, g, f, s.Lease, term)
		case f.answered && !unheard(err) && uint64(term) >= s.Lease.Nonce>>32:
			k.fail("node %d answers %v to an acknowledgement of offset %d of %s that was answered already", n.id, err, o, g)
		case !unheard(err):
			f.said-- // nothing was changed
		}
	}
}

// acknowledged: an acknowledgement is answered.
func (k *queueChecker) acknowledged(n *node, g *queueGroup, f *fate, l queue.Lease, term record.Term) {
	if !f.done {
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
	gh := k.group(x.home)
	for _, l := range x.leases {
		gh.fate(l.Offset).said++
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
			for _, l := range x.leases {
				gh.fate(l.Offset).said--
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
func (k *queueChecker) saidDone(g *queueGroup, o record.Offset) { k.group(g).fate(o).said++ }

// answeredInquiry: what the answer makes of the lease is not known.
func (k *queueChecker) answeredInquiry(g *queueGroup, l queue.Lease) {
	if x := k.group(g).out[l.Offset]; x != nil && x.nonce == l.Nonce {
		delete(k.group(g).out, l.Offset)
	}
}

// sessionEnds: a node is told that a session has ended.
func (k *queueChecker) sessionEnds(n *node, session string) {
	for _, t := range k.c.teams {
		if t.queue == nil {
			continue
		}
		for _, g := range t.queue.groups {
			for o, x := range k.group(g).out {
				if x.node == n && x.session == session {
					delete(k.group(g).out, o)
				}
			}
		}
	}
}

// left says what of the queues is not done; "": nothing.
func (k *queueChecker) left() string {
	for _, t := range k.c.teams {
		if t.queue == nil {
			continue
		}
		h := k.of(t)
		for _, g := range t.queue.groups {
			for o := range h.log {
				if f := k.group(g).fate(record.Offset(o)); !f.done {
					return fmt.Sprintf("offset %d of %s is neither acknowledged nor dead: failed %d times, handed out %d times", o, g, f.fails, f.leases)
				}
			}
		}
		for id := range h.intents {
			return fmt.Sprintf("%d intents of group %d are not carried out, among them one; see %d", len(h.intents), t.id, len(id))
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
	for _, t := range k.c.teams {
		if t.queue == nil {
			continue
		}
		lead := t.leader()
		for _, g := range t.queue.groups {
			c := lead.here[t.id].machine.(*partition).p.QueueCounts(g.id)
			if c.Backlog != 0 || c.Floor != record.Offset(len(k.of(t).log)) {
				k.fail("%s has a backlog of %d, and is at %d of %d", g, c.Backlog, c.Floor, len(k.of(t).log))
			}
		}
	}
}
