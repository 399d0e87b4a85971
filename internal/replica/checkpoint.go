package replica

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/raft/v3/raftpb"
	"golang.org/x/sync/errgroup"

	"github.com/tube-mq/tube/internal/pulse"
	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/wal"
)

// checkpointer is the host's state about checkpoints.
type checkpointer struct {
	mu  sync.Mutex // one checkpoint at a time; guards what follows
	seq uint64
	// last has every group's section as last written, for groups that were idle since.
	// Those above keptSectionBytes are read from the last file: rows.
	last map[record.Group][]byte
	rows map[record.Group]sectionRow

	// wanted is told after the next checkpoint that began later. Guarded by asking.
	asking sync.Mutex
	wanted []func()
	wake   chan struct{}

	entries   atomic.Int64  // written to the WAL since the last checkpoint
	fromBytes atomic.Uint64 // the WAL's byte count at the last checkpoint
	// forgotten is what the WAL was last told to forget up to; never nil.
	forgotten atomic.Pointer[wal.Position]
}

// keptSectionBytes is the largest section that is kept in memory until the next checkpoint.
const keptSectionBytes = 1 << 20

// grow counts entries on their way to the WAL, and wakes checkpointLoop once the WAL has
// grown enough.
func (h *Host) grow(entries int) {
	if h.checkpoint.entries.Add(int64(entries)) >= h.cfg.CheckpointEntries || h.walGrown() >= h.cfg.CheckpointBytes {
		h.checkpoint.look()
	}
}

// walGrown is how many bytes were written to the WAL since the last checkpoint.
func (h *Host) walGrown() int64 { return int64(h.wal.Written() - h.checkpoint.fromBytes.Load()) }

// checkpointLoop makes a checkpoint when the WAL has grown enough.
func (h *Host) checkpointLoop(ctx context.Context) {
	tick := pulse.NewTicker(pulse.Calm)
	defer tick.Stop()
	var last time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			tick.Next(pulse.Calm)
		case <-h.checkpoint.wake:
		}
		wanted := h.checkpoint.takeWanted()
		if h.walGrown() < h.cfg.CheckpointBytes && h.checkpoint.entries.Load() < h.cfg.CheckpointEntries && !h.walLong(last, time.Now()) && len(wanted) == 0 {
			continue
		}
		last = time.Now()
		err := h.Checkpoint()
		if err == nil {
			for _, f := range wanted {
				f()
			}
		} else {
			for _, f := range wanted {
				h.wantCheckpoint(f)
			}
			h.cfg.Logger.Error("checkpoint not made; will try again", "err", err)
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	}
}

// walRest is how long a log that is too long is left after a checkpoint, and a start whose
// groups are not all there.
const walRest = 10 * time.Second

// walLong reports whether the WAL is too long although it has not grown since the last
// checkpoint, of which the last was at last: starts that were cut short leave a small file each, and what this start read
// the next one reads again. Without that, a node that is killed again and again before its
// log has grown by one checkpoint's share starts more slowly each time. A checkpoint before
// all groups are there would have nothing forgotten.
func (h *Host) walLong(last, now time.Time) bool {
	limit := 2 * h.cfg.CheckpointBytes
	if h.checkpoint.forgotten.Load().Before(h.began) {
		limit = h.cfg.CheckpointBytes
	}
	if h.wal.SizeBytes() <= limit || now.Sub(last) < walRest {
		return false
	}
	_, unclaimed := h.everyGroup()
	return len(unclaimed) == 0 || now.Sub(h.started) > walRest
}

// wantCheckpoint has a checkpoint made soon; done is called once one that began
// after this call is there. Who asks meanwhile shares the next one.
func (h *Host) wantCheckpoint(done func()) {
	c := &h.checkpoint
	c.asking.Lock()
	c.wanted = append(c.wanted, done)
	c.asking.Unlock()
	c.look()
}

func (c *checkpointer) takeWanted() (wanted []func()) {
	c.asking.Lock()
	defer c.asking.Unlock()
	wanted, c.wanted = c.wanted, nil
	return wanted
}

