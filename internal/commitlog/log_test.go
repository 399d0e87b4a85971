package commitlog

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/vfs"
)

// The process or the machine dies before or after every step that changes
// something: what the last checkpoint covered is there, the rest comes again.
func TestCrashAtEveryStep(t *testing.T) {
	type point struct {
		fs         *vfs.Mem
		end, start record.Offset // of the last checkpoint
		now        record.Offset // the log start then
	}
	var points []point
	fs := vfs.NewMem()
	m, rng := &model{}, rand.New(rand.NewPCG(9, 9))
	var ckptEnd, ckptStart record.Offset
	fs.SetHook(func(op vfs.Op, done bool) {
		for i, policy := range []vfs.CrashPolicy{vfs.CrashLose, vfs.CrashKeep, vfs.CrashRandom, vfs.CrashRandom} {
			points = append(points, point{fs.CrashCopy(uint64(len(points)+i), policy), ckptEnd, ckptStart, m.start})
		}
	})
	l := openLog(t, testConfig(fs), 0)
	for i := range 120 {
		m.add(t, l, rng, record.Epoch(i/30), 1000)
		switch {
		case i%40 == 35:
			m.start = m.batches[i-10].header.BaseOffset
			must(t, l.SetLogStart(m.start), l.Sweep())
		case i%12 == 11:
			must(t, l.Flush(), l.Sync())
			ckptEnd, ckptStart = m.end(), m.start
		case i%4 == 1:
			must(t, l.Flush())
		}
	}
	fs.SetHook(nil)
	if len(points) < 200 {
		t.Fatalf("only %d points", len(points))
	}
	for i, p := range points {
		if i%3 != 0 && testing.Short() {
			continue
		}
		cfg := testConfig(p.fs)
		cfg.Start = p.start
		// Twice: a crash right after the start must be survived as well.
		for range 2 {
			l := openLog(t, cfg, p.end)
			m.checkAll(t, l.Read, max(p.now, p.start), p.end)
			must(t, l.Sweep(), l.Close())
		}
	}
}

// What a reader has stays as it is when the tail it came from is given up.
func TestAChunkOutlivesTheTail(t *testing.T) {
	for _, valueBytes := range []int{50, 60000} {
		m, rng := &model{}, rand.New(rand.NewPCG(11, 11))
		l, mem := openLog(t, testConfig(vfs.NewMem()), 0), NewMemory(MemoryConfig{})
		for range 10 {
			sent, a := m.make(rng, 1, valueBytes)
			m.batches = append(m.batches, a)
			a.appendTo(t, l, sent, 0)
			a.appendTo(t, mem, sent, 0)
		}
		var want []byte
		for _, b := range m.batches {
			want = append(want, b.bytes...)
		}
		fromLog, err := l.Read(0, 1<<30, true, m.end())
		must(t, err)
		fromMemory, err := mem.Read(0, 1<<30, true, m.end())
		must(t, err, l.Flush(), l.Close(), mem.Close())
		for _, c := range []Chunk{fromLog, fromMemory} {
			if string(join(c)) != string(want) {
				t.Errorf("values to %d bytes: overwritten while held", valueBytes)
			}
			c.Release()
		}
	}
}

// A batch that is a small part of a large request does not keep all of it.
func TestASmallBatchDoesNotHoldALargeBuffer(t *testing.T) {
	l := openLog(t, testConfig(vfs.NewMem()), 0)
	batch, err := record.Encode(record.BatchOptions{}, []record.Record{{Value: make([]byte, 2*copyBytes)}})
	must(t, err)
	h, err := record.Verify(batch)
	must(t, err)
	for i, c := range []struct {
		bufferBytes int
		held        bool
	}{{len(batch), true}, {20 * len(batch), false}} {
		buf := record.NewBuffer(c.bufferBytes)
		part := buf.B[:len(batch)]
		copy(part, batch)
		h.BaseOffset = record.Offset(i)
		must(t, l.Append(part, h, buf))
		buf.Release()
		// A buffer that nobody holds has been overwritten (PoisonReleased).
		if held := part[16] == 2; held != c.held {
			t.Errorf("a batch of %d bytes in a buffer of %d: held %v", len(batch), c.bufferBytes, held)
		}
	}
}

