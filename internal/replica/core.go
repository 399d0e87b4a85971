package replica

import (
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"slices"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"
	"go.etcd.io/raft/v3/tracker"

	"github.com/tube-mq/tube/internal/record"
)

const (
	thinBytes = 8
	// maxUncommittedEntries bounds what a leader appends before it is committed,
	// counted in thin bytes. The bytes that clients may have under way are
	// bounded by the doors.
	maxUncommittedEntries = 64 << 10
	maxInflightMessages   = 256
	maxMessageBytes       = 1 << 20

	electionTicks  = 8
	heartbeatTicks = 2
)

// Entry is one committed entry as a machine sees it.
type Entry struct {
	Index record.Index
	Term  record.Term
	// Data is what was proposed. It lies in Buf when Buf is not nil: a machine
	// that keeps bytes of it past Apply retains Buf. Nobody writes to it.
	Data []byte
	Buf  *record.Buffer
}

// Status says what a replica knows of its group's leadership.
type Status struct {
	Term   record.Term
	Leader record.ReplicaID // 0: none known
	// Leading: this replica leads and has committed in its own term, so that it
	// may serve.
	Leading bool
}

// core is a group's consensus: pure, one goroutine's, no clock, no I/O.
// Events: propose, step, stored, tick. Effects: ready.
type core struct {
	id  record.ReplicaID
	rn  *raft.RawNode
	log entryLog

	// tokens holds payloads of thin entries that raft has not given an index yet:
	// tokens[i] is named firstToken+i. All of a turn are taken or dropped by its end.
	tokens     []pending
	firstToken uint64
	proposal   proposalScratch
	// waiting are proposals of ours with an index, in index order.
	waiting []waiter
	// campaigned is the term in which this replica became leader; it serves once
	// an entry of that term is applied.
	lead    bool
	serving bool
	// soft is what raft said last of the leadership.
	soft raft.SoftState
	// doubt: this process did not run for so long that others may lead by now; it
	// does not serve until a majority has confirmed it.
	doubt  bool
	term   uint64
	leader uint64

	// applied is the last index handed to the machine.
	applied uint64
	// everyone is an index that all of the group's replicas are known to have
	// durably: nobody will ask for entries up to it. The leader finds it, followers
	// are told.
	everyone uint64
	// told and lost are replicas that a message was just sent to: that they need a
	// copy, and one that was dropped.
	told, lost []uint64
	// owed are commits that raft believes to have told, by replica; see commits.go.
	owed map[uint64]uint64
	// lapsed are replicas that have said, to this leader in its term, that they may have
	// forgotten something; see lapse.go.
	lapsed map[uint64]bool
	// reads are waiting for raft to confirm that this replica still leads.
	reads readQueue
	// confAt is the end of the log when the membership last changed, or when this
	// replica began to lead if that was later; see confKept. confAsked: an entry
	// behind it was proposed.
	confAt    uint64
	confAsked bool
	// commitUnsaved: the commit index moved since the hard state was last
	// written. It rides along with the next write: it needs no fsync of its own.
	commitUnsaved bool
	// awaited is what raft will be told when the last write is durable.
	awaited *raftpb.Message
}

type pending struct {
	payload payload
	done    func(any, error)
	taken   bool
}

type waiter struct {
	index, term uint64
	done        func(any, error)
}

// start is where a core begins: from a checkpoint and the WAL behind it, or empty.
type start struct {
	id      record.ReplicaID
	applied uint64
	log     entryLog
}

