package commitlog

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/vfs"
)

const testDir = "data/t-0"

// appended is one batch as the log must give it back.
type appended struct {
	bytes   []byte
	header  record.Header
	records []record.Record
}

// model is what a log should hold.
type model struct {
	batches []appended
	start   record.Offset
	ahead   bool // half of the readers who may have what follows read ahead do
}

func (m *model) end() record.Offset {
	if n := len(m.batches); n > 0 {
		return m.batches[n-1].header.NextOffset()
	}
	return 0
}

// at is the number of the batch that holds offset.
func (m *model) at(o record.Offset) int {
	for i := range m.batches {
		if m.batches[i].header.NextOffset() > o {
			return i
		}
	}
	return len(m.batches)
}

// make invents the next batch: as a producer sends it, and as it must be stored.
func (m *model) make(rng *rand.Rand, epoch record.Epoch, valueBytes int) (sent []byte, a appended) {
	records := make([]record.Record, 1+rng.IntN(4))
	base := m.end()
	for i := range records {
		v := make([]byte, rng.IntN(valueBytes)+1)
		for j := range v {
			v[j] = byte(rng.Uint32())
		}
		records[i] = record.Record{Offset: record.Offset(i), Timestamp: 1000 + int64(base)*10 + rng.Int64N(200), Value: v}
	}
	o := record.BatchOptions{Compression: record.Compression(rng.IntN(5) * rng.IntN(2))}
	sent, err := record.Encode(o, records)
	if err != nil {
		panic(err)
	}
	a.bytes = bytes.Clone(sent)
	record.PutBaseOffset(a.bytes, base)
	record.PutLeaderEpoch(a.bytes, epoch)
	for i := range records {
		records[i].Offset += base
	}
	a.records = records
	if a.header, err = record.Verify(a.bytes); err != nil {
		panic(err)
	}
	copy(sent, "garbage!") // as the owner's command header leaves it
	return sent, a
}

// appendTo gives the batch to a log, in a buffer that is released at once.
func (a *appended) appendTo(t testing.TB, l interface {
	Append([]byte, record.Header, *record.Buffer) error
}, sent []byte, slack int) {
	t.Helper()
	buf := record.NewBuffer(len(sent) + slack)
	copy(buf.B[slack:], sent)
	if err := l.Append(buf.B[slack:], a.header, buf); err != nil {
		t.Fatal(err)
	}
	buf.Release()
}

// add invents a batch and appends it to model and log.
func (m *model) add(t testing.TB, l *Log, rng *rand.Rand, epoch record.Epoch, valueBytes int) {
	t.Helper()
	sent, a := m.make(rng, epoch, valueBytes)
	m.batches = append(m.batches, a)
	a.appendTo(t, l, sent, rng.IntN(2)*rng.IntN(10*valueBytes))
}

func join(c Chunk) []byte {
	var b []byte
	for _, p := range c.Parts {
		b = append(b, p...)
	}
	return b
}

// checkRead compares one read with the model. It returns the offset after it.
func (m *model) checkRead(t testing.TB, read readFunc, o record.Offset, maxBytes int, minOne bool, limit record.Offset) record.Offset {
	t.Helper()
	c, err := read(o, maxBytes, minOne, limit)
	if err != nil {
		t.Fatalf("read at %d: %v", o, err)
	}
	got := join(c)
	if c.Release != nil {
		defer c.Release()
	}
	if m.ahead && c.Ahead != nil && o%2 == 0 {
		defer c.Ahead()
	}
	if len(got) != c.SizeBytes || (len(got) == 0) != (c.Release == nil) {
		t.Fatalf("read at %d: %d bytes in parts, says %d, release %v", o, len(got), c.SizeBytes, c.Release != nil)
	}
	total := 0
	i := m.at(o)
	for ; len(got) > 0; i++ {
		want := m.batches[i]
		if !bytes.HasPrefix(got, want.bytes) {
			t.Fatalf("read at %d: batch at %d differs", o, want.header.BaseOffset)
		}
		if want.header.NextOffset() > limit {
			t.Fatalf("read at %d: batch to %d is beyond the limit %d", o, want.header.NextOffset(), limit)
		}
		got = got[len(want.bytes):]
		total += len(want.bytes)
		if total > maxBytes && (!minOne || total > len(m.batches[m.at(o)].bytes)) {
			t.Fatalf("read at %d: %d bytes, asked for %d", o, total, maxBytes)
		}
		o = want.header.NextOffset()
	}
	if total == 0 && i < len(m.batches) && m.batches[i].header.NextOffset() <= limit && (minOne || len(m.batches[i].bytes) <= maxBytes) {
		t.Fatalf("read at %d to %d: nothing, but there is a batch to %d", o, limit, m.batches[i].header.NextOffset())
	}
	return o
}

// checkAll reads everything from an offset on.
func (m *model) checkAll(t testing.TB, read readFunc, from, to record.Offset) {
	t.Helper()
	for o := from; o < to; {
		next := m.checkRead(t, read, o, 5000, true, to)
		if next <= o {
			t.Fatalf("no progress at %d of %d", o, to)
		}
		o = next
	}
}

// forTime is what OffsetForTime must find.
func (m *model) forTime(at int64) (record.Offset, int64) {
	for _, b := range m.batches {
		for _, r := range b.records {
			if r.Offset >= m.start && r.Timestamp >= at {
				return r.Offset, r.Timestamp
			}
		}
	}
	return -1, -1
}

func testConfig(fs vfs.FS) Config {
	return Config{
		FS: fs, Dir: testDir, SegmentBytes: 20000, IndexIntervalBytes: 1000,
		Clock: func() time.Time { return time.Unix(1000, 0) }, Files: NewOpenFiles(3, 2000),
	}
}

func openLog(t testing.TB, cfg Config, end record.Offset) *Log {
	t.Helper()
	l, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Cut(end); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func must(t testing.TB, errs ...error) {
	t.Helper()
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
}

// filled is a log of several segments, all on disk, and its model.
func filled(t testing.TB, fs vfs.FS, n int) (*Log, *model) {
	t.Helper()
	m, rng := &model{}, rand.New(rand.NewPCG(1, 1))
	l := openLog(t, testConfig(fs), 0)
	for i := range n {
		m.add(t, l, rng, record.Epoch(i/40), 300)
		if i%10 == 0 {
			must(t, l.Flush())
		}
	}
	must(t, l.Flush(), l.Sync())
	return l, m
}

func segmentNames(t testing.TB, fs vfs.FS, suffix string) []string {
	t.Helper()
	names, err := fs.List(testDir)
	must(t, err)
	var out []string
	for _, n := range names {
		if len(n) == 20+len(suffix) && n[20:] == suffix {
			out = append(out, testDir+"/"+n)
		}
	}
	return out
}

func TestMain(m *testing.M) {
	record.PoisonReleased(true)
	m.Run()
}

func seeds(t *testing.T, n int, f func(t *testing.T, rng *rand.Rand)) {
	for seed := range uint64(n) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) { f(t, rand.New(rand.NewPCG(seed, 7))) })
	}
}