// Appending goes on while Flush writes, and nothing of it is lost or doubled.
func TestAppendDuringFlush(t *testing.T) {
	fs := vfs.NewMem()
	m, rng := &model{}, rand.New(rand.NewPCG(12, 12))
	l := openLog(t, testConfig(fs), 0)
	left := 50
	fs.SetHook(func(op vfs.Op, done bool) {
		if op.Kind == vfs.OpWrite && left > 0 {
			left--
			m.add(t, l, rng, 1, 100)
			m.checkAll(t, l.Read, 0, m.end())
		}
	})
	for left > 0 {
		m.add(t, l, rng, 1, 100)
		must(t, l.Flush())
	}
	fs.SetHook(nil)
	m.checkAll(t, l.Read, 0, m.end())
	must(t, l.Flush(), l.Sync(), l.Close())
	m.checkAll(t, openLog(t, testConfig(fs), m.end()).Read, 0, m.end())
}

func TestALimitWithinABatchKeepsItBack(t *testing.T) {
	b, err := record.Encode(record.BatchOptions{}, []record.Record{{}, {Offset: 1}, {Offset: 2}})
	must(t, err)
	h, err := record.Verify(b)
	must(t, err)
	l := openLog(t, testConfig(vfs.NewMem()), 0)
	must(t, l.Append(b, h, nil))
	for range 2 { // from memory, then from the file
		if c, err := l.Read(0, 1000, true, 2); err != nil || c.SizeBytes != 0 {
			t.Fatalf("%d bytes, %v", c.SizeBytes, err)
		}
		c, err := l.Read(1, 1000, true, 3)
		if err != nil || c.SizeBytes != len(b) {
			t.Fatalf("%d bytes, %v", c.SizeBytes, err)
		}
		c.Release()
		must(t, l.Flush())
	}
}

func TestCutRemovesWhatIsBehind(t *testing.T) {
	fs := vfs.NewMem()
	l, m := filled(t, fs, 150)
	must(t, l.Close())
	end := m.batches[70].header.NextOffset()
	l = openLog(t, testConfig(fs), end)
	if l.LogEnd() != end {
		t.Fatal(l.LogEnd())
	}
	m.checkAll(t, l.Read, 0, end)
	if err := l.Cut(0); err == nil {
		t.Fatal("cut twice")
	}
	must(t, l.Close(), l.Sweep())
	if err := l.Cut(0); err == nil {
		t.Fatal("cut when closed")
	}
	size, stored := 0, 0
	for _, b := range m.batches[:71] {
		size += len(b.bytes)
	}
	names, err := fs.List(testDir)
	must(t, err)
	for _, n := range names {
		if st, _ := fs.Stat(testDir + "/" + n); strings.HasSuffix(n, logSuffix) {
			stored += int(st.SizeBytes)
		} else if strings.HasSuffix(n, deletedSuffix) {
			t.Errorf("%s is still there", n)
		}
	}
	if stored != size {
		t.Fatalf("%d bytes stored, want %d", stored, size)
	}
	l, err = Open(testConfig(fs))
	must(t, err)
	if err := l.Cut(m.batches[80].header.NextOffset()); err == nil {
		t.Fatal("cut to an end that is not there")
	}
	l, err = Open(testConfig(fs))
	must(t, err)
	for _, b := range m.batches[:70] {
		if b.header.Count > 1 {
			if err := l.Cut(b.header.BaseOffset + 1); err == nil {
				t.Fatal("cut within a batch")
			}
			break
		}
	}
}

func TestOpeningTouchesNoClosedSegment(t *testing.T) {
	reads := func(n int) (ops int, bytes int64) {
		mem := vfs.NewMem()
		l, m := filled(t, mem, n)
		must(t, l.Close())
		counting := &countingFS{FS: mem}
		openLog(t, testConfig(counting), m.end())
		return counting.opens, counting.bytes
	}
	few, fewBytes := reads(200)
	many, manyBytes := reads(2000)
	if few != many || manyBytes > fewBytes+20000 {
		t.Fatalf("%d opens, %d bytes with little stored; %d, %d with much", few, fewBytes, many, manyBytes)
	}
}