func newCore(s start, logger *slog.Logger) (*core, error) {
	c := &core{id: s.id, log: s.log, applied: s.applied}
	c.log.unloaded = c.log.base
	rn, err := raft.NewRawNode(&raft.Config{
		ID:                        uint64(s.id),
		ElectionTick:              electionTicks,
		HeartbeatTick:             heartbeatTicks,
		Storage:                   &c.log,
		Applied:                   s.applied,
		AsyncStorageWrites:        true,
		MaxSizePerMsg:             maxMessageBytes,
		MaxUncommittedEntriesSize: maxUncommittedEntries * thinBytes,
		MaxInflightMsgs:           maxInflightMessages,
		CheckQuorum:               true,
		PreVote:                   true,
		ReadOnlyOption:            raft.ReadOnlySafe,
		DisableProposalForwarding: true,
		StepDownOnRemoval:         true,
		Logger:                    raftLogger{logger},
	})
	if err != nil {
		return nil, fmt.Errorf("replica %d: %w", s.id, err)
	}
	c.rn = rn
	st := rn.BasicStatus()
	c.soft = st.SoftState
	c.observe(c.soft, st.HardState.GetTerm())
	return c, nil
}

// soleVoter reports whether this replica is its group's only voter: then
// nothing has to be awaited, and no ticks are needed once it leads.
func (c *core) soleVoter() bool {
	v := c.log.conf.GetVoters()
	return len(v) == 1 && v[0] == uint64(c.id) && len(c.log.conf.GetVotersOutgoing()) == 0
}

// campaign asks for an election at once. A sole voter need not wait for a timeout.
func (c *core) campaign() error { return c.rn.Campaign() }

// propose hands proposals to raft as one message. On failure every proposal is
// answered: nothing of it is in the log.
func (c *core) propose(props []Proposal) {
	if len(props) == 0 {
		return
	}
	first := c.firstToken + uint64(len(c.tokens))
	m := c.proposal.message(uint64(c.id), len(props))
	for i, p := range props {
		t := c.addToken(pending{payload: payload{p.Data, p.Buf, p.Sum, p.SumFrom}, done: p.Done})
		binary.LittleEndian.PutUint64(m.Entries[i].Data, t)
	}
	err := c.rn.Step(m)
	if err == nil {
		return
	}
	refusal := ErrNotLeader
	if c.lead && errors.Is(err, raft.ErrProposalDropped) {
		refusal = ErrBusy
	}
	for t := first; t < c.firstToken+uint64(len(c.tokens)); t++ {
		p, _ := c.takeToken(t)
		p.payload.release()
		p.done(nil, refusal)
	}
}

// effects are what a loop has to carry out, in this order: write, then send
// what follows the write once it is durable; apply.
type effects struct {
	// first and last bound the entries to write, taken from the log; last < first: none.
	first, last uint64
	hard        *raftpb.HardState // nil: unchanged
	// after are responses to deliver once the write is durable, ours and peers'.
	after []*raftpb.Message
	// durable: somebody waits for the write. votes: it carries a term or a vote.
	durable, votes bool

	// snapshot: the log begins anew behind what is being installed.
	snapshot bool

	messages []*raftpb.Message
	reads    []raft.ReadState
	apply    []*raftpb.Entry
	applied  []*raftpb.Message // responses to step once applied
}

// ready takes what raft wants done. It reports false if there is nothing.
func (c *core) ready() (effects, bool) {
	if !c.rn.HasReady() {
		return effects{}, false
	}
	rd := c.rn.Ready()
	e := effects{first: 1}
	if rd.SoftState != nil || !raft.IsEmptyHardState(rd.HardState) {
		term := c.term
		if rd.SoftState != nil {
			c.soft = *rd.SoftState
		}
		if !raft.IsEmptyHardState(rd.HardState) {
			term = rd.HardState.GetTerm()
		}
		c.observe(c.soft, term)
	}
	e.reads = rd.ReadStates
	for _, m := range rd.Messages {
		switch {
		case m.GetTo() == raft.LocalAppendThread:
			c.prepareWrite(m, &e)
		case m.GetTo() == raft.LocalApplyThread:
			e.apply, e.applied = m.GetEntries(), m.GetResponses() // there is one such message
		case m.GetType() == raftpb.MsgVote:
			// Raft would have it sent at once. But a candidate whom the others elect
			// before its own term is durable, and who then crashes, would be elected in
			// the same term again, with another log.
			e.after = append(e.after, m)
			e.durable = true
		default:
			e.messages = append(e.messages, m)
		}
	}
	return e, true
}

