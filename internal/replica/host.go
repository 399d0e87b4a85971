package replica

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"path"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/tube-mq/tube/internal/pulse"
	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/vfs"
	"github.com/tube-mq/tube/internal/wal"
)

// Config of a Host. Zero values are replaced by the defaults named here.
type Config struct {
	FS     vfs.FS
	Dir    string // holds wal/ and checkpoint/
	WAL    wal.Config
	Loops  int // goroutines that run groups: one per processor
	Logger *slog.Logger
	// A checkpoint is made when the WAL has grown by this much since the last.
	CheckpointBytes   int64         // 1 GiB
	CheckpointEntries int64         // 1,000,000
	TickInterval      time.Duration // of raft's clock: 100 ms
	// Boot is the id of the machine's present run, from its start to its stop; "": it is
	// not known. See boot.go.
	Boot string
	// Transport carries messages to other nodes; nil: there are none.
	Transport Transport
	// Alive reports whether a node was heard of lately; nil: always. Groups go
	// quiet only while it does; see PeerDown.
	Alive func(record.NodeID) bool
	// Sick reports whether another node's disk is slow, so that it should not lead;
	// nil: none is. Of its own a host is told: see SetSick.
	Sick func(record.NodeID) bool
	// OnFail is told once when a write or fsync failed: the node must stop.
	OnFail func(error)
}

func (c *Config) setDefaults() {
	if c.Loops == 0 {
		c.Loops = runtime.GOMAXPROCS(0)
	}
	if c.CheckpointBytes == 0 {
		c.CheckpointBytes = 1 << 30
	}
	if c.CheckpointEntries == 0 {
		c.CheckpointEntries = 1_000_000
	}
	if c.TickInterval == 0 {
		c.TickInterval = 100 * time.Millisecond
	}
	if c.Alive == nil {
		c.Alive = func(record.NodeID) bool { return true }
	}
	if c.Sick == nil {
		c.Sick = func(record.NodeID) bool { return false }
	}
	if c.Transport == nil {
		c.Transport = noTransport{}
	}
	if c.OnFail == nil {
		c.OnFail = func(err error) { panic(err) }
	}
}

// Host runs all replica groups of a node. Safe for use by many goroutines.
type Host struct {
	cfg    Config
	wal    *wal.Log
	began  wal.Position // where the WAL ended when this process opened it
	writer walWriter
	loops  []*loop
	single *Single // nil: the host has goroutines; see single.go

	mu     sync.Mutex
	groups map[record.Group]*Group
	// recovered is what the checkpoint and the WAL hold of groups that nobody
	// has added yet.
	recovered map[record.Group]*recovered
	// removed is, during recovery, where the log says last that a group's replica
	// was removed.
	removed map[record.Group]wal.Position
	ticking map[*Group]struct{}
	stopped bool

	checkpoint checkpointer
	ctx        context.Context
	stop       context.CancelFunc
	background sync.WaitGroup
	failOnce   sync.Once
	started    time.Time
	// lateAt is from when on raft's clock has stood still for too long, in nanoseconds
	// since started; 0 before it moves. See late.
	lateAt atomic.Int64
	// clockRuns has a value when the first group's clock begins to run.
	clockRuns chan struct{}
	// pauses counts how often this process did not run for so long that its
	// leaderships were in doubt. See quiet.go.
	pauses  atomic.Int64
	failed  atomic.Bool
	sick    atomic.Bool // see SetSick
	damaged atomic.Bool // see Damaged
	// lostPower: what was not synced when the folder was last used may be gone, with the
	// machine's power or as the log had to be cut.
	lostPower bool
	boot      string // what the boot file says
	// life is another number for every start on the same disk.
	life uint64
	// membersKnown: see Host.MembersKnown.
	membersKnown atomic.Bool
}

// walWriter takes what groups want written: a wal.Writer, or for a Single wal.Steps.
type walWriter interface {
	Submit(wal.Batch)
	Stall(on bool)
	Crowded() bool
	Close() error
}

func newHost(cfg Config) (*Host, error) {
	cfg.setDefaults()
	h := &Host{
		started:    time.Now(),
		checkpoint: checkpointer{wake: make(chan struct{}, 1)},
		cfg:        cfg, groups: map[record.Group]*Group{}, ticking: map[*Group]struct{}{}, clockRuns: make(chan struct{}, 1),
	}
	h.checkpoint.forgotten.Store(&wal.Position{})
	h.ctx, h.stop = context.WithCancel(context.Background())
	return h, h.recover()
}