// countingFS counts what is opened and read.
type countingFS struct {
	vfs.FS
	mu    sync.Mutex
	opens int
	reads int
	bytes int64
}

type countingFile struct {
	vfs.File
	fs *countingFS
}

func (c *countingFS) Open(name string, mode vfs.Mode) (vfs.File, error) {
	f, err := c.FS.Open(name, mode)
	c.mu.Lock()
	c.opens++
	c.mu.Unlock()
	return &countingFile{f, c}, err
}

func (f *countingFile) ReadAt(b []byte, off int64) (int, error) {
	f.fs.mu.Lock()
	f.fs.reads++
	f.fs.bytes += int64(len(b))
	f.fs.mu.Unlock()
	return f.File.ReadAt(b, off)
}

func TestAReadCostsOneReadOfTheFile(t *testing.T) {
	mem := vfs.NewMem()
	l, m := filled(t, mem, 200)
	must(t, l.Close())
	counting := &countingFS{FS: mem}
	l = openLog(t, testConfig(counting), m.end())
	m.checkAll(t, l.Read, 0, m.end()) // the indexes are in memory now, or not: the cache is small
	for _, i := range []int{198, 190, 180} {
		o := m.batches[i].header.BaseOffset
		m.checkRead(t, l.Read, o, 3000, true, m.end())
		before := counting.reads
		m.checkRead(t, l.Read, o, 3000, true, m.end())
		if n := counting.reads - before; n != 1 {
			t.Errorf("%d reads", n)
		}
	}
}

// A reader with room for one and a half batches would read each half of a batch twice.
func TestAReaderInSequenceDoesNotReadWhatItCannotServe(t *testing.T) {
	mem := vfs.NewMem()
	cfg := testConfig(mem)
	cfg.SegmentBytes = 1 << 20
	l := openLog(t, cfg, 0)
	var size int
	for i := range record.Offset(20) {
		b, err := record.Encode(record.BatchOptions{}, []record.Record{{Offset: i, Value: make([]byte, 10_000)}})
		must(t, err)
		h, err := record.Verify(b)
		must(t, err, l.Append(b, h, nil))
		size = len(b)
	}
	must(t, l.Flush(), l.Sync(), l.Close())
	counting := &countingFS{FS: mem}
	cfg.FS = counting
	l = openLog(t, cfg, 20)
	counting.bytes = 0
	for o := range record.Offset(20) {
		c, err := l.Read(o, size*3/2, true, 20)
		must(t, err)
		if c.SizeBytes != size {
			t.Fatalf("%d bytes at %d, want %d", c.SizeBytes, o, size)
		}
		c.Release()
	}
	if most := int64(size * 22); counting.bytes > most {
		t.Errorf("%d bytes were read, want at most %d", counting.bytes, most)
	}
}

func TestAFullDiskKeepsTheTailAndIsSurvived(t *testing.T) {
	mem := vfs.NewMem()
	faulty := vfs.NewFaulty(mem)
	m, rng := &model{}, rand.New(rand.NewPCG(4, 4))
	l := openLog(t, testConfig(faulty), 0)
	for range 20 {
		m.add(t, l, rng, 1, 1000)
	}
	must(t, l.Flush(), l.Sync())
	for _, ops := range []vfs.OpKind{vfs.OpWrite, vfs.OpCreate} {
		for range 40 {
			m.add(t, l, rng, 1, 1000)
		}
		stop, hits := faulty.Inject(vfs.Fault{Ops: ops, Path: logSuffix, Err: syscall.ENOSPC, ShortBytes: 100})
		for range 3 {
			if err := l.Flush(); !errors.Is(err, ErrFull) || !errors.Is(err, syscall.ENOSPC) {
				t.Fatalf("%v: %v", ops, err)
			}
		}
		if hits() == 0 || l.TailBytes() == 0 {
			t.Fatalf("%v: %d hits, %d bytes in memory", ops, hits(), l.TailBytes())
		}
		m.checkAll(t, l.Read, 0, m.end())
		m.add(t, l, rng, 1, 1000) // appending goes on
		stop()
		must(t, l.Flush(), l.Sync())
		if l.TailBytes() != 0 {
			t.Fatal("something is still in memory")
		}
		m.checkAll(t, l.Read, 0, m.end())
	}
	l = openLog(t, testConfig(mem), m.end())
	m.checkAll(t, l.Read, 0, m.end())
}