// prepareWrite takes entries into the log, gives proposals their index, and
// says what the WAL must hold.
func (c *core) prepareWrite(m *raftpb.Message, e *effects) {
	if !raft.IsEmptySnap(m.GetSnapshot()) {
		e.snapshot = true
		c.restart(m.GetSnapshot().GetMetadata())
	}
	for _, en := range m.GetEntries() {
		index, term := en.GetIndex(), en.GetTerm()
		if e.last < e.first {
			e.first = index
		}
		e.last = index
		s := slot{term: term, kind: en.GetType(), entry: en}
		if s.kind != raftpb.EntryNormal {
			s.payload = payload{data: en.GetData()}
		} else if d := en.GetData(); len(d) == thinBytes {
			t := binary.LittleEndian.Uint64(d)
			p, ok := c.takeToken(t)
			if !ok {
				panic(fmt.Sprintf("replica: entry %d names payload %d, which is not there", index, t))
			}
			s.payload = p.payload
			if p.done != nil {
				c.waiting = append(c.waiting, waiter{index, term, p.done})
			}
		}
		c.log.append(index, s)
	}
	if m.Term != nil || m.Vote != nil || m.Commit != nil {
		h := &raftpb.HardState{Term: m.Term, Vote: m.Vote, Commit: m.Commit} // raft sets all or none
		onlyCommit := c.log.hard.GetTerm() == h.GetTerm() && c.log.hard.GetVote() == h.GetVote()
		c.log.hard = h
		if onlyCommit {
			c.commitUnsaved = true
		} else {
			e.hard, e.votes = h, true
		}
	}
	if after := c.unknown(m, *e); len(e.after) == 0 {
		e.after = after
	} else {
		e.after = append(e.after, after...)
	}
	e.durable = e.durable || len(e.after) > 0
	if e.last >= e.first && c.commitUnsaved {
		e.hard = c.log.hard
	}
	if e.hard != nil {
		c.commitUnsaved = false
	}
}

// unknown returns the responses of a write but for one that says nothing new:
// while entries are being written, raft repeats with each change of the commit
// index what it wants to hear of them, and the write that they are in says it. It
// would cost a write without records, and a turn, for each.
func (c *core) unknown(m *raftpb.Message, e effects) []*raftpb.Message {
	after := m.GetResponses()
	if len(after) == 0 {
		return nil
	}
	last := after[len(after)-1]
	if last.GetType() != raftpb.MsgStorageAppendResp {
		return after
	}
	nothing := len(m.GetEntries()) == 0 && !e.snapshot && e.hard == nil
	if w := c.awaited; nothing && len(after) == 1 && w != nil && w.GetTerm() == last.GetTerm() &&
		w.GetIndex() == last.GetIndex() && w.GetLogTerm() == last.GetLogTerm() {
		return nil
	}
	c.awaited = last
	return after
}

// step takes a message from raft's own storage threads or from a peer.
func (c *core) step(m *raftpb.Message) {
	// Errors mean that the message does not matter any more (an unknown peer, a
	// proposal nobody takes): raft's own answer to a lossy network.
	_ = c.rn.Step(m)
}

// receive takes a peer's message, whose entries carry their payloads. The
// message's reference to its buffer is taken over.
func (c *core) receive(m Message) {
	for _, en := range m.raft.GetEntries() {
		if en.GetType() != raftpb.EntryNormal {
			en.Data = slices.Clone(en.GetData()) // raft keeps it, and it outlives the buffer
			continue
		}
		if len(en.GetData()) == 0 {
			continue
		}
		t := c.addToken(pending{payload: payload{data: en.GetData(), buf: m.buf.Retain()}})
		en.Data = binary.LittleEndian.AppendUint64(nil, t)
	}
	c.everyone = max(c.everyone, m.everyone)
	c.step(m.raft)
	m.buf.Release()
}

