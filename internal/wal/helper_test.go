package wal

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/vfs"
)

// Small files, so that a short run rolls, recycles and forgets.
func testConfig(fsys vfs.FS) Config {
	return Config{FS: fsys, Dir: "n/wal", FileBytes: 64 << 10, FirstFileBytes: 32 << 10, MaxSpares: 2}
}

func newMem(t *testing.T) *vfs.Mem {
	t.Helper()
	m := vfs.NewMem()
	if err := m.MkdirAll("n"); err != nil {
		t.Fatal(err)
	}
	return m
}

// payload is what entry index of a group holds: it tells every other apart. One in eight has
// whole pages.
func payload(g record.Group, i record.Index, life int) []byte {
	rng := rand.New(rand.NewPCG(uint64(g)<<32|uint64(i), uint64(life)))
	b := fmt.Appendf(nil, "group %d entry %d life %d ", g, i, life)
	size := 40 + rng.IntN(400)
	if rng.IntN(8) == 0 {
		size = 2*alignBytes + rng.IntN(2*alignBytes)
	}
	for len(b) < size {
		b = append(b, byte(rng.Uint32()))
	}
	return b
}

// ahead has every block written while others are being synced, inPlace most data from
// where it lies.
func ahead(c *Config)   { c.AheadBytes = 1 }
func inPlace(c *Config) { c.InPlaceBytes = 2 * alignBytes }

// gaps counts the records of a log that have one: those written from where they lie.
func gaps(t *testing.T, mem *vfs.Mem) (n int) {
	t.Helper()
	err := Dump(mem, "n/wal", func(i Item) {
		if i.Record == nil {
			return
		}
		f, err := mem.Open("n/wal/"+fileName(i.Position.File), vfs.Mode{})
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		var head [recordBytes]byte
		if _, err := f.ReadAt(head[:], i.Position.Offset); err != nil {
			t.Fatal(err)
		}
		if gap, _, err := extent(head[:]); err != nil || gap > 0 {
			n++
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// model is what was written and what was answered.
type model struct {
	mu sync.Mutex
	// written[g][i-1] has every payload that entry i was given: an entry that was
	// lost in a crash may be written anew with another.
	written   map[record.Group][][][]byte
	acked     map[record.Group]record.Index // durable up to here
	forgotten map[record.Group]record.Index // may be gone up to here
	// tune changes the log's Config; it may be nil.
	tune func(*Config)
}

func newModel() *model {
	return &model{written: map[record.Group][][][]byte{}, acked: map[record.Group]record.Index{}, forgotten: map[record.Group]record.Index{}}
}

func (m *model) write(g record.Group, i record.Index, data []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for len(m.written[g]) < int(i) {
		m.written[g] = append(m.written[g], nil)
	}
	m.written[g][i-1] = append(m.written[g][i-1], data)
}

func (m *model) ack(g record.Group, i record.Index) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.acked[g] = max(m.acked[g], i)
}

func (m *model) clone() *model {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := newModel()
	c.tune = m.tune
	for g, w := range m.written {
		for _, alternatives := range w {
			c.written[g] = append(c.written[g], append([][]byte(nil), alternatives...))
		}
		c.acked[g], c.forgotten[g] = m.acked[g], m.forgotten[g]
	}
	return c
}

// found is what a replay brought back: last index and where each entry is.
type found struct {
	last      map[record.Group]record.Index
	positions map[record.Group]map[record.Index]Position
}

// recover opens a copy and compares: everything acknowledged is there, in order
// and without holes, and nothing that nobody wrote.
func (m *model) recover(fsys vfs.FS) (*Log, Recovery, found, error) {
	f := found{map[record.Group]record.Index{}, map[record.Group]map[record.Index]Position{}}
	cfg := testConfig(fsys)
	if m.tune != nil {
		m.tune(&cfg)
	}
	log, rec, err := Open(cfg, func(r Record) error {
		if r.Kind != KindEntry {
			return nil
		}
		last := f.last[r.Group]
		if r.Index > max(last, m.forgotten[r.Group])+1 {
			return fmt.Errorf("group %d: entry %d follows %d", r.Group, r.Index, last)
		}
		w := m.written[r.Group]
		if int(r.Index) > len(w) {
			return fmt.Errorf("group %d: entry %d was never written", r.Group, r.Index)
		}
		for _, want := range w[r.Index-1] {
			if bytes.Equal(want, r.Data) {
				f.last[r.Group] = r.Index
				if f.positions[r.Group] == nil {
					f.positions[r.Group] = map[record.Index]Position{}
				}
				f.positions[r.Group][r.Index] = r.Position
				return nil
			}
		}
		return fmt.Errorf("group %d: entry %d holds what was never written: %.40q", r.Group, r.Index, r.Data)
	})
	if err != nil {
		return log, rec, f, err
	}
	for g, want := range m.acked {
		if f.last[g] < want && want > m.forgotten[g] {
			return log, rec, f, fmt.Errorf("group %d: entries up to %d were acknowledged, %d came back", g, want, f.last[g])
		}
	}
	return log, rec, f, nil
}

// putRecord writes a record without a gap at b[0:], which has room for paddedBytes.
func putRecord(b []byte, r *Record, at Position) int {
	putHeader(b, r, 0, at)
	n := paddedBytes(0, len(r.Data))
	copy(b[recordBytes:], r.Data)
	clear(b[recordBytes+len(r.Data) : n])
	return n
}

// run submits entries and waits for each gather, as a node under load does.
type run struct {
	t    *testing.T
	m    *model
	log  *Log
	w    *Writer
	next map[record.Group]record.Index
	life int
}

// relaxedGroup's batches do not ask for a sync.
const relaxedGroup = record.Group(3)

// batch submits n entries of a group; the returned channel closes when answered.
func (r *run) batch(g record.Group, n int) chan struct{} {
	var recs []Record
	for range n {
		r.next[g]++
		i := r.next[g]
		data := payload(g, i, r.life)
		r.m.write(g, i, data)
		recs = append(recs, Record{Kind: KindEntry, Group: g, Index: i, Term: 1, Data: data})
	}
	recs = append(recs, Record{Kind: KindHardState, Group: g, Term: 1, Vote: 7, Index: r.next[g]})
	last, done := r.next[g], make(chan struct{})
	r.w.Submit(Batch{Records: recs, Sync: g != relaxedGroup, Done: func(pos []Position, err error) {
		if err == nil && len(pos) != len(recs) {
			r.t.Errorf("%d positions for %d records", len(pos), len(recs))
		}
		if err == nil && g != relaxedGroup {
			r.m.ack(g, last)
		}
		close(done)
	}})
	return done
}
