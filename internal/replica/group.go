package replica

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/wal"
)

// Machine is what a group's committed entries are fed to. All calls but Settle
// come from the group's loop, one at a time; none may block for long.
type Machine interface {
	// Apply applies one committed entry, in index order, each once. It must be
	// deterministic. The result goes to whoever proposed the entry on this node.
	Apply(e Entry) (result any)
	// Applied is called after a run of Apply calls, before their proposers'
	// answers have been awaited: the place to wake readers once.
	Applied()
	// Led is called when the group's leadership changes as this replica sees it.
	Led(s Status)
	// Save returns the state as of the last applied entry, for the checkpoint. An error
	// says that the machine has lost its state: the replica stops.
	Save() ([]byte, error)
	// Restore replaces the state by what another replica's Save returned; what
	// belongs to it outside of these bytes was brought by Spec.Fetch.
	Restore(state []byte) error
	// Settle makes durable what Apply wrote outside of Save's bytes, at least as
	// far as the last Save. It is called off the loop and may take long.
	Settle() error
	// Close is the last call.
	Close()
}

// Fatal is a result of Apply that can say that the machine could not apply the
// entry: the replica stops then, and what is under way is answered with ErrDamaged.
type Fatal interface{ Fatal() error }

// Proposal asks for one entry.
type Proposal struct {
	Data []byte
	// Buf holds Data and is released by the group when it is done with it;
	// nil leaves Data to the garbage collector. Nobody may write to Data any more.
	Buf *record.Buffer
	// Sum, if SumFrom > 0, is the CRC32C of Data[SumFrom:], which the proposer has
	// verified; see wal.Record.
	Sum     uint32
	SumFrom int
	// Done is called once, from the group's loop or from Propose's caller: with
	// the machine's result once applied, or with an error of this package.
	// It must not block.
	Done func(result any, err error)
}

// Spec describes a replica that this node should run.
type Spec struct {
	Group   record.Group
	Replica record.ReplicaID
	// Voters is the group's first membership. It counts only for a group that
	// has no state yet; later memberships come from its log. A replica that joins a
	// group which is there already has none: it waits to be told.
	Voters []record.ReplicaID
	// Peers says on which nodes the other replicas are; see Group.SetPeers.
	Peers   map[record.ReplicaID]record.NodeID
	Machine Machine
	// Fetch brings a copy of the group from a node; see install.go. Nil: this
	// replica cannot be brought up to date by a copy.
	Fetch func(ctx context.Context, from record.NodeID) (Snapshot, error)
	// Damaged, if set, is why the group must not run here; it is added all the
	// same, so that it is named in checkpoints and answers errors.
	Damaged error
	// Urgent groups have a loop of their own, so that however many others there are
	// to run, these go on.
	Urgent bool
	// Relaxed groups are answered when the WAL has written, not synced, their
	// entries. Terms, votes and changes of membership are synced all the same. See
	// lapse.go for what that means to a replica whose machine stops.
	Relaxed bool
	// Volatile, for machines in memory, turns an entry's payload into what the
	// WAL shall keep of it (nil: keep all).
	Volatile func(data []byte) []byte
	Logger   *slog.Logger
}

// Group is one running replica group on this node.
type Group struct {
	spec Spec
	host *Host
	loop *loop

	mu sync.Mutex
	// in is what others have left for the loop. Guarded by mu.
	in     inbox
	queued bool // the group is in its loop's queue
	closed bool

	status atomic.Pointer[Status]
	alone  atomic.Bool // no other replica takes part
	peers  atomic.Pointer[map[record.ReplicaID]record.NodeID]
	damage atomic.Pointer[error] // set once
	// superseded: see Superseded.
	superseded atomic.Bool
	// sure is the last of the host's pauses that left no doubt who leads.
	sure atomic.Int64
	// waitsFor are the nodes that a replica with a lapse waits for; nil: it has none.
	waitsFor atomic.Pointer[[]record.NodeID]

	// old is what the last restart found; immutable.
	old *recovered

	// The rest belongs to the loop.
	core    *core
	dirty   bool // applied or voted since the last checkpoint
	ticking bool
	// quiet: raft's clock stands still; see quiet.go. idleTicks counts towards it.
	quiet     bool
	idleTicks int
	// mark is a leader's word that the group goes quiet, to be followed at the end
	// of the turn.
	mark *raftpb.Message
	// relaxed: entries are answered for before they are synced.
	relaxed bool
	// lapse: this replica may have forgotten the end of its log; nil: it has not.
	lapse *lapse
	// leaderless is how many ticks this replica has known no leader.
	leaderless int
	// heldBack is how many ticks this replica, on a sick node, has left it to others
	// to stand for election since it last heard of a leader.
	heldBack int
	// wary is how many more ticks this replica, which has just started, leaves it to others
	// to elect a leader; see wary.go.
	wary int
	// standIn is after how many ticks to stand for election, if nobody leads then.
	standIn int
	failed  error
	// held is where the WAL began when the replica stopped: what it has of the group
	// behind its last section is nowhere else, so it is kept until the group is removed or
	// the node starts again.
	held  *wal.Position
	spare inbox
	// kept is what was applied at the last checkpoint: followers may still ask for
	// entries behind it.
	kept uint64
	// installing: a copy is being fetched. staged is one that raft is being given.
	installing bool
	staged     *Snapshot
	// unsettled: the machine has taken a copy that is not durable yet.
	unsettled bool
}

