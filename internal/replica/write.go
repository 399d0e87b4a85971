package replica

import (
	"sync"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/wal"
)

// writing is one write of a group under way: it is made in the group's loop,
// answered by the WAL's writer, and comes back to the loop in the inbox, which
// ends it. It is used again, as with many groups each write has an entry or two.
type writing struct {
	group   *Group
	records []wal.Record
	// held keeps payloads as they are until the WAL has written them, whatever becomes of
	// the group meanwhile.
	held  []*record.Buffer
	terms []uint64 // of the entries
	// tell is answered, bound once.
	tell func([]wal.Position, error)

	stored
}

// stored tells a group that a write of its has reached the disk.
type stored struct {
	first, last uint64
	positions   []wal.Position
	after       []*raftpb.Message
	settled     bool // the copy that was installed is durable
}

// keptRecords is the most that a writing keeps room for.
const keptRecords = 64

var writings = sync.Pool{New: func() any {
	w := new(writing)
	w.tell = w.answered
	return w
}}

func (g *Group) newWriting(s stored) *writing {
	w := writings.Get().(*writing)
	w.group, w.stored = g, s
	return w
}

// free gives a writing back that nobody refers to any more.
func (w *writing) free() {
	if cap(w.records) > keptRecords {
		w.records, w.held, w.terms = nil, nil, nil
	}
	clear(w.records)
	w.group, w.stored = nil, stored{}
	w.records, w.held, w.terms = w.records[:0], w.held[:0], w.terms[:0]
	writings.Put(w)
}

// answered is called by the WAL's writer.
func (w *writing) answered(positions []wal.Position, err error) {
	for i, b := range w.held {
		b.Release()
		w.held[i] = nil
	}
	if err != nil {
		w.group.host.fail(err)
		return
	}
	w.positions = positions
	w.group.deliver(w)
}

// write hands a group's entries and hard state to the WAL. From the group's loop.
func (g *Group) write(e effects) {
	if e.last < e.first && e.hard == nil && len(e.after) == 0 {
		return
	}
	w := g.newWriting(stored{first: e.first, last: e.last, after: e.after})
	anchors := w.add(e)
	if len(w.records) == 0 {
		// Responses, once everything written before is durable.
		g.host.writer.Submit(wal.Batch{Sync: !g.relaxed, Done: w.tell})
		return
	}
	sync := e.durable && (!g.relaxed || e.votes || anchors)
	g.host.writer.Submit(wal.Batch{Records: w.records, Sync: sync, Done: w.tell})
}

// add makes the records of what is to be written. It reports whether there are
// entries among them that must not be forgotten in a relaxed group either: who takes
// part, and what makes sure of it (confKept).
func (w *writing) add(e effects) (anchors bool) {
	g := w.group
	for i := e.first; i <= e.last; i++ {
		s := g.core.log.at(i)
		data, sumFrom := s.payload.data, s.payload.sumFrom
		if b := s.payload.buf; b != nil {
			w.held = append(w.held, b.Retain())
		}
		if g.spec.Volatile != nil && s.kind == raftpb.EntryNormal && len(data) > 0 {
			data, sumFrom = g.spec.Volatile(data), 0
		}
		anchors = anchors || s.kind != raftpb.EntryNormal || len(data) == 0
		w.terms = append(w.terms, s.term)
		w.records = append(w.records, wal.Record{
			Kind: wal.KindEntry, Group: g.spec.Group, Index: record.Index(i),
			Term: record.Term(s.term), EntryType: byte(s.kind), Data: data,
			Sum: s.payload.sum, SumFrom: sumFrom,
		})
	}
	g.host.grow(len(w.terms))
	if e.hard == nil {
		return anchors
	}
	g.dirty = true
	commit := e.hard.GetCommit()
	if g.unsettled {
		commit = 0 // what it stands on is in no checkpoint yet
	}
	w.records = append(w.records, wal.Record{
		Kind: wal.KindHardState, Group: g.spec.Group, Term: record.Term(e.hard.GetTerm()),
		Vote: e.hard.GetVote(), Index: record.Index(commit),
	})
	return anchors
}
