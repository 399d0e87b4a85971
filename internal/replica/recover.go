package replica

import (
	"fmt"
	"path"

	"go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/wal"
)

// recovered is what a restart found of one group.
type recovered struct {
	section *section // from the checkpoint; nil: the group is younger
	hard    *raftpb.HardState
	// slots are the entries behind the section's applied index, without holes.
	slots []slot
	// first is the index of the first entry, for a group without a section.
	first uint64
	// members is a membership that was forced after the section was made.
	members *raftpb.ConfState
	damage  error
	// relaxed: entries were answered for before they were synced. until: those up to
	// this term may be forgotten; 0: none is. flagged: a record behind the section says so.
	relaxed, flagged bool
	until            uint64
	// gap: entries behind one that is missing were found; nothing yet has taken
	// their place.
	gap error
	// from is where the WAL's first record is that the section lacks; zero: none.
	// As long as nobody has added the group, it is nowhere else.
	from wal.Position
}

func (r *recovered) lapse() *lapse {
	if r.until == 0 {
		return nil
	}
	return &lapse{until: r.until}
}

func (r *recovered) base() uint64 {
	switch {
	case r.section != nil:
		return r.section.applied
	case r.first == 1:
		return 0 // founded by an early version
	}
	return firstBase
}

// hardState puts together what the checkpoint and the WAL say: commit indexes
// ride along with later writes, so either may have the newer one.
func (r *recovered) hardState() *raftpb.HardState {
	if r.section == nil || r.hard == nil {
		if r.section != nil {
			return r.section.hard
		}
		return r.hard
	}
	a, b := r.section.hard, r.hard
	if a.GetTerm() > b.GetTerm() {
		a, b = b, a
	}
	vote := b.GetVote()
	if vote == 0 && a.GetTerm() == b.GetTerm() {
		vote = a.GetVote()
	}
	return &raftpb.HardState{Term: new(b.GetTerm()), Vote: new(vote), Commit: new(max(a.GetCommit(), b.GetCommit()))}
}

// check finds what must not be: something that was committed is not there.
func (r *recovered) check(id record.Group) {
	if r.damage == nil {
		r.damage = r.gap
	}
	last := r.base() + uint64(len(r.slots))
	if h := r.hardState(); r.damage == nil && h.GetCommit() > last {
		r.damage = fmt.Errorf("entries %d to %d of group %d were committed, but the write-ahead log lacks them", last+1, h.GetCommit(), id)
	}
}

// recover loads the checkpoint and reads the WAL behind it.
func (h *Host) recover() error {
	for _, dir := range []string{h.cfg.Dir, h.checkpointDir()} {
		if err := h.cfg.FS.MkdirAll(dir); err != nil {
			return fmt.Errorf("replica: %w", err)
		}
	}
	if err := h.cfg.FS.SyncDir(h.cfg.Dir); err != nil {
		return fmt.Errorf("replica: sync %s: %w", h.cfg.Dir, err)
	}
	seq, sections, err := readCheckpoint(h.cfg.FS, h.checkpointDir())
	if err != nil {
		return err
	}
	h.checkpoint.seq = seq
	if err := h.readBoot(); err != nil {
		return err
	}
	h.recovered = make(map[record.Group]*recovered, len(sections))
	h.removed = map[record.Group]wal.Position{}
	defer func() { h.removed = nil }()
	for id, s := range sections {
		r := &recovered{section: s, damage: s.damaged, relaxed: s.relaxed, until: s.until}
		h.recovered[id] = r
	}
	cfg := h.cfg.WAL
	cfg.FS, cfg.Dir = h.cfg.FS, path.Join(h.cfg.Dir, "wal")
	cfg.OnFail = h.fail
	log, rec, err := wal.Open(cfg, h.replay)
	if err != nil {
		return err
	}
	h.wal, h.began = log, log.Position()
	if !rec.Cut.IsZero() {
		// Torn, or rotten: of what was not synced, nothing tells the two apart. So even if
		// the machine has gone on, what was answered for may lie behind.
		h.lostPower = true
	}
	return h.judge(rec)
}

