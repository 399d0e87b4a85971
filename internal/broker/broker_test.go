package broker

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/replica"
	"github.com/tube-mq/tube/internal/vfs"
	"github.com/tube-mq/tube/internal/wal"
)

// batchOf builds an uncompressed batch of values at a time, of producer pid.
func batchOf(pid record.ProducerID, sequence int32, timeMillis int64, values ...string) []byte {
	be := binary.BigEndian
	var body []byte
	for i, v := range values {
		rec := []byte{0}                         // attributes
		rec = binary.AppendVarint(rec, 0)        // timestamp delta
		rec = binary.AppendVarint(rec, int64(i)) // offset delta
		rec = binary.AppendVarint(rec, -1)       // no key
		rec = binary.AppendVarint(rec, int64(len(v)))
		rec = append(rec, v...)
		rec = binary.AppendVarint(rec, 0) // headers
		body = append(binary.AppendVarint(body, int64(len(rec))), rec...)
	}
	b := make([]byte, record.HeaderBytes, record.HeaderBytes+len(body))
	b = append(b, body...)
	be.PutUint32(b[8:], uint32(len(b)-12))
	b[16] = 2
	be.PutUint32(b[23:], uint32(len(values)-1))
	be.PutUint64(b[27:], uint64(timeMillis))
	be.PutUint64(b[35:], uint64(timeMillis))
	be.PutUint64(b[43:], uint64(pid))
	be.PutUint16(b[51:], 0)
	be.PutUint32(b[53:], uint32(sequence))
	if pid < 0 {
		be.PutUint16(b[51:], 0xffff)
		be.PutUint32(b[53:], 0xffffffff)
	}
	be.PutUint32(b[57:], uint32(len(values)))
	be.PutUint32(b[17:], crc32.Checksum(b[21:], record.Castagnoli))
	return b
}

type rig struct {
	t    testing.TB
	fs   vfs.FS
	dir  string
	host *replica.Host
	*Broker
	topic   *meta.Topic
	running *running
}

func testTopic(change func(*meta.TopicConfig)) *meta.Topic {
	t := &meta.Topic{ID: record.TopicID{7}, Name: "orders", Config: meta.TopicConfig{
		Retention: -1, RetentionBytes: -1, SegmentBytes: 64 << 10, SegmentAge: time.Hour, MaxMessageBytes: 1 << 20,
		TimestampBeforeMax: 1 << 62, TimestampAfterMax: time.Hour, Durability: meta.QuorumFsync,
	}}
	t.Partitions = []meta.Placement{{Group: 1000, Replicas: []meta.Replica{{ID: 1, Node: 1}}}}
	if change != nil {
		change(&t.Config)
	}
	return t
}

func start(t testing.TB, dir string, topic *meta.Topic) *rig {
	t.Helper()
	return startOn(t, vfs.OS{}, dir, topic)
}

func startOn(t testing.TB, fsys vfs.FS, dir string, topic *meta.Topic) *rig {
	t.Helper()
	return startWith(t, fsys, dir, topic, Config{ReserveBytes: 1})
}

// startWith starts a broker with what cfg says beyond the rig's own.
func startWith(t testing.TB, fsys vfs.FS, dir string, topic *meta.Topic, cfg Config) *rig {
	t.Helper()
	logger := slog.New(slog.DiscardHandler)
	host, err := replica.Open(replica.Config{FS: fsys, Dir: dir, Logger: logger, WAL: wal.Config{FileBytes: 1 << 20, FirstFileBytes: 64 << 10}})
	if err != nil {
		t.Fatal(err)
	}
	cfg.Node, cfg.FS, cfg.Dir, cfg.Host, cfg.Logger = 1, fsys, filepath.Join(dir, "data"), host, logger
	b, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t, fsys, dir, host, b, topic, &running{b, host}}
	// Else it may still write when the folder is removed.
	t.Cleanup(r.running.end)
	if err := b.Host(topic, 0); err != nil {
		t.Fatal(err)
	}
	r.await()
	return r
}

// await waits until the partition leads.
func (r *rig) await() {
	r.t.Helper()
	w := make(signal, 1)
	stop := r.partition().Watch(w)
	defer stop()
	deadline := time.After(10 * time.Second)
	for {
		if _, err := r.partition().Bounds(); err == nil {
			return
		}
		select {
		case <-w:
		case <-deadline:
			r.t.Fatal("the partition does not come up")
		}
	}
}

