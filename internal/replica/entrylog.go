package replica

import (
	"fmt"

	"go.etcd.io/raft/v3"
	"go.etcd.io/raft/v3/raftpb"

	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/wal"
)

// payload is what an entry carries beside raft.
type payload struct {
	data []byte
	buf  *record.Buffer // holds data; nil when data is the garbage collector's
	// sum, if sumFrom > 0, is the CRC32C of data[sumFrom:].
	sum     uint32
	sumFrom int
}

func (p payload) release() { p.buf.Release() }

// slot is one entry of the group's log.
type slot struct {
	term    uint64
	kind    raftpb.EntryType
	payload payload
	// pos is where the WAL holds the entry.
	// Invariant: zero until the write that carries it was handed to the WAL's
	// writer and came back.
	pos wal.Position
	// onDisk: the payload is in the WAL only; see Group.load.
	onDisk bool
	// entry is what raft handed out for this place, until it is applied: it mostly
	// asks for it once more, to have it applied. Nil: to be made again.
	entry *raftpb.Entry
	// sizeBytes of the payload, wherever it is; 0 if not known.
	sizeBytes uint32
}

// annul makes a change of membership an entry that says nothing, as a new leader's
// first; it stays in its place. It reports how many bytes were let go of.
func (s *slot) annul() (bytes int) {
	if s.kind == raftpb.EntryNormal {
		return 0
	}
	bytes = len(s.payload.data)
	s.kind, s.payload, s.sizeBytes, s.entry = raftpb.EntryNormal, payload{}, 0, nil
	return bytes
}

// entryLog is one group's Raft log as raft sees it (raft.Storage). It holds
// what is not yet applied, and of what is applied as much as followers may
// still need; older entries are in the WAL only.
type entryLog struct {
	hard *raftpb.HardState
	conf *raftpb.ConfState

	// base is the index before slots[0]; everything up to it is in the machine.
	// Invariant: base ≤ applied.
	base     uint64
	baseTerm uint64
	slots    []slot

	// unloaded is the index up to which payloads were left to the WAL; loadedBytes
	// is what those behind it hold. Invariant: base ≤ unloaded ≤ last.
	unloaded    uint64
	loadedBytes int
}

func (l *entryLog) last() uint64 { return l.base + uint64(len(l.slots)) }

func (l *entryLog) at(index uint64) *slot {
	if index <= l.base || index > l.last() {
		return nil
	}
	return &l.slots[index-l.base-1]
}

// append puts one entry at its index, dropping what stood there and behind it:
// a new leader overwrites what was never committed.
func (l *entryLog) append(index uint64, s slot) {
	if index <= l.base || index > l.last()+1 {
		panic(fmt.Sprintf("replica: entry %d does not fit a log of (%d, %d]", index, l.base, l.last()))
	}
	l.truncate(index - 1)
	s.sizeBytes = uint32(len(s.payload.data))
	l.slots = append(l.slots, s)
	l.loadedBytes += len(s.payload.data)
}

// truncate drops everything after index.
func (l *entryLog) truncate(index uint64) {
	for i := index - l.base; i < uint64(len(l.slots)); i++ {
		l.drop(l.base + 1 + i)
		l.slots[i] = slot{}
	}
	l.unloaded = min(l.unloaded, index)
	if keep := index - l.base; keep < uint64(len(l.slots)) {
		l.slots = l.slots[:keep]
	}
}

// compact forgets entries up to index, which must be applied.
func (l *entryLog) compact(index uint64) {
	if index <= l.base {
		return
	}
	n := int(index - l.base)
	l.baseTerm = l.slots[n-1].term
	for i := range n {
		l.drop(l.base + 1 + uint64(i))
		l.slots[i] = slot{}
	}
	l.base = index
	l.unloaded = max(l.unloaded, index)
	if n == len(l.slots) {
		l.slots = l.slots[:0]
		if cap(l.slots) > 4096 {
			l.slots = nil
		}
		return
	}
	// Reslicing leaks the head until append grows the slice anew; it does so in
	// amortised constant time, which shifting would not.
	l.slots = l.slots[n:]
}

// drop lets go of the payload at index.
func (l *entryLog) drop(index uint64) {
	s := &l.slots[index-l.base-1]
	if index > l.unloaded {
		l.loadedBytes -= len(s.payload.data)
	}
	s.payload.release()
}

// unload leaves payloads up to index, which must be applied, to the WAL until the
// others hold at most keepBytes; it stops at one that the WAL does not hold yet.
func (l *entryLog) unload(index uint64, keepBytes int) {
	l.unloaded = max(l.unloaded, l.base)
	for l.unloaded < index && l.loadedBytes > keepBytes {
		s := l.at(l.unloaded + 1)
		if s.kind == raftpb.EntryNormal && len(s.payload.data) > 0 {
			if s.pos.IsZero() {
				return
			}
			l.drop(l.unloaded + 1)
			s.payload, s.onDisk = payload{}, true
		}
		l.unloaded++
	}
}

// anyThin stands for a payload whose token is spent: what it names is found by index.
var anyThin = make([]byte, thinBytes)

// InitialState implements raft.Storage.
func (l *entryLog) InitialState() (*raftpb.HardState, *raftpb.ConfState, error) {
	return l.hard, l.conf, nil
}

// Entries implements raft.Storage: thin entries of [lo, hi).
func (l *entryLog) Entries(lo, hi, maxSize uint64) ([]*raftpb.Entry, error) {
	if lo <= l.base {
		return nil, raft.ErrCompacted
	}
	if hi > l.last()+1 {
		return nil, raft.ErrUnavailable
	}
	out := make([]*raftpb.Entry, 0, hi-lo)
	var sizeBytes uint64
	for i := lo; i < hi; i++ {
		s := l.at(i)
		sizeBytes += uint64(s.sizeBytes)
		if len(out) > 0 && sizeBytes > maxSize {
			break
		}
		if s.entry != nil {
			out = append(out, s.entry)
			continue
		}
		e := &raftpb.Entry{Term: new(s.term), Index: new(i), Type: s.kind.Enum()}
		switch {
		case s.kind != raftpb.EntryNormal:
			e.Data = s.payload.data
		case len(s.payload.data) > 0 || s.onDisk:
			// As large as what raft was given: it counts what is uncommitted by size.
			e.Data = anyThin
		}
		out = append(out, e)
	}
	return out, nil
}

// Term implements raft.Storage.
func (l *entryLog) Term(i uint64) (uint64, error) {
	switch {
	case i == l.base:
		return l.baseTerm, nil
	case i < l.base:
		return 0, raft.ErrCompacted
	case i > l.last():
		return 0, raft.ErrUnavailable
	}
	return l.at(i).term, nil
}

// LastIndex implements raft.Storage.
func (l *entryLog) LastIndex() (uint64, error) { return l.last(), nil }

// FirstIndex implements raft.Storage.
func (l *entryLog) FirstIndex() (uint64, error) { return l.base + 1, nil }

// Snapshot implements raft.Storage: the place where the log begins, without the
// machine's state. A follower that is too far behind takes it as the word that it
// needs a copy, and fetches one (see install.go).
func (l *entryLog) Snapshot() (*raftpb.Snapshot, error) {
	if l.base == 0 {
		return nil, raft.ErrSnapshotTemporarilyUnavailable
	}
	return &raftpb.Snapshot{Metadata: &raftpb.SnapshotMetadata{
		Index: new(l.base), Term: new(l.baseTerm), ConfState: l.conf,
	}}, nil
}
