package sim

import (
	"fmt"
	"hash/crc32"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/replica"
)

// checker holds what the whole run has shown so far, and fails when something
// contradicts it.
type checker struct {
	c   *cluster
	err error
	// groups is what is known of each.
	groups map[record.Group]*history
	// promised is what replicas have told others to have on disk.
	promised map[member]*promise
}

type member struct {
	group   record.Group
	replica record.ReplicaID
}

// history is one group's, over all nodes and for good.
type history struct {
	entries map[record.Index]entry
	leaders map[uint64]record.ReplicaID // by term
	// reached is the highest index known to be committed that is of a term.
	reached map[uint64]record.Index
	states  map[uint64]uint32 // digest of the machine by applied index
	values  []message         // by offset
	acked   []message
	// at has the entry that gave an offset, of relaxed groups.
	at map[uint64]record.Index
	// forgotten has, of relaxed groups, the nodes whose replica has lost entries that it
	// had confirmed, from which on, until it has them again.
	forgotten map[record.NodeID]record.Index
	// losable: entries from here on may be gone, as two of three have forgotten them; 0: none.
	losable record.Index
	losses  int // how often something acknowledged was lost
	// lostAt and lostIn are from where on, and by which leader's term, it was the last time.
	lostAt record.Index
	lostIn uint64
}

// entry is what a committed entry is on every replica.
type entry struct {
	term   record.Term
	sum    uint32
	result string
	prev   record.Index // applied before it; 0: not known
}

type promise struct {
	votes map[uint64]uint64 // by term: for whom
	// term and index of the last entries that were said to be durable.
	term, index uint64
	// applied is the last entry that was applied: a leader promises to itself.
	applied uint64
}

// violation ends a run; the error is in the checker.
type violation struct{}

func newChecker(c *cluster) *checker {
	return &checker{c: c, groups: map[record.Group]*history{}, promised: map[member]*promise{}}
}

func (k *checker) fail(format string, args ...any) {
	k.err = fmt.Errorf(format, args...)
	k.c.log("VIOLATION: %v", k.err)
	panic(violation{})
}

func (k *checker) of(g record.Group) *history {
	h := k.groups[g]
	if h == nil {
		h = &history{entries: map[record.Index]entry{}, leaders: map[uint64]record.ReplicaID{}, reached: map[uint64]record.Index{}, states: map[uint64]uint32{}, at: map[uint64]record.Index{}, forgotten: map[record.NodeID]record.Index{}}
		k.groups[g] = h
	}
	return h
}

func (k *checker) promiseOf(m member) *promise {
	p := k.promised[m]
	if p == nil {
		p = &promise{votes: map[uint64]uint64{}}
		k.promised[m] = p
	}
	return p
}

// sent looks at a message that leaves a node: what it promises must be durable.
func (k *checker) sent(n *node, body []byte) {
	g, m, err := replica.Peek(body)
	if err != nil {
		k.fail("node %d sends what does not decode: %v", n.id, err)
	}
	p := k.promiseOf(member{g, record.ReplicaID(m.GetFrom())})
	switch {
	case m.GetReject():
	case m.GetType() == raftpb.MsgVoteResp:
		if for1, voted := p.votes[m.GetTerm()]; voted && for1 != m.GetTo() {
			k.fail("replica %d of group %d votes in term %d for %d and for %d", m.GetFrom(), g, m.GetTerm(), for1, m.GetTo())
		}
		p.votes[m.GetTerm()] = m.GetTo()
	case m.GetType() == raftpb.MsgAppResp:
		switch {
		case m.GetTerm() > p.term:
			p.term, p.index = m.GetTerm(), m.GetIndex()
		case m.GetTerm() == p.term:
			p.index = max(p.index, m.GetIndex())
		}
	}
}

