package commitlog

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/vfs"
)

// run is a log, its model, and the owner's last checkpoint.
type run struct {
	*model
	fs       *vfs.Mem
	log      *Log
	sent     [][]byte // of model.batches, for the replay
	epoch    record.Epoch
	ckptEnd  record.Offset
	ckptFrom record.Offset // the log start that the checkpoint knows
}

// The log behaves like a list of batches, whatever is done in whatever order,
// and comes back from a crash at any point with all that a checkpoint covered.
func TestLogAgainstModel(t *testing.T) {
	seeds(t, 8, func(t *testing.T, rng *rand.Rand) {
		r := &run{model: &model{ahead: true}, fs: vfs.NewMem()}
		r.log = openLog(t, testConfig(r.fs), 0)
		for range 400 {
			r.step(t, rng)
		}
		r.checkAll(t, r.log.Read, r.start, r.end())
	})
}

func (r *run) step(t *testing.T, rng *rand.Rand) {
	t.Helper()
	switch n := rng.IntN(100); {
	case n < 45:
		valueBytes := []int{10, 300, 3000, 60000}[min(rng.IntN(8), 3)*rng.IntN(2)]
		sent, a := r.make(rng, r.epoch, valueBytes)
		r.batches, r.sent = append(r.batches, a), append(r.sent, sent)
		a.appendTo(t, r.log, sent, rng.IntN(2)*rng.IntN(50000))
	case n < 55:
		must(t, r.log.Flush())
	case n < 60:
		must(t, r.log.Flush(), r.log.Sync())
		r.ckptEnd, r.ckptFrom = r.end(), r.start
	case n < 85:
		r.read(t, rng)
	case n < 88:
		r.lookup(t, rng)
	case n < 90:
		r.epoch += record.Epoch(rng.IntN(3))
	case n < 94:
		if span := int64(r.end() - r.start); span > 0 && rng.IntN(3) == 0 {
			r.start += record.Offset(rng.Int64N(span + 1))
			must(t, r.log.SetLogStart(r.start))
		}
	case n < 97:
		must(t, r.log.Sweep())
	default:
		r.crash(t, rng)
	}
	if r.log.LogEnd() != r.end() || r.log.LogStart() != r.start {
		t.Fatalf("log from %d to %d, model from %d to %d", r.log.LogStart(), r.log.LogEnd(), r.start, r.end())
	}
}

func (r *run) read(t *testing.T, rng *rand.Rand) {
	t.Helper()
	o := r.start + record.Offset(rng.Int64N(int64(r.end()-r.start)+1))
	limit := r.end()
	if rng.IntN(3) == 0 && len(r.batches) > 0 {
		limit = r.batches[rng.IntN(len(r.batches))].header.NextOffset()
	}
	for maxBytes := rng.IntN(1 << uint(rng.IntN(17))); o < limit; {
		next := r.checkRead(t, r.log.Read, o, maxBytes, rng.IntN(2) == 0, limit)
		if next == o || rng.IntN(4) == 0 {
			return
		}
		o = next
	}
}

func (r *run) lookup(t *testing.T, rng *rand.Rand) {
	t.Helper()
	at := 900 + rng.Int64N(int64(r.end())*10+400)
	wantOffset, wantTime := r.forTime(at)
	o, tm, epoch, err := r.log.OffsetForTime(at)
	if err != nil || o != wantOffset || tm != wantTime {
		t.Fatalf("OffsetForTime(%d) = %d, %d, %v; want %d, %d", at, o, tm, err, wantOffset, wantTime)
	}
	if o >= 0 && epoch != r.batches[r.at(o)].header.LeaderEpoch {
		t.Fatalf("epoch %d at %d", epoch, o)
	}
}