// Open recovers what the folder holds and starts the loops. No group runs until
// it is added.
func Open(cfg Config) (*Host, error) {
	h, err := newHost(cfg)
	if err != nil {
		return nil, err
	}
	h.writer = wal.NewWriter(h.wal)
	if err := h.admitLapses(); err != nil {
		return nil, errors.Join(err, h.writer.Close())
	}
	cfg = h.cfg
	for range cfg.Loops + 1 { // the last one is for urgent groups
		l := newLoop()
		h.loops = append(h.loops, l)
		go l.run()
	}
	h.background.Go(func() { h.tickLoop(h.ctx) })
	h.background.Go(func() { h.checkpointLoop(h.ctx) })
	return h, nil
}

// Claim forgets what the last restart found of a group if it is of another replica
// than the one that this node shall run now: its log and its votes are not this
// one's. Call it before Saved.
func (h *Host) Claim(id record.Group, replica record.ReplicaID) error {
	h.mu.Lock()
	r := h.recovered[id]
	foreign := r != nil && r.section != nil && r.section.damaged == nil && r.section.replica != replica
	h.mu.Unlock()
	if !foreign {
		return nil
	}
	return h.Drop(id)
}

// Saved returns the machine state that the last checkpoint holds for a group
// that is not added yet; nil if there is none. A damaged one is an error.
func (h *Host) Saved(id record.Group) ([]byte, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.recovered[id]
	switch {
	case r == nil:
		return nil, nil
	case r.damage != nil:
		return nil, r.damage
	case r.section == nil:
		return nil, nil
	}
	return r.section.state, nil
}