type signal chan struct{}

func (s signal) Wake() {
	select {
	case s <- struct{}{}:
	default:
	}
}

func (r *rig) partition() *Partition {
	p, ok := r.Partition(record.TopicPartition{Topic: r.topic.ID})
	if !ok {
		r.t.Fatal("the partition is not hosted")
	}
	return p
}

// running is what a test that ends has to stop; it holds nothing once that is stopped.
type running struct {
	*Broker
	host *replica.Host
}

func (r *running) end() {
	if r.host != nil {
		r.Stop()
		_ = r.host.Close()
	}
}

func (r *rig) stop() {
	r.t.Helper()
	*r.running = running{}
	r.Stop()
	if err := r.host.Close(); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) restart() *rig {
	r.t.Helper()
	r.stop()
	return startOn(r.t, r.fs, r.dir, r.topic)
}

func (r *rig) produce(batch []byte) ProduceResult {
	r.t.Helper()
	done := make(chan ProduceResult, 1)
	buf := record.NewBuffer(len(batch))
	copy(buf.B, batch)
	r.partition().Produce(ProduceRequest{Batch: buf.B, Buf: buf, LeaderEpoch: -1}, func(p ProduceResult) { done <- p })
	buf.Release()
	select {
	case p := <-done:
		return p
	case <-time.After(10 * time.Second):
		r.t.Fatal("no answer to produce")
		panic("unreachable")
	}
}

// values reads everything from an offset.
func (r *rig) values(from record.Offset) []string {
	r.t.Helper()
	var out []string
	for {
		res, err := r.partition().Read(ReadRequest{Offset: from, MaxBytes: 4096, MinOne: true, LeaderEpoch: -1})
		if err != nil {
			r.t.Fatal(err)
		}
		if res.SizeBytes == 0 {
			return out
		}
		var all []byte
		for _, p := range res.Parts {
			all = append(all, p...)
		}
		res.Release()
		for len(all) > 0 {
			h, err := record.ParseHeader(all)
			if err != nil {
				r.t.Fatal(err)
			}
			if _, err := record.Verify(all[:h.SizeBytes()]); err != nil {
				r.t.Fatal(err)
			}
			err = record.Each(all[:h.SizeBytes()], record.Limits{}, func(rec record.Record) bool {
				if rec.Offset >= from {
					out = append(out, string(rec.Value))
				}
				return true
			})
			if err != nil {
				r.t.Fatal(err)
			}
			all = all[h.SizeBytes():]
			from = h.NextOffset()
		}
	}
}

func TestProducedIsReadBackAndSurvivesRestarts(t *testing.T) {
	record.PoisonReleased(true)
	defer record.PoisonReleased(false)
	r := start(t, t.TempDir(), testTopic(nil))
	var want []string
	sequence := int32(0)
	for round := range 4 {
		for i := range 100 {
			v := string(rune('a'+round)) + string(make([]byte, 100*i))
			res := r.produce(batchOf(5, sequence, 1000, v, "second"))
			if res.Err != nil || res.BaseOffset != record.Offset(len(want)) {
				t.Fatalf("produced at %d with %v, want %d", res.BaseOffset, res.Err, len(want))
			}
			sequence += 2
			want = append(want, v, "second")
		}
		if round == 1 {
			if err := r.partition().settle(); err != nil {
				t.Fatal(err)
			}
		}
		r = r.restart()
		got := r.values(0)
		if len(got) != len(want) {
			t.Fatalf("round %d: %d records, want %d", round, len(got), len(want))
		}
		for i := range want {
			if got[i] != want[i] {
				t.Fatalf("round %d: record %d is not what was written", round, i)
			}
		}
	}
	// The producer is known across restarts: a repeat gets its first offset.
	if res := r.produce(batchOf(5, sequence-2, 1000, want[len(want)-2], "second")); res.Err != nil || res.BaseOffset != record.Offset(len(want)-2) {
		t.Fatalf("a repeat was answered with %d, %v", res.BaseOffset, res.Err)
	}
	if res := r.produce(batchOf(5, sequence+2, 1000, "gap")); !errors.Is(res.Err, ErrOutOfOrderSequence) {
		t.Fatalf("a gap was answered with %v", res.Err)
	}
	r.stop()
}