// look makes checkpointLoop look whether a checkpoint is due.
func (c *checkpointer) look() {
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// saved is one group's contribution to a checkpoint.
type saved struct {
	g    *Group
	sect *section
	// from is where in the WAL the group's oldest entry that the section lacks is; of a
	// replica that stopped, where the WAL began then.
	from    wal.Position
	pending bool // from is set
}

// Checkpoint makes everything applied so far durable outside of the WAL and
// lets the WAL forget it: sections of the groups that changed, their machines
// settled, the file written beside the old one, synced and renamed.
func (h *Host) Checkpoint() error {
	h.checkpoint.mu.Lock()
	defer h.checkpoint.mu.Unlock()
	began, written := h.wal.Position(), h.wal.Written()
	// Whatever was written before began has told its group so once this returns;
	// an entry without a position in a group's log is behind began.
	if err := h.barrier(); err != nil {
		return err
	}
	return h.checkpointFrom(began, written)
}

// checkpointFrom makes a checkpoint that covers what was written before began,
// of which every group has been told.
func (h *Host) checkpointFrom(began wal.Position, written uint64) error {
	c := &h.checkpoint
	entries := c.entries.Swap(0)
	groups, unclaimed := h.everyGroup()
	fresh := saveGroups(groups)
	if err := h.writeSections(fresh, unclaimed); err != nil {
		for _, s := range fresh {
			if s.sect != nil {
				s.g.Do(func() { s.g.dirty = true })
			}
		}
		c.entries.Add(entries) // it is to be tried again
		return err
	}
	c.fromBytes.Store(written)
	forget := began
	for _, s := range fresh {
		if s.pending && s.from.Before(forget) {
			forget = s.from
		}
	}
	// What it holds of groups that nobody has added is nowhere else: a start that
	// failed, or that is not that far yet, must not lose it.
	for _, r := range unclaimed {
		if r.damage == nil && !r.from.IsZero() && r.from.Before(forget) {
			forget = r.from
		}
	}
	c.forgotten.Store(&forget)
	return h.wal.Forget(forget)
}

// everyGroup lists at one moment the groups that run and those that nobody has
// added yet, so that one which is just being added is in one of the two.
func (h *Host) everyGroup() (running []*Group, unclaimed map[record.Group]*recovered) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.groupsLocked(), maps.Clone(h.recovered)
}

// Sync returns once everything that the write-ahead log was given before is durable.
func (h *Host) Sync() error {
	done := make(chan error, 1)
	h.writer.Submit(wal.Batch{Sync: true, Done: func(_ []wal.Position, err error) { done <- err }})
	if !h.single.drain() {
		return wal.ErrFull
	}
	return <-done
}

// barrier waits until the WAL has answered everything submitted before.
func (h *Host) barrier() error {
	done := make(chan error, 1)
	h.writer.Submit(wal.Batch{Probe: true, Done: func(_ []wal.Position, err error) { done <- err }})
	if !h.single.drain() {
		return wal.ErrFull
	}
	return <-done
}

// writeSections settles the machines and writes the file.
func (h *Host) writeSections(fresh []saved, unclaimed map[record.Group]*recovered) error {
	c := &h.checkpoint
	if err := settle(fresh, h.single.settlers()); err != nil {
		return err
	}
	sections, err := h.sections(fresh, unclaimed)
	if err != nil {
		return err
	}
	rows, err := writeCheckpoint(h.cfg.FS, h.checkpointDir(), c.seq+1, sections)
	if rows == nil {
		return err
	}
	c.seq++
	c.last, c.rows = make(map[record.Group][]byte, len(sections)), map[record.Group]sectionRow{}
	for i, s := range sections {
		if len(s.bytes) <= keptSectionBytes {
			c.last[s.group] = s.bytes
		} else {
			c.rows[s.group] = rows[i]
		}
	}
	for _, s := range fresh {
		if s.g.old != nil {
			s.g.old.section = nil // it is in the file that was just written
		}
	}
	return err
}

// stored reads a group's section from the last checkpoint. If that is damaged, a sound
// machine saves its state once more, for the next attempt.
func (h *Host) stored(g *Group) ([]byte, error) {
	c := &h.checkpoint
	b, err := readSection(h.cfg.FS, h.checkpointDir(), c.seq, c.rows[g.ID()])
	if err != nil && g.Err() == nil {
		g.Do(func() { g.dirty = true })
		return nil, err
	}
	if err != nil {
		h.cfg.Logger.Error("checkpoint is damaged, of a group that does not run", "group", g.ID(), "err", err)
		return encodeDamage(err), nil
	}
	return b, nil
}