// Add starts a replica. The machine must have taken in what Saved returns.
func (h *Host) Add(spec Spec) (*Group, error) {
	if spec.Logger == nil {
		spec.Logger = h.cfg.Logger
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.stopped {
		return nil, ErrStopped
	}
	if h.groups[spec.Group] != nil {
		return nil, fmt.Errorf("replica: group %d runs already", spec.Group)
	}
	r := h.recovered[spec.Group]
	delete(h.recovered, spec.Group)
	g := &Group{spec: spec, host: h, loop: h.loopFor(spec)}
	g.status.Store(&Status{})
	g.sure.Store(h.pauses.Load())
	if spec.Peers == nil {
		spec.Peers = map[record.ReplicaID]record.NodeID{}
	}
	g.SetPeers(spec.Peers)
	g.old = r
	damage := spec.Damaged
	if r != nil && damage == nil {
		damage = r.damage
	}
	h.groups[spec.Group] = g
	if damage != nil {
		g.failed = fmt.Errorf("%w: %w", ErrDamaged, damage)
		g.setDamage(&g.failed)
		spec.Logger.Error("replica not started: its data is damaged", "group", spec.Group, "err", damage)
		return g, nil
	}
	core, err := newCore(startOf(spec, r), spec.Logger)
	if err != nil {
		return nil, err
	}
	g.core, g.kept = core, core.applied
	g.dirty = r == nil || r.section == nil || r.hard != nil || r.flagged || r.members != nil || core.log.last() > core.log.base
	g.remember(r)
	if r != nil {
		g.beWary()
	}
	g.call(func() {
		if g.core == nil {
			return // its first turn has failed already
		}
		// A sole voter need not wait for a timeout. Nor need the first replica of a
		// new group: it is the one that shall lead. The other nodes may not run theirs
		// yet, so it tries again a tick later.
		if g.lapse != nil {
			g.askEnds()
			g.retick()
			return
		}
		first := r == nil && len(spec.Voters) > 0 && spec.Voters[0] == spec.Replica
		if first {
			g.standIn = 1
		}
		if g.core.soleVoter() || first {
			if err := g.core.campaign(); err != nil {
				spec.Logger.Error("cannot stand for election", "group", spec.Group, "err", err)
			}
		}
		g.retick()
	})
	return g, nil
}

// remember says what a replica that starts may have forgotten. From Add.
func (g *Group) remember(r *recovered) {
	g.relaxed = g.spec.Relaxed
	was := r != nil && r.relaxed
	if r != nil {
		g.lapse = r.lapse()
		if g.relaxed && !was && g.host.lostPower && g.lapse == nil {
			// It is of a version that did not write down that it was relaxed.
			g.lapse = &lapse{until: r.hardState().GetTerm()}
		}
	}
	if g.lapse != nil {
		g.waitsFor.Store(&[]record.NodeID{})
	}
	if was != g.relaxed {
		g.writeLapse()
	}
}

// MembersKnown says that what the groups have been told of their replicas (SetPeers) is as
// new as this start. Before, a replica with a lapse takes nobody's silence for absence.
func (h *Host) MembersKnown() {
	h.membersKnown.Store(true)
	for _, g := range h.Groups() {
		g.Do(func() {
			if g.core != nil && g.lapse != nil {
				g.askEnds()
			}
		})
	}
}

func (h *Host) loopFor(spec Spec) *loop {
	n := len(h.loops) - 1
	if spec.Urgent || n == 0 { // a Single has one for all
		return h.loops[n]
	}
	return h.loops[int(spec.Group)%n]
}

// startOf says where a core begins.
func startOf(spec Spec, r *recovered) start {
	s := start{id: spec.Replica, log: entryLog{conf: &raftpb.ConfState{}}}
	switch {
	case r != nil && r.section != nil:
		s.log.conf, s.log.hard = r.section.conf, r.section.hard
		s.applied, s.log.base, s.log.baseTerm = r.section.applied, r.section.applied, r.section.term
	case len(spec.Voters) > 0:
		for _, v := range spec.Voters {
			s.log.conf.Voters = append(s.log.conf.Voters, uint64(v))
		}
		// The first membership counts as entry 1: a replica that joins later cannot
		// begin with an empty log, and so gets a copy that says who the voters are.
		s.applied, s.log.base, s.log.baseTerm = firstBase, firstBase, firstBase
		s.log.hard = &raftpb.HardState{Term: new(uint64(firstBase)), Vote: new(uint64(0)), Commit: new(uint64(firstBase))}
	}
	if r != nil {
		if r.section == nil && len(r.slots) > 0 {
			s.applied, s.log.base, s.log.baseTerm = r.base(), r.base(), r.base()
		}
		s.log.slots = r.slots
		if hard := r.hardState(); hard != nil {
			s.log.hard = hard
		}
		if r.members != nil {
			s.log.conf = r.members
		}
	}
	if s.log.hard.GetCommit() < s.applied { // written while a copy, now gone, waited for its checkpoint
		s.log.hard = &raftpb.HardState{Term: new(s.log.hard.GetTerm()), Vote: new(s.log.hard.GetVote()), Commit: new(s.applied)}
	}
	for _, sl := range s.log.slots {
		s.log.loadedBytes += len(sl.payload.data)
	}
	return s
}

// firstBase is where a group's log begins, as index and term.
const firstBase = 1

// Remove stops a replica for good; its entries are forgotten by the WAL. The
// machine is closed when Remove returns.
func (h *Host) Remove(g *Group) error {
	h.mu.Lock()
	delete(h.groups, g.ID())
	delete(h.ticking, g)
	h.mu.Unlock()
	h.close(g, ErrStopped)
	return h.forget(g.ID(), g.spec.Replica)
}

// close ends a group: proposals under way are answered, the machine is closed.
func (h *Host) close(g *Group, reason error) {
	done := make(chan struct{})
	ok := g.Do(func() {
		g.mu.Lock()
		g.closed = true
		g.mu.Unlock()
		if g.core != nil {
			g.core.abandon(ErrUnknownOutcome)
			g.core = nil
		}
		if g.failed == nil {
			g.failed = reason
		}
		g.publish()
		g.spec.Machine.Close()
		close(done)
	})
	if ok {
		<-done
	}
}

// Group finds a running group; nil if there is none.
func (h *Host) Group(id record.Group) *Group {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.groups[id]
}

// Alive reports whether a node was heard of lately.
func (h *Host) Alive(node record.NodeID) bool { return h.cfg.Alive(node) }

// Ticking is how many groups have their clock running: those that are not quiet.
func (h *Host) Ticking() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.ticking)
}

// Written is how many bytes the write-ahead log has written since Open.
func (h *Host) Written() uint64 { return h.wal.Written() }

// Drop forgets what the last restart found of a group that will not be added:
// call it only when metadata says that the group was deleted or has another replica here.
func (h *Host) Drop(id record.Group) error {
	h.mu.Lock()
	r := h.recovered[id]
	delete(h.recovered, id)
	h.mu.Unlock()
	switch {
	case r == nil:
		return nil
	case r.section == nil:
		return h.forget(id, 0)
	}
	return h.forget(id, r.section.replica)
}