func TestBadBatchesAreRefused(t *testing.T) {
	r := start(t, t.TempDir(), testTopic(func(c *meta.TopicConfig) { c.MaxMessageBytes = 1000 }))
	defer r.stop()
	now := time.Now().UnixMilli()
	flip := func(i int) []byte {
		b := batchOf(-1, 0, now, "x")
		b[i] ^= 1
		return b
	}
	sealed := func(change func(b []byte)) []byte {
		b := batchOf(-1, 0, now, "x")
		change(b)
		binary.BigEndian.PutUint32(b[17:], crc32.Checksum(b[21:], record.Castagnoli))
		return b
	}
	for name, c := range map[string]struct {
		batch []byte
		want  error
	}{
		"flipped value":       {flip(67), record.ErrCorrupt},
		"flipped length":      {flip(11), record.ErrCorrupt},
		"old magic":           {func() []byte { b := batchOf(-1, 0, now, "x"); b[16] = 1; return b }(), record.ErrOldMagic},
		"count too high":      {sealed(func(b []byte) { b[60] = 2 }), record.ErrInvalid},
		"control":             {sealed(func(b []byte) { b[22] |= record.ControlBit }), record.ErrInvalid},
		"unknown compression": {sealed(func(b []byte) { b[22] |= 7 }), record.ErrInvalid},
		"not what it says":    {sealed(func(b []byte) { b[22] |= 1 }), record.ErrInvalid},
		"too large":           {batchOf(-1, 0, now, string(make([]byte, 2000))), record.ErrTooLarge},
		"from the future":     {batchOf(-1, 0, now+2*3600*1000, "x"), ErrTimestamp},
		"two batches":         {append(batchOf(-1, 0, now, "x"), batchOf(-1, 0, now, "y")...), record.ErrCorrupt},
	} {
		if res := r.produce(c.batch); !errors.Is(res.Err, c.want) {
			t.Errorf("%s: answered %v, want %v", name, res.Err, c.want)
		}
	}
	if b, err := r.partition().Bounds(); err != nil || b.HighWatermark != 0 {
		t.Errorf("something was stored: %+v, %v", b, err)
	}
}

func TestMemoryTopicGivesNoOffsetTwice(t *testing.T) {
	r := start(t, t.TempDir(), testTopic(func(c *meta.TopicConfig) { c.MemoryOnly = true }))
	for i := range int32(10) {
		if res := r.produce(batchOf(5, i, 1000, "gone")); res.Err != nil || res.BaseOffset != record.Offset(i) {
			t.Fatalf("produced at %d, %v", res.BaseOffset, res.Err)
		}
	}
	if got := r.values(0); len(got) != 10 {
		t.Fatalf("%d records before the restart", len(got))
	}
	r = r.restart()
	defer r.stop()
	b, err := r.partition().Bounds()
	if err != nil || b.LogStart != 10 || b.HighWatermark != 10 {
		t.Fatalf("after a restart: %+v, %v; want an empty log at 10", b, err)
	}
	if res := r.produce(batchOf(5, 10, 1000, "new")); res.Err != nil || res.BaseOffset != 10 {
		t.Fatalf("produced at %d, %v", res.BaseOffset, res.Err)
	}
}

func TestRetentionAndDeleteRecords(t *testing.T) {
	r := start(t, t.TempDir(), testTopic(func(c *meta.TopicConfig) { c.RetentionBytes = 100 << 10 }))
	for range 40 {
		if res := r.produce(batchOf(-1, 0, 1000, string(make([]byte, 10<<10)))); res.Err != nil {
			t.Fatal(res.Err)
		}
	}
	p := r.partition()
	if err := p.settle(); err != nil {
		t.Fatal(err)
	}
	if err := p.retain(t.Context(), time.Now()); err != nil {
		t.Fatal(err)
	}
	b, _ := p.Bounds()
	if b.LogStart == 0 || p.SizeBytes() > 200<<10 {
		t.Fatalf("log start %d, %d bytes left", b.LogStart, p.SizeBytes())
	}
	if got := len(r.values(b.LogStart)); got != int(b.HighWatermark-b.LogStart) {
		t.Fatalf("%d records readable of %d", got, b.HighWatermark-b.LogStart)
	}
	if _, err := p.Read(ReadRequest{Offset: b.LogStart - 1, MaxBytes: 1, LeaderEpoch: -1}); !errors.Is(err, ErrOutOfRange) {
		t.Fatalf("below the log start: %v", err)
	}
	if start, err := p.DeleteRecords(t.Context(), 35); err != nil || start != 35 {
		t.Fatalf("deleted up to %d, %v", start, err)
	}
	r = r.restart()
	defer r.stop()
	if b, _ := r.partition().Bounds(); b.LogStart != 35 || b.HighWatermark != 40 {
		t.Fatalf("after a restart: %+v", b)
	}
}