// settlers is how many machines are settled at a time: fsyncs that wait together
// share a commit of the file system's journal.
const settlers = 16

func settle(fresh []saved, limit int) error {
	var g errgroup.Group
	g.SetLimit(limit)
	for _, s := range fresh {
		if s.sect == nil {
			continue
		}
		g.Go(func() error {
			if err := s.g.spec.Machine.Settle(); err != nil {
				return fmt.Errorf("checkpoint: group %d: %w", s.g.ID(), err)
			}
			return nil
		})
	}
	return g.Wait()
}

// saveGroups asks every group, in its loop, where it stands.
func saveGroups(groups []*Group) []saved {
	out := make([]saved, len(groups))
	var wait sync.WaitGroup
	for i, g := range groups {
		wait.Add(1)
		if !g.Do(func() { out[i] = g.save(); wait.Done() }) {
			out[i] = saved{g: g}
			wait.Done()
		}
	}
	wait.Wait()
	return out
}

func (g *Group) save() saved {
	s := saved{g: g}
	if g.core == nil {
		return s.hold()
	}
	c := g.core
	// Followers may still ask for what was applied since the last checkpoint: that
	// is what the WAL keeps, and what a follower may be behind without a copy.
	c.log.compact(min(c.applied, g.kept))
	g.kept = c.applied
	for i := c.log.base + 1; i <= c.log.last(); i++ {
		if pos := c.log.at(i).pos; !pos.IsZero() {
			s.from, s.pending = pos, true
			break
		}
	}
	if !g.dirty {
		return s
	}
	state, err := g.spec.Machine.Save()
	if err != nil {
		g.fail(fmt.Errorf("state of entry %d: %w", c.applied, err))
		return saved{g: g}.hold()
	}
	g.dirty = false
	term, err := c.log.Term(c.applied)
	if err != nil {
		panic(fmt.Sprintf("replica: group %d: term of applied index %d: %v", g.ID(), c.applied, err))
	}
	// Raft may know of more that is committed, of which the WAL has nothing yet; a
	// start would miss it.
	hard := &raftpb.HardState{Term: new(c.log.hard.GetTerm()), Vote: new(c.log.hard.GetVote()), Commit: new(c.applied)}
	s.sect = &section{
		group: g.ID(), replica: c.id, applied: c.applied, term: term,
		hard: hard, conf: c.log.conf, relaxed: g.relaxed, state: state,
	}
	if g.lapse != nil {
		s.sect.until = g.lapse.until
	}
	return s
}

// hold keeps what the WAL has of a replica that stopped while it ran.
func (s saved) hold() saved {
	if s.g.held != nil {
		s.from, s.pending = *s.g.held, true
	}
	return s
}

// sections puts together what the file holds: fresh sections, those of idle
// groups as they were, those of groups that nobody has added, and of damaged
// groups that they are damaged, as the WAL forgets what told so.
func (h *Host) sections(fresh []saved, unclaimed map[record.Group]*recovered) ([]encodedSection, error) {
	var out []encodedSection
	add := func(id record.Group, b []byte) { out = append(out, encodedSection{id, b}) }
	for _, s := range fresh {
		id := s.g.ID()
		switch {
		case s.sect != nil:
			b, err := s.sect.encode()
			if err != nil {
				return nil, err
			}
			add(id, b)
		case h.checkpoint.last[id] != nil:
			add(id, h.checkpoint.last[id])
		case h.checkpoint.rows[id].size > 0:
			b, err := h.stored(s.g)
			if err != nil {
				return nil, err
			}
			add(id, b)
		case !s.pending && s.g.lost() != nil:
			add(id, encodeDamage(s.g.lost()))
		case s.g.old != nil && s.g.old.section != nil:
			b, err := s.g.old.section.encode()
			if err != nil {
				return nil, err
			}
			add(id, b)
		}
	}
	for id, r := range unclaimed {
		switch {
		case r.damage != nil:
			add(id, encodeDamage(r.damage))
		case r.section != nil:
			r.section.relaxed, r.section.until = r.relaxed, r.until
			b, err := r.section.encode()
			if err != nil {
				return nil, err
			}
			add(id, b)
		}
	}
	return out, nil
}
