package replica

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"path"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/vfs"
	"github.com/tube-mq/tube/internal/wal"
)

// tally is a machine that folds every entry into a digest.
type tally struct {
	mu     sync.Mutex
	count  uint64
	digest uint32
	led    chan Status
	fail   error // Settle's answer
	lost   error // Save's
	pad    int   // bytes that Save adds
}

func newTally() *tally { return &tally{led: make(chan Status, 100)} }

func (m *tally) Apply(e Entry) any {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.count++
	m.digest = crc32.Update(m.digest, record.Castagnoli, e.Data)
	return m.count
}
func (m *tally) Applied() {}
func (m *tally) Led(s Status) {
	select {
	case m.led <- s:
	default:
	}
}
func (m *tally) Save() ([]byte, error) {
	b := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(nil, m.count), m.digest)
	return append(b, make([]byte, m.pad)...), m.lost
}
func (m *tally) Restore(b []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if b != nil {
		m.count, m.digest = binary.BigEndian.Uint64(b), binary.BigEndian.Uint32(b[8:])
	}
	return nil
}
func (m *tally) Settle() error { return m.fail }
func (m *tally) Close()        {}

func (m *tally) state() (uint64, uint32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.count, m.digest
}

func openHost(t *testing.T, fsys vfs.FS, dir string) *Host {
	t.Helper()
	h, err := Open(Config{
		FS: fsys, Dir: dir, Logger: slog.New(slog.DiscardHandler), Loops: 2,
		WAL:    wal.Config{FileBytes: 1 << 20, FirstFileBytes: 64 << 10, MaxSpares: 2},
		OnFail: func(err error) { t.Errorf("storage failed: %v", err) },
	})
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func addTally(t *testing.T, h *Host, id record.Group) (*Group, *tally) {
	t.Helper()
	m := newTally()
	saved, err := h.Saved(id)
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Restore(saved); err != nil {
		t.Fatal(err)
	}
	g, err := h.Add(Spec{Group: id, Replica: 1, Voters: []record.ReplicaID{1}, Machine: m})
	if err != nil {
		t.Fatal(err)
	}
	timeout := time.After(10 * time.Second)
	for {
		select {
		case s := <-m.led:
			if s.Leading {
				return g, m
			}
		case <-timeout:
			t.Fatalf("group %d: nobody leads", id)
		}
	}
}

func TestEntriesSurviveRestarts(t *testing.T) {
	dir := t.TempDir()
	want := map[record.Group]uint32{}
	counts := map[record.Group]uint64{}
	for round := range 4 {
		h := openHost(t, vfs.OS{}, dir)
		var wait sync.WaitGroup
		for id := record.Group(1); id <= 5; id++ {
			g, m := addTally(t, h, id)
			if n, d := m.state(); n != counts[id] || d != want[id] {
				t.Fatalf("round %d: group %d came back with %d entries, digest %08x; want %d, %08x", round, id, n, d, counts[id], want[id])
			}
			wait.Go(func() {
				for i := range 200 {
					if _, err := g.ProposeWait(context.Background(), fmt.Appendf(nil, "%d %d %d", round, id, i)); err != nil {
						t.Errorf("group %d: %v", id, err)
						return
					}
				}
			})
		}
		if round%2 == 1 {
			if err := h.Checkpoint(); err != nil {
				t.Fatal(err)
			}
		}
		wait.Wait()
		for _, g := range h.Groups() {
			want[g.ID()] = 0
			counts[g.ID()], want[g.ID()] = g.spec.Machine.(*tally).state()
			if counts[g.ID()] != uint64(200*(round+1)) {
				t.Fatalf("group %d has %d entries", g.ID(), counts[g.ID()])
			}
		}
		if err := h.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// What the log has of a replica that stopped while it ran stays, whatever other groups
// do: the next start has all of it.
func TestStoppedReplicaIsWholeAfterRestart(t *testing.T) {
	for _, checkpointed := range []bool{false, true} {
		dir := t.TempDir()
		h := openHost(t, vfs.OS{}, dir)
		stopped, m := addTally(t, h, 1)
		busy, _ := addTally(t, h, 2)
		propose := func(g *Group, data []byte) {
			t.Helper()
			if _, err := g.ProposeWait(context.Background(), data); err != nil {
				t.Fatal(err)
			}
		}
		propose(stopped, []byte("in the section, or not"))
		if checkpointed {
			if err := h.Checkpoint(); err != nil {
				t.Fatal(err)
			}
		}
		propose(stopped, []byte("behind it"))
		m.lost = errors.New("state lost")
		for range 3 {
			for range 5 {
				propose(busy, make([]byte, 600<<10))
			}
			if err := h.Checkpoint(); err != nil {
				t.Fatal(err)
			}
		}
		if err := stopped.Err(); !errors.Is(err, m.lost) {
			t.Fatalf("a replica whose state is lost: %v", err)
		}
		if err := h.Close(); err != nil {
			t.Fatal(err)
		}
		h = openHost(t, vfs.OS{}, dir)
		if g, m := addTally(t, h, 1); m.count != 2 || g.Err() != nil {
			t.Fatalf("%d entries came back, want 2: %v", m.count, g.Err())
		}
		if err := h.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// The large state of an idle group is not kept in memory from one checkpoint to the next,
// and is in all of them, also of a replica that stopped; if the file is damaged it is saved anew.
func TestLargeSectionsAreReadFromTheLastCheckpoint(t *testing.T) {
	dir := t.TempDir()
	h := openHost(t, vfs.OS{}, dir)
	idle, m := addTally(t, h, 1)
	busy, _ := addTally(t, h, 2)
	stopped, s := addTally(t, h, 3)
	m.pad, s.pad = 2*keptSectionBytes, 2*keptSectionBytes
	propose := func(g *Group) {
		t.Helper()
		if _, err := g.ProposeWait(context.Background(), []byte("x")); err != nil {
			t.Fatal(err)
		}
	}
	propose(idle)
	propose(stopped)
	for round := range 3 {
		propose(busy)
		if err := h.Checkpoint(); err != nil {
			t.Fatal(err)
		}
		stopped.Fail(errors.New("stopped"))
		kept := 0
		for _, b := range h.checkpoint.last {
			kept += len(b)
		}
		if kept > keptSectionBytes || len(h.checkpoint.rows) != 2 {
			t.Fatalf("round %d: %d bytes are kept, %d sections are not", round, kept, len(h.checkpoint.rows))
		}
	}
	name := path.Join(h.checkpointDir(), checkpointName(h.checkpoint.seq))
	if err := vfs.FlipBit(vfs.OS{}, name, int64(h.checkpoint.rows[1].at)+100, 1); err != nil {
		t.Fatal(err)
	}
	if err := h.Checkpoint(); err == nil {
		t.Fatal("the damage was not found")
	}
	if err := h.Checkpoint(); err != nil {
		t.Fatal(err)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	h = openHost(t, vfs.OS{}, dir)
	for _, id := range []record.Group{1, 3} {
		if g, m := addTally(t, h, id); m.count != 1 || g.Err() != nil {
			t.Errorf("group %d came back with %d entries: %v", id, m.count, g.Err())
		}
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
}

// A checkpoint that fails must not let the next one forget what it lacks: the
// group that was to be in it is idle from then on, and the write-ahead log moves
// on to other files.
func TestFailedCheckpointForgetsNothing(t *testing.T) {
	dir := t.TempDir()
	h := openHost(t, vfs.OS{}, dir)
	idle, m := addTally(t, h, 1)
	busy, _ := addTally(t, h, 2)
	propose := func(g *Group, data []byte) {
		t.Helper()
		if _, err := g.ProposeWait(context.Background(), data); err != nil {
			t.Fatal(err)
		}
	}
	propose(idle, []byte("kept"))
	m.fail = fmt.Errorf("segment cannot be written")
	if err := h.Checkpoint(); err == nil {
		t.Fatal("a checkpoint was made although a machine could not settle")
	}
	m.fail = nil
	for range 5 {
		propose(busy, make([]byte, 600<<10))
	}
	began := h.wal.SizeBytes()
	if err := h.Checkpoint(); err != nil {
		t.Fatal(err)
	}
	if h.wal.SizeBytes() >= began {
		t.Fatal("nothing was forgotten: the test shows nothing")
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	h = openHost(t, vfs.OS{}, dir)
	if _, m := addTally(t, h, 1); m.count != 1 {
		t.Fatalf("%d entries came back, want 1", m.count)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestRemovedGroupStaysRemoved(t *testing.T) {
	dir := t.TempDir()
	h := openHost(t, vfs.OS{}, dir)
	g, _ := addTally(t, h, 1)
	if _, err := g.ProposeWait(context.Background(), []byte("gone")); err != nil {
		t.Fatal(err)
	}
	if err := h.Remove(g); err != nil {
		t.Fatal(err)
	}
	if _, err := g.ProposeWait(context.Background(), []byte("late")); err != ErrStopped {
		t.Fatalf("a removed group answered %v", err)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	h = openHost(t, vfs.OS{}, dir)
	defer h.Close()
	if b, err := h.Saved(1); b != nil || err != nil || len(h.recovered) != 0 {
		t.Fatalf("saved %q, error %v, %d groups recovered", b, err, len(h.recovered))
	}
}

// Raft bounds what is uncommitted; what is committed must not count for ever.
func TestMoreEntriesThanMayBeUncommitted(t *testing.T) {
	h := openHost(t, vfs.OS{}, t.TempDir())
	defer h.Close()
	g, _ := addTally(t, h, 1)
	const total = 2*maxUncommittedEntries + 1000
	under := make(chan struct{}, 1000)
	var refused atomic.Int64
	for range total {
		under <- struct{}{}
		g.Propose(Proposal{Data: []byte("x"), Done: func(_ any, err error) {
			if err != nil {
				refused.Add(1)
			}
			<-under
		}})
	}
	for range cap(under) {
		under <- struct{}{}
	}
	if n := refused.Load(); n > 0 {
		t.Fatalf("%d of %d proposals were refused, with %d under way at most", n, total, cap(under))
	}
}

// Each start begins a file of the log; starts that are cut short must not pile
// them up for ever.
func TestFilesOfStartsThatWereCutShortAreSwept(t *testing.T) {
	cfg := Config{
		FS: vfs.NewMem(), Dir: "d", Logger: slog.New(slog.DiscardHandler), CheckpointBytes: 128 << 10,
		WAL: wal.Config{FileBytes: 1 << 20, FirstFileBytes: 64 << 10},
	}
	for range 8 {
		h, err := Open(cfg)
		if err != nil {
			t.Fatal(err)
		}
		addTally(t, h, 1)
		dead := cfg.FS.(*vfs.Mem).CrashCopy(1, vfs.CrashKeep)
		if err := h.Close(); err != nil {
			t.Fatal(err)
		}
		cfg.FS = dead
	}
	h, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	addTally(t, h, 1)
	deadline := time.Now().Add(10 * time.Second)
	for h.wal.SizeBytes() > 2*cfg.CheckpointBytes {
		if time.Now().After(deadline) {
			t.Fatalf("%d bytes of log for one entry a start", h.wal.SizeBytes())
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// A log that one start had to read is not left for the next one to read as well, together
// with what this one writes. As long as groups are missing a checkpoint would not shorten
// it, so that one waits for them, but not for ever.
func TestALogThatAStartReadIsNotReadAgain(t *testing.T) {
	cfg := Config{
		FS: vfs.NewMem(), Dir: "d", Logger: slog.New(slog.DiscardHandler), CheckpointBytes: 128 << 10,
		WAL: wal.Config{FileBytes: 64 << 10, FirstFileBytes: 64 << 10},
	}
	open := func() *Host {
		h, err := Open(cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = h.Close() })
		return h
	}
	// hold keeps the loop from making a checkpoint until the result is called, or the test ends.
	hold := func(h *Host) func() {
		h.checkpoint.mu.Lock()
		release := sync.OnceFunc(h.checkpoint.mu.Unlock)
		t.Cleanup(release)
		return release
	}
	h := open()
	g, _ := addTally(t, h, 1)
	release := hold(h)
	for h.wal.SizeBytes() <= cfg.CheckpointBytes {
		if _, err := g.ProposeWait(t.Context(), bytes.Repeat([]byte("x"), 4<<10)); err != nil {
			t.Fatal(err)
		}
	}
	cfg.FS = cfg.FS.(*vfs.Mem).CrashCopy(1, vfs.CrashKeep)
	release()

	h = open()
	release = hold(h)
	if h.walGrown() >= cfg.CheckpointBytes || h.wal.SizeBytes() > 2*cfg.CheckpointBytes {
		t.Fatal("it would be made anyway")
	}
	if h.walLong(time.Time{}, h.started) {
		t.Fatal("a checkpoint before the groups are there")
	}
	if !h.walLong(time.Time{}, h.started.Add(walRest+1)) {
		t.Fatal("no checkpoint as long as a group is missing")
	}
	addTally(t, h, 1)
	if !h.walLong(time.Time{}, h.started) || h.walLong(h.started, h.started.Add(walRest-1)) {
		t.Fatal("no checkpoint although the groups are there, or one after the other")
	}
	release()
	if err := h.Checkpoint(); err != nil {
		t.Fatal(err)
	}
	if h.walLong(time.Time{}, time.Now()) || h.wal.SizeBytes() > cfg.CheckpointBytes {
		t.Fatalf("still %d bytes of log", h.wal.SizeBytes())
	}
}