// forget writes that a group's replica is gone, so that no restart brings it
// back; 0: one that no checkpoint knows.
func (h *Host) forget(id record.Group, replica record.ReplicaID) error {
	return h.writeWait(wal.Batch{Records: []wal.Record{{Kind: wal.KindRemoved, Group: id, Vote: uint64(replica)}}, Sync: true})
}

// Groups lists the running groups, by id.
func (h *Host) Groups() []*Group {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.groupsLocked()
}

func (h *Host) groupsLocked() []*Group {
	out := slices.Collect(maps.Values(h.groups))
	slices.SortFunc(out, func(a, b *Group) int { return cmp.Compare(a.ID(), b.ID()) })
	return out
}

// Close makes a last checkpoint, stops all groups, closes the WAL, and leaves a mark
// that says that all of it is on the disk.
func (h *Host) Close() error {
	h.mu.Lock()
	if h.stopped {
		h.mu.Unlock()
		return nil
	}
	h.stopped = true
	h.mu.Unlock()
	h.stop()
	h.background.Wait()
	var err error
	if !h.failed.Load() {
		err = h.Checkpoint()
	}
	for _, g := range h.Groups() {
		h.close(g, ErrStopped)
	}
	for _, l := range h.loops {
		l.stop()
	}
	if err = errors.Join(err, h.writer.Close()); err != nil || h.failed.Load() {
		return err
	}
	return h.writeBoot("clean")
}

// fail stops the node: see Config.OnFail.
func (h *Host) fail(err error) {
	h.failed.Store(true)
	h.failOnce.Do(func() { h.cfg.OnFail(err) })
}

// load brings a committed entry's payload back from the WAL if it is not in memory.
func (g *Group) load(index uint64) error {
	s := g.core.log.at(index)
	if s == nil || s.payload.data != nil || !s.onDisk {
		return nil
	}
	data, err := g.host.wal.ReadEntry(s.pos)
	if err != nil {
		return fmt.Errorf("entry %d: %w", index, err)
	}
	s.payload = payload{data: data}
	s.onDisk = false
	g.core.log.loadedBytes += len(data)
	return nil
}

// keepPayloadBytes is how much of its applied entries a group may keep in memory
// for followers that are a little behind; those further back are served from the WAL.
func (h *Host) keepPayloadBytes() int { return 4 << 20 }

// retick says whether raft's clock matters to the group: a sole voter that
// leads has nobody to hear from.
func (g *Group) retick() {
	want := g.core != nil && !g.quiet && !(g.core.alone() && g.core.lead)
	if want == g.ticking {
		return
	}
	g.ticking = want
	g.host.mu.Lock()
	defer g.host.mu.Unlock()
	if want {
		g.host.ticking[g] = struct{}{}
		if len(g.host.ticking) == 1 {
			g.host.endCalm()
		}
	} else {
		delete(g.host.ticking, g)
	}
}

// The ticks from one round to the next while no group's clock runs: with quietSteps a pause
// of this process is still noticed in time (doubtAfter), which calmSteps are for hosts where
// nobody else takes part in any group.
const (
	quietSteps = 2
	calmSteps  = 10
)

func (h *Host) tickLoop(ctx context.Context) {
	tick := pulse.NewTicker(h.cfg.TickInterval)
	defer tick.Stop()
	for n, looked := 0, 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-h.clockRuns:
			tick.Next(h.cfg.TickInterval)
			continue
		case <-tick.C:
		}
		if n-looked >= lookStep {
			looked += lookStep
			h.lookAgain(looked)
		}
		now := time.Since(h.started)
		if h.lateAs(now) {
			h.doubt()
		}
		steps := h.tick(now)
		n += steps
		tick.Next(time.Duration(steps) * h.cfg.TickInterval)
	}
}

// tick moves the clocks that run, and says how many ticks later to come round again. now is
// from before it was looked whether the process is late: a pause after that counts as
// one, wherever it comes.
func (h *Host) tick(now time.Duration) (steps int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for g := range h.ticking {
		g.tick()
	}
	steps = 1
	if len(h.ticking) == 0 {
		steps = quietSteps
		if h.alone() {
			steps = calmSteps
		}
	}
	h.ticked(now, steps)
	return steps
}

func (h *Host) checkpointDir() string { return path.Join(h.cfg.Dir, "checkpoint") }