type inbox struct {
	proposals []Proposal
	stored    []*writing
	messages  []Message
	calls     []func()
	ticks     int

	messageBytes int
}

func (in *inbox) reset() {
	clear(in.proposals)
	clear(in.stored)
	clear(in.messages)
	clear(in.calls)
	in.proposals, in.stored, in.messages, in.calls = in.proposals[:0], in.stored[:0], in.messages[:0], in.calls[:0]
	in.ticks, in.messageBytes = 0, 0
}

// ID is the group's id.
func (g *Group) ID() record.Group { return g.spec.Group }

// Replica is the id of this node's replica.
func (g *Group) Replica() record.ReplicaID { return g.spec.Replica }

// Status is what this replica knows of the leadership. Any goroutine may ask.
func (g *Group) Status() Status {
	s := *g.status.Load()
	if s.Leading && (g.host.late() || g.sure.Load() < g.host.pauses.Load()) && !g.alone.Load() {
		s.Leading = false
	}
	return s
}

// Alone reports whether no other replica takes part in the group.
func (g *Group) Alone() bool { return g.alone.Load() }

// lost is why something of the group, once the WAL forgets it, would be nowhere;
// nil if its section alone tells all.
func (g *Group) lost() error {
	switch damage := g.Err(); {
	case g.old == nil || damage == nil:
		return nil
	case g.old.damage != nil:
		return g.old.damage
	case len(g.old.slots) > 0:
		return damage
	}
	return nil
}

// Err is why the replica does not run: its data here is damaged; nil if it does.
func (g *Group) Err() error {
	if p := g.damage.Load(); p != nil {
		return *p
	}
	return nil
}

func (g *Group) setDamage(err *error) {
	g.damage.Store(err)
	g.host.damaged.Store(true)
}

// Damaged reports whether any group was found damaged since the host began. While none
// was, nobody need ask thousands of them one by one.
func (h *Host) Damaged() bool { return h.damaged.Load() }

// Propose asks for an entry. See Proposal for how it is answered.
func (g *Group) Propose(p Proposal) {
	g.mu.Lock()
	if g.closed {
		g.mu.Unlock()
		p.Buf.Release()
		p.Done(nil, ErrStopped)
		return
	}
	g.in.proposals = append(g.in.proposals, p)
	g.wakeLocked()
	g.mu.Unlock()
}

// ProposeWait is Propose for callers that wait. If ctx ends first the outcome
// is unknown, and the error says so.
func (g *Group) ProposeWait(ctx context.Context, data []byte) (any, error) {
	type answer struct {
		result any
		err    error
	}
	done := make(chan answer, 1)
	g.Propose(Proposal{Data: data, Done: func(r any, err error) { done <- answer{r, err} }})
	select {
	case a := <-done:
		return a.result, a.err
	case <-ctx.Done():
		return nil, ErrUnknownOutcome
	}
}

// Do runs f in the group's loop, between two entries. It reports false if the
// group is closed, and f will not run.
func (g *Group) Do(f func()) bool {
	ok := g.call(f)
	g.host.single.runNow()
	return ok
}

func (g *Group) call(f func()) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return false
	}
	g.in.calls = append(g.in.calls, f)
	g.wakeLocked()
	return true
}

func (g *Group) tick() {
	g.mu.Lock()
	// A group whose turn is late has its clock slowed down: what its leader sends
	// may be waiting behind as much, and must not be taken for silence.
	if !g.closed && g.in.ticks == 0 {
		g.in.ticks++
		g.wakeLocked()
	}
	g.mu.Unlock()
}

func (g *Group) deliver(w *writing) {
	g.mu.Lock()
	if !g.closed {
		g.in.stored = append(g.in.stored, w)
		g.wakeLocked()
	}
	g.mu.Unlock()
}

// wakeLocked queues the group in its loop, once.
func (g *Group) wakeLocked() {
	if !g.queued {
		g.queued = true
		g.loop.enqueue(g)
	}
}

// take empties the inbox for the loop.
func (g *Group) take() inbox {
	g.mu.Lock()
	in := g.in
	g.in = g.spare
	g.queued = false
	g.mu.Unlock()
	return in
}
