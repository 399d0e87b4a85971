package replica

import (
	"go.etcd.io/raft/v3/raftpb"

	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/wal"
)

// Single is a host in which no goroutine runs and no clock ticks: its owner, who
// must be one goroutine, runs the groups, raft's clock, the write-ahead log, the
// checkpoints and the copies by calling it, in whatever order and with whatever
// pauses it likes. It is for simulation, and runs the same code as a Host
// otherwise. Methods of Host and Group that wait run what they wait for at once;
// instead of Group.Barrier use Single.Barrier, and instead of Host.Checkpoint
// Single.Checkpoint; Close is not to be used.
type Single struct {
	*Host
	WAL *wal.Steps
	// Applied, if set, is told of every entry that a machine was fed, and of
	// every copy that it took, with Entry.Data nil.
	Applied func(g *Group, e Entry, result any)

	fetches  []*Fetch
	stepping bool
}

// OpenSingle recovers what the folder holds, as Open does.
func OpenSingle(cfg Config) (*Single, error) {
	cfg.Loops = 1
	h, err := newHost(cfg)
	if err != nil {
		return nil, err
	}
	s := &Single{Host: h, WAL: wal.NewSteps(h.wal)}
	h.single, h.writer = s, s.WAL
	h.loops = []*loop{newLoop()}
	return s, h.admitLapses()
}

// Step runs the groups that have something in their inboxes until none has.
func (s *Single) Step() {
	if s.stepping {
		return
	}
	s.stepping = true
	l := s.loops[0]
	for len(l.queue) > 0 {
		batch := l.queue
		l.queue = nil
		for _, g := range batch {
			g.turn()
		}
	}
	s.stepping = false
}

// Tick is raft's clock; the groups see it at the next Step.
func (s *Single) Tick() {
	for _, g := range s.Groups() {
		if g.ticking {
			g.tick()
		}
	}
}

// Barrier is Group.Barrier; done is called with its result.
func (s *Single) Barrier(g *Group, done func(error)) {
	if !g.BarrierThen(done) {
		done(ErrStopped)
	}
}

// CheckpointWanted reports whether a group waits for one.
func (s *Single) CheckpointWanted() bool { return len(s.checkpoint.wanted) > 0 }

// Checkpoint is Host.Checkpoint in two steps: once the write-ahead log has
// answered everything submitted before, ready is called with what makes the
// checkpoint, or with nil if the log failed.
func (s *Single) Checkpoint(ready func(finish func() error)) {
	began, written := s.wal.Position(), s.wal.Written()
	wanted := s.checkpoint.wanted
	s.checkpoint.wanted = nil
	s.writer.Submit(wal.Batch{Probe: true, Done: func(_ []wal.Position, err error) {
		if err != nil {
			ready(nil)
			return
		}
		ready(func() error {
			s.Step() // the groups have been told of what was written
			err := s.checkpointFrom(began, written)
			for _, f := range wanted {
				if err == nil {
					f()
				} else {
					s.wantCheckpoint(f)
				}
			}
			return err
		})
	}})
}

// Fetch is a copy that a replica needs.
type Fetch struct {
	From  record.NodeID
	group *Group
	snap  Snapshot
	err   error
}

// Group is whose it is.
func (f *Fetch) Group() *Group { return f.group }

// Run brings the copy, by Spec.Fetch.
func (f *Fetch) Run() { f.snap, f.err = f.group.spec.Fetch(f.group.host.ctx, f.From) }

// Finish gives the copy, or why there is none, to the group. Call it once, after
// Run; cut, if not nil, says that it did not arrive.
func (f *Fetch) Finish(cut error) {
	snap, err := f.snap, f.err
	if cut != nil && err == nil {
		snap, err = Snapshot{}, cut
	}
	f.group.Do(func() { f.group.install(snap, err) })
}

// Fetches takes the copies that groups have asked for since the last call.
func (s *Single) Fetches() []*Fetch {
	out := s.fetches
	s.fetches = nil
	return out
}

// Look says how a replica stands.
type Look struct {
	Replica         record.ReplicaID
	Term, Vote      uint64
	Committed       uint64
	Applied         uint64
	Stored          uint64 // the entries up to it are durable here
	Last            uint64
	Leading         bool
	Began           uint64   // first entry of the present term in the log; 0: none is
	Voters, Joining []uint64 // Joining: voters of the configuration that is being left
	Learners        []uint64
	State           []byte // of the machine
}

// Look looks at a group from between two turns; nil: its replica does not run.
// state: with the machine's state.
func (s *Single) Look(g *Group, state bool) *Look {
	c := g.core
	if c == nil {
		return nil
	}
	st := c.rn.BasicStatus()
	l := &Look{
		Replica: c.id, Term: st.HardState.GetTerm(), Vote: st.HardState.GetVote(), Committed: st.HardState.GetCommit(),
		Applied: c.applied, Stored: c.log.base, Last: c.log.last(), Leading: c.lead && c.serving,
		Voters: c.log.conf.GetVoters(), Joining: c.log.conf.GetVotersOutgoing(), Learners: c.log.conf.GetLearners(),
	}
	for l.Stored < l.Last && !c.log.at(l.Stored+1).pos.IsZero() {
		l.Stored++
	}
	for i := c.log.last(); i > c.log.base && c.log.at(i).term == c.term; i-- {
		l.Began = i
	}
	if state {
		l.State, _ = g.spec.Machine.Save() // nil: lost, which shows when it is saved
	}
	return l
}

// Peek decodes a message as Host.Receive does, without its payloads.
func Peek(body []byte) (record.Group, *raftpb.Message, error) {
	m, err := decodeMessage(body, nil)
	return m.group, m.raft, err
}

// The methods below are called with a nil Single by a Host that has goroutines.

// runNow runs what was just left for a group, so that who waits for it finds it done.
func (s *Single) runNow() {
	if s != nil {
		s.Step()
	}
}

// drain writes and syncs what was just submitted; it reports false if the disk is
// too full for that.
func (s *Single) drain() bool { return s == nil || s.WAL.Drain() }

func (s *Single) settlers() int {
	if s != nil {
		return 1
	}
	return settlers
}

func (s *Single) observe(g *Group, e Entry, result any) {
	if s != nil && s.Applied != nil {
		s.Applied(g, e, result)
	}
}