func TestAFullDiskForTheIndexIsNoFailure(t *testing.T) {
	mem := vfs.NewMem()
	faulty := vfs.NewFaulty(mem)
	m, rng := &model{}, rand.New(rand.NewPCG(4, 4))
	l := openLog(t, testConfig(faulty), 0)
	faulty.Inject(vfs.Fault{Ops: vfs.OpWrite, Path: "index", Err: syscall.ENOSPC})
	for range 100 {
		m.add(t, l, rng, 1, 1000)
		must(t, l.Flush(), l.Sync())
	}
	m.checkAll(t, l.Read, 0, m.end())
	l = openLog(t, testConfig(mem), m.end())
	m.checkAll(t, l.Read, 0, m.end())
}

func TestAFailedWriteOrSyncIsFinal(t *testing.T) {
	eio := errors.New("input/output error")
	for _, ops := range []vfs.OpKind{vfs.OpWrite, vfs.OpSync | vfs.OpSyncData, vfs.OpSyncDir} {
		faulty := vfs.NewFaulty(vfs.NewMem())
		m, rng := &model{}, rand.New(rand.NewPCG(5, 5))
		l := openLog(t, testConfig(faulty), 0)
		m.add(t, l, rng, 1, 100)
		stop, _ := faulty.Inject(vfs.Fault{Ops: ops, Err: eio})
		err := errors.Join(l.Flush(), l.Sync())
		if !errors.Is(err, eio) {
			t.Fatalf("%v: %v", ops, err)
		}
		stop()
		sent, a := m.make(rng, 1, 100)
		if err := l.Flush(); !errors.Is(err, eio) {
			t.Errorf("%v: Flush after it: %v", ops, err)
		}
		if err := l.Sync(); !errors.Is(err, eio) {
			t.Errorf("%v: Sync after it: %v", ops, err)
		}
		if err := l.Append(sent, a.header, nil); !errors.Is(err, eio) {
			t.Errorf("%v: Append after it: %v", ops, err)
		}
	}
}

func TestOnlyTheNextOffsetIsAppended(t *testing.T) {
	l, m := filled(t, vfs.NewMem(), 10)
	sent, a := m.make(rand.New(rand.NewPCG(6, 6)), 1, 100)
	for _, d := range []record.Offset{-1, 1} {
		h := a.header
		h.BaseOffset += d
		if err := l.Append(sent, h, nil); err == nil {
			t.Errorf("appended %d beside the end", d)
		}
	}
}

func TestSegmentsRollBySizeAndAge(t *testing.T) {
	fs := vfs.NewMem()
	now := time.Unix(1000, 0)
	cfg := testConfig(fs)
	cfg.Clock, cfg.SegmentAge, cfg.SegmentBytes = func() time.Time { return now }, time.Hour, 5000
	m, rng := &model{}, rand.New(rand.NewPCG(7, 7))
	l := openLog(t, cfg, 0)
	for range 60 {
		m.add(t, l, rng, 1, 300)
		must(t, l.Flush())
	}
	must(t, l.Sync())
	names := segmentNames(t, fs, logSuffix)
	if len(names) < 3 {
		t.Fatalf("%d segments", len(names))
	}
	for _, n := range names[:len(names)-1] {
		if st, _ := fs.Stat(n); st.SizeBytes > 5000 {
			t.Errorf("%s has %d bytes", n, st.SizeBytes)
		}
	}
	now = now.Add(2 * time.Hour)
	l.RetentionCandidate(now, -1, -1) // notices the age of a quiet log too
	m.add(t, l, rng, 1, 1)
	must(t, l.Flush())
	if n := len(segmentNames(t, fs, logSuffix)); n != len(names)+1 {
		t.Fatalf("%d segments after the age, %d before", n, len(names))
	}
}