// joined compares what a start found with what the replica has promised.
func (k *checker) joined(n *node, h *hosted) {
	l := n.host.Look(h.group, true)
	if l == nil {
		return // damaged
	}
	p := k.promiseOf(member{h.t.id, h.id})
	if l.Term < p.term {
		k.fail("replica %d of group %d comes back in term %d, but has answered in term %d", h.id, h.t.id, l.Term, p.term)
	}
	for term, who := range p.votes {
		if term > l.Term || term == l.Term && l.Vote != who {
			k.fail("replica %d of group %d comes back in term %d with vote %d, but has voted in term %d for %d", h.id, h.t.id, l.Term, l.Vote, term, who)
		}
	}
	if h.t.relaxed && (l.Term == p.term && l.Last < p.index || l.Last < p.applied) {
		if _, lapsed := h.group.Lapsed(); !lapsed {
			k.fail("replica %d of group %d comes back with entries up to %d, has said to have %d, and takes itself for whole", h.id, h.t.id, l.Last, max(p.index, p.applied))
		}
		k.forgot(h.t, n.id, record.Index(l.Last+1))
		p.index, p.applied = min(p.index, l.Last), l.Last
	}
	if l.Term == p.term && l.Last < p.index {
		k.fail("replica %d of group %d comes back with entries up to %d, but has said to have %d", h.id, h.t.id, l.Last, p.index)
	}
	h.from = record.Index(l.Applied)
	k.overruled(h, l)
	k.state(h, l)
}

// state compares a machine's state with what others had at the same index.
func (k *checker) state(h *hosted, l *replica.Look) {
	if h.overruled {
		return
	}
	hist := k.of(h.t.id)
	sum := crc32.ChecksumIEEE(l.State)
	if old, known := hist.states[l.Applied]; known && old != sum {
		k.fail("replica %d of group %d has another state at entry %d than others had", h.id, h.t.id, l.Applied)
	}
	hist.states[l.Applied] = sum
}

// applied: one value per index, in order, each once, with one result.
func (k *checker) applied(n *node, h *hosted, e replica.Entry, result any) {
	if e.Data == nil {
		k.c.log("n%d g%d takes a copy of entry %d", n.id, h.t.id, e.Index)
		if e.Index < max(h.last, h.from) {
			k.fail("replica %d of group %d goes back to entry %d from %d", h.id, h.t.id, e.Index, max(h.last, h.from))
		}
		h.last, h.from = 0, e.Index
		return
	}
	if e.Index <= max(h.last, h.from) {
		k.fail("replica %d of group %d applies entry %d again", h.id, h.t.id, e.Index)
	}
	p := k.promiseOf(member{h.t.id, h.id})
	p.applied = max(p.applied, uint64(e.Index))
	hist := k.of(h.t.id)
	now := entry{term: e.Term, sum: crc32.ChecksumIEEE(e.Data), result: h.t.kind.outcome(result), prev: h.last}
	old, known := hist.entries[e.Index]
	switch {
	case !known:
		hist.entries[e.Index] = now
		if a, ok := result.(answer); ok && h.t.relaxed && a.err == nil {
			if _, known := hist.at[a.offset]; !known {
				hist.at[a.offset] = e.Index
			}
		}
		hist.reached[uint64(e.Term)] = max(hist.reached[uint64(e.Term)], e.Index)
		k.c.log("n%d g%d applies %d of term %d: %s", n.id, h.t.id, e.Index, e.Term, now.result)
		if h.t.queue != nil {
			k.c.queues.check.applied(h.t, e, result)
		}
	case old.term != now.term || old.sum != now.sum:
		k.fail("entry %d of group %d is of term %d, sum %08x on replica %d, and was of term %d, sum %08x", e.Index, h.t.id, now.term, now.sum, h.id, old.term, old.sum)
	case old.result != now.result:
		k.fail("entry %d of group %d gave %s on replica %d, and %s elsewhere", e.Index, h.t.id, now.result, h.id, old.result)
	case old.prev != 0 && now.prev != 0 && old.prev != now.prev:
		k.fail("replica %d of group %d applies entry %d after %d, others after %d", h.id, h.t.id, e.Index, now.prev, old.prev)
	}
	h.last = e.Index
}