// replay takes one record of the WAL, in the order in which it was written.
func (h *Host) replay(rec wal.Record) error {
	r := h.recovered[rec.Group]
	if r == nil {
		r = &recovered{}
		h.recovered[rec.Group] = r
	}
	if r.from.IsZero() && (rec.Kind == wal.KindHardState || rec.Kind == wal.KindMembers || rec.Kind == wal.KindLapse || rec.Kind == wal.KindEntry && uint64(rec.Index) > r.base()) {
		r.from = rec.Position
	}
	switch rec.Kind {
	case wal.KindLapse:
		r.relaxed, r.until, r.flagged = rec.Vote != 0, uint64(rec.Term), true
	case wal.KindEntry:
		r.entry(rec)
	case wal.KindHardState:
		r.hard = &raftpb.HardState{Term: new(uint64(rec.Term)), Vote: new(rec.Vote), Commit: new(uint64(rec.Index))}
	case wal.KindMembers:
		// Whatever the log says before it was done without, whether it was committed or
		// not: the forced membership stands in its place. That holds for what lies behind a
		// later section as well.
		for i := range r.slots {
			r.slots[i].annul()
		}
		// A later section has it, and whatever came after it.
		if uint64(rec.Index) >= r.base() {
			conf := &raftpb.ConfState{}
			if err := proto.Unmarshal(rec.Data, conf); err != nil {
				r.damage = fmt.Errorf("forced membership of group %d: %w", rec.Group, err)
			} else {
				r.members = conf
			}
		}
	case wal.KindRemoved:
		h.removed[rec.Group] = rec.Position
		if r.section == nil || r.section.damaged == nil && uint64(r.section.replica) <= rec.Vote {
			delete(h.recovered, rec.Group)
			break
		}
		// The checkpoint is newer, and has a replica that came after: ids only grow.
		h.recovered[rec.Group] = &recovered{section: r.section, damage: r.section.damaged, relaxed: r.section.relaxed, until: r.section.until}
	}
	return nil
}

// entry takes an entry in: one at or below what is there overwrites it, as a new
// leader's does; a gap that stays means that something acknowledged is missing.
func (r *recovered) entry(rec wal.Record) {
	index := uint64(rec.Index)
	if r.section == nil && r.first == 0 && index <= firstBase+1 {
		r.first = index
	}
	base := r.base()
	if index <= base {
		return // the checkpoint has it
	}
	if r.section != nil && uint64(rec.Term) < r.section.term {
		return // overwritten before the checkpoint was made: a log's terms never go back
	}
	next := base + uint64(len(r.slots)) + 1
	if index > next {
		if r.gap == nil {
			r.gap = fmt.Errorf("the write-ahead log lacks entries %d to %d of group %d", next, index-1, rec.Group)
		}
		return
	}
	// What was behind a gap is overwritten: its beginning was when the checkpoint
	// was made, and so had been forgotten.
	r.gap = nil
	r.slots = r.slots[:index-base-1]
	s := slot{term: uint64(rec.Term), kind: raftpb.EntryType(rec.EntryType), pos: rec.Position, sizeBytes: uint32(len(rec.Data))}
	switch {
	case s.kind != raftpb.EntryNormal:
		s.payload.data = append([]byte(nil), rec.Data...)
	case len(rec.Data) > 0:
		s.onDisk = true
	}
	r.slots = append(r.slots, s)
}

// judge turns damage that the WAL found into damage of groups.
func (h *Host) judge(rec wal.Recovery) error {
	for _, d := range rec.Damage {
		for id := range h.recovered {
			if d.Group == 0 && d.Check != 0 && wal.GroupCheck(id) == d.Check {
				d.Group = id
			}
		}
		if d.Group == 0 {
			return fmt.Errorf("replica: %w: it cannot be told which partitions it held; restore this node from a backup", d)
		}
		h.cfg.Logger.Error("write-ahead log is damaged", "group", d.Group, "err", d)
		if d.Position().Before(h.removed[d.Group]) {
			continue // it was of a replica that is gone
		}
		// It says more than that entries are missing.
		if r := h.recovered[d.Group]; r != nil && (r.section == nil || r.section.damaged == nil) {
			r.damage = d
		}
	}
	for id, r := range h.recovered {
		r.check(id)
	}
	return nil
}