func TestRetentionBySizeAndTime(t *testing.T) {
	fs := vfs.NewMem()
	l, m := filled(t, fs, 200)
	bases := segmentNames(t, fs, logSuffix)
	if len(bases) < 3 {
		t.Fatal("too few segments")
	}
	newest := m.batches[len(m.batches)-1].header.MaxTimestamp
	long := time.UnixMilli(newest).Add(100 * time.Hour)
	for _, c := range []struct {
		name      string
		now       time.Time
		retention time.Duration
		bytes     int64
		want      func(o record.Offset) bool
	}{
		{"no limits", long, -1, -1, func(o record.Offset) bool { return o == 0 }},
		{"large enough", long, -1, l.SizeBytes(), func(o record.Offset) bool { return o == 0 }},
		{"all too many", long, -1, 0, func(o record.Offset) bool { return segmentPath(testDir, o) == bases[len(bases)-1] }},
		{"young", time.UnixMilli(newest), time.Hour, -1, func(o record.Offset) bool { return o == 0 }},
		{"all old", long, time.Hour, -1, func(o record.Offset) bool { return o == m.end() }},
	} {
		o := l.RetentionCandidate(c.now, c.retention, c.bytes)
		if !c.want(o) {
			t.Errorf("%s: %d", c.name, o)
		}
		if l.LogStart() != 0 {
			t.Errorf("%s: moved the start itself", c.name)
		}
	}
	// Half of the bytes: what remains has at least that much, but for one segment.
	half := l.SizeBytes() / 2
	must(t, l.SetLogStart(l.RetentionCandidate(long, -1, half)))
	if n := l.SizeBytes(); n < half || n > half+20000 {
		t.Errorf("%d bytes remain, wanted %d", n, half)
	}
}

func TestDroppedSegmentsGoWithSweep(t *testing.T) {
	fs := vfs.NewMem()
	l, m := filled(t, fs, 200)
	before := segmentNames(t, fs, logSuffix)
	must(t, l.SetLogStart(m.end()))
	if n := segmentNames(t, fs, logSuffix); len(n) != len(before) {
		t.Fatal("removed at once")
	}
	if _, err := l.Read(0, 1000, true, m.end()); !errors.Is(err, ErrOutOfRange) {
		t.Fatal(err)
	}
	must(t, l.Sweep())
	names, err := fs.List(testDir)
	must(t, err)
	if len(names) != 1 || testDir+"/"+names[0] != segmentPath(testDir, m.end()) {
		t.Fatalf("left: %v", names)
	}
	// The owner's checkpoint may be older than that, and is not misled.
	l = openLog(t, testConfig(fs), m.batches[50].header.BaseOffset)
	if _, err := l.Read(0, 1000, true, m.end()); err == nil {
		t.Fatal("what is gone was read")
	}
}

func TestTimestamps(t *testing.T) {
	fs := vfs.NewMem()
	l, m := filled(t, fs, 200)
	check := func(l *Log) {
		t.Helper()
		var maxTime int64
		for _, b := range m.batches {
			maxTime = max(maxTime, b.header.MaxTimestamp)
		}
		want, _ := m.forTime(maxTime)
		o, at, epoch, err := l.OffsetForMaxTime()
		if err != nil || o != want || at != maxTime || epoch != m.batches[m.at(o)].header.LeaderEpoch {
			t.Fatalf("OffsetForMaxTime = %d, %d, %d, %v; want %d, %d", o, at, epoch, err, want, maxTime)
		}
		if o, at, epoch, err := l.OffsetForTime(maxTime + 1); o != -1 || at != -1 || epoch != -1 || err != nil {
			t.Fatalf("beyond all: %d, %d, %d, %v", o, at, epoch, err)
		}
	}
	check(l)
	must(t, l.Close())
	check(openLog(t, testConfig(fs), m.end()))
	empty := openLog(t, testConfig(vfs.NewMem()), 0)
	if o, _, _, err := empty.OffsetForMaxTime(); o != -1 || err != nil {
		t.Fatal(o, err)
	}
}