// crash takes what a power cut leaves, opens it as the owner would, and replays.
func (r *run) crash(t *testing.T, rng *rand.Rand) {
	t.Helper()
	policy := []vfs.CrashPolicy{vfs.CrashRandom, vfs.CrashLose, vfs.CrashKeep}[rng.IntN(3)]
	r.fs = r.fs.CrashCopy(rng.Uint64(), policy)
	must(t, r.log.Close())
	cfg := testConfig(r.fs)
	cfg.Start = r.ckptFrom
	r.log = openLog(t, cfg, r.ckptEnd)
	if r.start < r.ckptEnd {
		r.checkAll(t, r.log.Read, r.start, r.ckptEnd)
	}
	for i := r.at(r.ckptEnd); i < len(r.batches); i++ {
		r.batches[i].appendTo(t, r.log, r.sent[i], 0)
	}
	must(t, r.log.SetLogStart(r.start))
}

func TestMemoryAgainstModel(t *testing.T) {
	seeds(t, 5, func(t *testing.T, rng *rand.Rand) {
		m := &model{}
		l := NewMemory(MemoryConfig{})
		for range 500 {
			switch n := rng.IntN(10); {
			case n < 4:
				sent, a := m.make(rng, 1, 400)
				m.batches = append(m.batches, a)
				a.appendTo(t, l, sent, 0)
			case n < 8:
				o := m.start + record.Offset(rng.Int64N(int64(m.end()-m.start)+1))
				m.checkRead(t, l.Read, o, rng.IntN(5000), rng.IntN(2) == 0, m.end())
			case n == 8:
				at := 900 + rng.Int64N(int64(m.end())*10+400)
				want, _ := m.forTime(at)
				if o, _, _, err := l.OffsetForTime(at); err != nil || o != want {
					t.Fatalf("OffsetForTime(%d) = %d, %v; want %d", at, o, err, want)
				}
			default:
				m.start += record.Offset(rng.Int64N(int64(m.end()-m.start)/4 + 1))
				must(t, l.SetLogStart(m.start))
			}
		}
		m.checkAll(t, l.Read, m.start, m.end())
	})
}

func TestMemoryIsBoundedAndForgetsByAge(t *testing.T) {
	m, rng := &model{}, rand.New(rand.NewPCG(2, 2))
	const bound = 300_000
	l := NewMemory(MemoryConfig{RetentionBytes: bound})
	for range 3000 {
		sent, a := m.make(rng, 1, 300)
		m.batches = append(m.batches, a)
		a.appendTo(t, l, sent, 0)
		if l.SizeBytes() > 2*bound+maxSlabBytes {
			t.Fatalf("%d bytes", l.SizeBytes())
		}
	}
	if !l.Over() {
		t.Fatal("not over its bound")
	}
	if _, err := l.Read(0, 1000, true, m.end()); err == nil {
		t.Fatal("what was dropped can be read")
	}
	m.start = l.RetentionCandidate(time.UnixMilli(0), -1, bound)
	must(t, l.SetLogStart(m.start))
	m.checkAll(t, l.Read, m.start, m.end())
	if l.Over() {
		t.Fatal("still over its bound")
	}
	if o := l.RetentionCandidate(time.UnixMilli(1<<40), time.Hour, -1); o != m.end() {
		t.Fatalf("all is old, kept from %d", o)
	}
	must(t, l.Close())
}

// A slab for a large batch is larger than others. What follows in it is still given back,
// and looked through, in small pieces.
func TestPiecesAreSmallBehindALargeBatch(t *testing.T) {
	m, rng := &model{}, rand.New(rand.NewPCG(3, 3))
	l := NewMemory(MemoryConfig{})
	add := func(valueBytes, least int) {
		for {
			sent, a := m.make(rng, 1, valueBytes)
			if len(sent) < least {
				continue
			}
			m.batches = append(m.batches, a)
			a.appendTo(t, l, sent, 0)
			return
		}
	}
	add(600_000, 1<<20+maxSlabBytes) // the slab's second half is free
	for range 2000 {
		add(300, 0)
	}
	for i, p := range l.tail.pieces {
		if i > 0 && p.sizeBytes() > maxSlabBytes+5000 {
			t.Fatalf("piece %d of %d has %d bytes", i, len(l.tail.pieces), p.sizeBytes())
		}
	}
	m.checkAll(t, l.Read, 0, m.end())
}