// restart begins the log behind a snapshot that was installed.
func (c *core) restart(meta *raftpb.SnapshotMetadata) {
	c.log.truncate(c.log.base)
	c.log.base, c.log.baseTerm, c.log.conf = meta.GetIndex(), meta.GetTerm(), meta.GetConfState()
	c.applied = meta.GetIndex()
	c.everyone = min(c.everyone, c.applied)
	for _, w := range c.waiting {
		w.done(nil, ErrUnknownOutcome)
	}
	c.waiting = nil
}

// entry returns a committed entry's payload for the machine.
func (c *core) entry(e *raftpb.Entry) Entry {
	s := c.log.at(e.GetIndex())
	if s == nil || s.term != e.GetTerm() {
		panic(fmt.Sprintf("replica: committed entry %d of term %d is not in the log", e.GetIndex(), e.GetTerm()))
	}
	return Entry{record.Index(e.GetIndex()), record.Term(s.term), s.payload.data, s.payload.buf}
}

// finish marks an index as applied and answers who proposed it.
func (c *core) finish(index, term uint64, result any) {
	c.applied = index
	if s := c.log.at(index); s != nil {
		s.entry = nil // seldom asked for from here on
	}
	if c.lead && term == c.term {
		c.serving = true
	}
	for len(c.waiting) > 0 && c.waiting[0].index <= index {
		w := c.waiting[0]
		c.waiting[0] = waiter{}
		c.waiting = c.waiting[1:]
		if w.index == index && w.term == term {
			w.done(result, nil)
		} else {
			// Another leader's entry stands where ours was.
			w.done(nil, ErrNotLeader)
		}
	}
	if len(c.waiting) == 0 {
		c.waiting = nil
	}
}

// observe follows leadership. A deposed leader's proposals have an unknown fate.
func (c *core) observe(soft raft.SoftState, term uint64) {
	c.leader = soft.Lead
	lead := soft.RaftState == raft.StateLeader
	if lead && (!c.lead || term != c.term) {
		c.serving = false
		c.confAt, c.confAsked = c.log.last(), false
	}
	if c.lead && (!lead || term != c.term) {
		c.serving = false
		for _, w := range c.waiting {
			w.done(nil, ErrUnknownOutcome)
		}
		c.waiting = nil
		c.reads.fail(ErrNotLeader)
	}
	if !lead || term != c.term {
		c.doubt, c.lapsed = false, nil
	}
	c.lead, c.term = lead, term
}

func (c *core) status() Status {
	return Status{record.Term(c.term), record.ReplicaID(c.leader), c.lead && c.serving && !c.doubt}
}

// alone reports whether no other replica takes part in the group.
func (c *core) alone() bool { return c.soleVoter() && len(c.log.conf.GetLearners()) == 0 }

// trim forgets entries that nobody needs any more.
func (c *core) trim() {
	if c.alone() {
		c.everyone = c.applied
	} else if c.lead {
		everyone := c.log.last()
		c.rn.WithProgress(func(_ uint64, _ raft.ProgressType, pr tracker.Progress) { everyone = min(everyone, pr.Match) })
		c.everyone = max(c.everyone, everyone)
	}
	c.log.compact(min(c.applied, c.everyone))
}

// unload leaves payloads of applied entries to the WAL, the oldest first, until
// at most keepBytes of them are in memory: machines that were told to keep them do
// so by themselves, and a follower that asks late is served from the disk.
func (c *core) unload(keepBytes int) { c.log.unload(c.applied, keepBytes) }

// abandon answers everything that is under way when the replica closes.
func (c *core) abandon(err error) {
	for _, w := range c.waiting {
		w.done(nil, err)
	}
	c.waiting = nil
	c.dropTokensWith(err)
	c.reads.fail(err)
	c.log.truncate(c.log.base)
}