func TestDiscardRemovesTheFolder(t *testing.T) {
	fs := vfs.NewMem()
	l, _ := filled(t, fs, 50)
	must(t, l.Close(), Discard(fs, testDir), Discard(fs, testDir))
	if names, _ := fs.List("data"); len(names) != 0 {
		t.Fatal(names)
	}
}

// Readers, one who appends, and one who flushes, syncs, drops and sweeps.
func TestReadersDuringEverything(t *testing.T) {
	fs := vfs.NewMem()
	m, rng := &model{}, rand.New(rand.NewPCG(8, 8))
	var sent [][]byte
	for i := range 3000 {
		s, a := m.make(rng, record.Epoch(i/100), 200)
		m.batches, sent = append(m.batches, a), append(sent, s)
	}
	l := openLog(t, testConfig(fs), 0)
	var all sync.WaitGroup
	stop := make(chan struct{})
	fail := make(chan error, 10)
	for i := range 3 {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(i), 10))
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := m.readSome(l, rng); err != nil {
					fail <- err
					return
				}
			}
		})
	}
	all.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			_, end := l.Bounds()
			if err := errors.Join(l.Flush(), l.Sync(), l.SetLogStart(end-2000), l.Sweep()); err != nil {
				fail <- err
				return
			}
		}
	})
	for i := range m.batches {
		buf := record.NewBuffer(len(sent[i]))
		copy(buf.B, sent[i])
		must(t, l.Append(buf.B, m.batches[i].header, buf))
		buf.Release()
	}
	close(stop)
	all.Wait()
	select {
	case err := <-fail:
		t.Fatal(err)
	default:
	}
}

// readSome reads a few chunks in sequence from somewhere, and has those that follow
// read ahead.
func (m *model) readSome(l *Log, rng *rand.Rand) error {
	start, end := l.Bounds()
	if start == end {
		return nil
	}
	o := start + record.Offset(rng.Int64N(int64(end-start)))
	for i := m.at(o); o < end && rng.IntN(4) > 0; {
		c, err := l.Read(o, 4000, true, end)
		if errors.Is(err, ErrOutOfRange) {
			return nil // dropped meanwhile
		}
		if err != nil {
			return err
		}
		got := string(join(c))
		c.Release()
		for ; len(got) > 0; i++ {
			want := string(m.batches[i].bytes)
			if !strings.HasPrefix(got, want) {
				return fmt.Errorf("read at %d: batch at %d differs", o, m.batches[i].header.BaseOffset)
			}
			got = got[len(want):]
			o = m.batches[i].header.NextOffset()
		}
		if c.Ahead != nil {
			c.Ahead()
		}
	}
	return nil
}

func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{100, 1024, 100_000} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			record.PoisonReleased(false)
			defer record.PoisonReleased(true)
			l := openLog(b, Config{FS: discardFS{vfs.NewMem()}, Dir: testDir}, 0)
			batch, err := record.Encode(record.BatchOptions{}, []record.Record{{Value: make([]byte, size)}})
			must(b, err)
			h, err := record.Check(batch, record.Limits{})
			must(b, err)
			b.SetBytes(int64(len(batch)))
			b.ReportAllocs()
			for b.Loop() {
				buf := record.NewBuffer(len(batch))
				copy(buf.B, batch)
				must(b, l.Append(buf.B, h, buf))
				buf.Release()
				h.BaseOffset++
				if l.TailBytes() > 4<<20 {
					must(b, l.Flush())
				}
			}
		})
	}
}

// discardFS forgets what is written.
type discardFS struct{ vfs.FS }

type discardFile struct{ vfs.File }

func (d discardFS) Open(name string, mode vfs.Mode) (vfs.File, error) {
	f, err := d.FS.Open(name, mode)
	return discardFile{f}, err
}

func (discardFile) WriteAt(p []byte, _ int64) (int, error) { return len(p), nil }
func (discardFile) WriteVec([][]byte, int64) error         { return nil }