// A partition that is deleted with batches in memory, queued to be written, is
// no failure of the disk: the node goes on.
func TestDeletedWhileItsTailWaitsToBeWritten(t *testing.T) {
	r := start(t, t.TempDir(), testTopic(nil))
	defer r.stop()
	r.cfg.OnFail = func(err error) { t.Errorf("the node was stopped: %v", err) }
	p := r.partition()
	p.flush.writing.Lock() // the flusher is busy with it
	for range 10 {
		if res := r.produce(batchOf(-1, 0, 1000, string(make([]byte, 500<<10)))); res.Err != nil {
			t.Fatal(res.Err)
		}
	}
	gone := make(chan error, 1)
	go func() { gone <- r.Unhost(p.id, 1000) }()
	for {
		if _, ok := r.Partition(p.id); !ok {
			break
		}
	}
	p.flush.writing.Unlock()
	if err := <-gone; err != nil {
		t.Fatal(err)
	}
	if err := r.flusher.write(p); err != nil {
		t.Fatal(err)
	}
	if err := p.settle(); err != nil {
		t.Fatal(err)
	}
}

// The same after a kill, when the write-ahead log has the batches' headers only.
func TestMemoryTopicAfterAKill(t *testing.T) {
	mem := vfs.NewMem()
	topic := testTopic(func(c *meta.TopicConfig) { c.MemoryOnly = true })
	r := startOn(t, mem, "/d", topic)
	for i := range int32(5) {
		if res := r.produce(batchOf(5, i, 1000, "gone")); res.Err != nil {
			t.Fatal(res.Err)
		}
	}
	killed := mem.CrashCopy(1, vfs.CrashKeep)
	r.stop()
	r = startOn(t, killed, "/d", topic)
	defer r.stop()
	b, err := r.partition().Bounds()
	if err != nil || b.LogStart != b.HighWatermark || b.HighWatermark > 5 {
		t.Fatalf("after a kill: %+v, %v; want an empty log", b, err)
	}
	for i := range record.Offset(3) {
		if res := r.produce(batchOf(-1, 0, 1000, "new")); res.Err != nil || res.BaseOffset != b.HighWatermark+i {
			t.Fatalf("produced at %d, %v; want %d", res.BaseOffset, res.Err, b.HighWatermark+i)
		}
	}
	if got := r.values(b.HighWatermark); len(got) != 3 {
		t.Fatalf("%d records readable, want 3", len(got))
	}
}

// A batch that cannot be appended is not acknowledged.
func TestFailedAppendIsNotAcknowledged(t *testing.T) {
	r := start(t, t.TempDir(), testTopic(nil))
	defer r.stop()
	if err := r.partition().log.Close(); err != nil {
		t.Fatal(err)
	}
	if res := r.produce(batchOf(-1, 0, 1000, "lost")); !errors.Is(res.Err, ErrStorage) {
		t.Fatalf("answered with offset %d, %v", res.BaseOffset, res.Err)
	}
	if res := r.produce(batchOf(-1, 0, 1000, "later")); !errors.Is(res.Err, ErrStorage) {
		t.Fatalf("the next one: offset %d, %v", res.BaseOffset, res.Err)
	}
}

// Acknowledged means readable: already while the producer is being answered.
func TestAcknowledgedIsReadableAtOnce(t *testing.T) {
	r := start(t, t.TempDir(), testTopic(nil))
	defer r.stop()
	p := r.partition()
	type seen struct {
		base   record.Offset
		bounds Bounds
		err    error
	}
	answered := make(chan seen, 1)
	p.Produce(ProduceRequest{Batch: batchOf(-1, 0, 1000, "now"), LeaderEpoch: -1}, func(res ProduceResult) {
		b, err := p.Bounds()
		answered <- seen{res.BaseOffset, b, errors.Join(err, res.Err)}
	})
	if s := <-answered; s.err != nil || s.bounds.HighWatermark != s.base+1 {
		t.Fatalf("answered with offset %d, %v, while the high watermark was %d", s.base, s.err, s.bounds.HighWatermark)
	}
}