// looked is called whenever a node has done something.
func (k *checker) looked(n *node) {
	for _, t := range k.c.teams {
		h := n.here[t.id]
		if h == nil || h.group == nil {
			continue
		}
		s := h.group.Status()
		hist := k.of(t.id)
		if _, lapsed := h.group.Lapsed(); !lapsed && t.settled {
			delete(hist.forgotten, n.id)
		}
		if s.Leader != h.id {
			continue
		}
		term := uint64(s.Term)
		if other, known := hist.leaders[term]; known && other != h.id {
			k.fail("replicas %d and %d of group %d both lead in term %d", other, h.id, t.id, term)
		} else if !known {
			hist.leaders[term] = h.id
			k.c.faults.count("leader elected")
			k.c.log("n%d leads g%d in term %d", n.id, t.id, term)
			k.elected(n, h)
		}
		if s.Leading && h.served != term {
			h.served = term
			k.serves(n, h, term)
		}
	}
}

// serves: a leader that may serve has applied everything that was committed in
// earlier terms.
func (k *checker) serves(n *node, h *hosted, term uint64) {
	l := n.host.Look(h.group, false)
	if l == nil {
		return
	}
	for t, index := range k.of(h.t.id).reached {
		if t < term && uint64(index) > l.Applied {
			k.fail("replica %d of group %d serves in term %d with entries up to %d applied, but %d of term %d is committed", h.id, h.t.id, term, l.Applied, index, t)
		}
	}
}

// inspect looks at everything that runs on a node.
func (k *checker) inspect(n *node) {
	for _, t := range k.c.teams {
		h := n.here[t.id]
		if h == nil || h.group == nil {
			continue
		}
		l := n.host.Look(h.group, true)
		if l == nil {
			continue
		}
		if l.Applied > l.Committed || l.Applied > l.Stored || l.Committed > l.Last {
			k.fail("replica %d of group %d: applied %d, committed %d, durable %d, last %d", h.id, t.id, l.Applied, l.Committed, l.Stored, l.Last)
		}
		k.state(h, l)
	}
}

// value: an offset has one message, for good.
func (k *checker) value(t *team, m message) {
	hist := k.of(t.id)
	for uint64(len(hist.values)) <= m.offset {
		hist.values = append(hist.values, message{offset: 1 << 63})
	}
	if old := hist.values[m.offset]; old.offset != 1<<63 && old != m {
		k.fail("offset %d of group %d is client %d's sequence %d, and was client %d's %d", m.offset, t.id, m.client, m.sequence, old.client, old.sequence)
	}
	hist.values[m.offset] = m
}

func (k *checker) acknowledged(t *team, m message, offset uint64) {
	m.offset = offset
	k.value(t, m)
	hist := k.of(t.id)
	hist.acked = append(hist.acked, m)
	k.c.faults.count("message acknowledged")
}

// ackedOf is how many messages of a team have been acknowledged.
func (k *checker) ackedOf(t *team) int { return len(k.of(t.id).acked) }

// read checks what a reader got: everything acknowledged before it asked, from where
// the log begins, each client's messages in order and once, but those sent to queues.
func (k *checker) read(t *team, list []message, seen int) {
	last := map[uint32]uint32{}
	for _, m := range list {
		k.value(t, m)
		if m.sequence != last[m.client]+1 && t.queue == nil {
			k.fail("group %d: at offset %d is client %d's sequence %d after its %d", t.id, m.offset, m.client, m.sequence, last[m.client])
		}
		last[m.client] = m.sequence
	}
	first, start := uint64(0), uint64(0)
	if t.queue != nil {
		start = uint64(k.c.queues.check.of(t).start)
		first = start
	}
	if len(list) > 0 {
		first = list[0].offset
	}
	if first > start {
		k.fail("group %d begins at offset %d, it was to begin at %d", t.id, first, start)
	}
	for _, m := range k.of(t.id).acked[:min(seen, len(k.of(t.id).acked))] {
		if m.offset < first {
			continue
		}
		if i := m.offset - first; i >= uint64(len(list)) || list[i] != m {
			k.fail("group %d: client %d's sequence %d, acknowledged at offset %d, is not there: %d are", t.id, m.client, m.sequence, m.offset, len(list))
		}
	}
}
