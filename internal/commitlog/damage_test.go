package commitlog

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/vfs"
)

// readAll reads a whole log and counts bytes until the first error.
func readAll(l *Log) (n int, err error) {
	for o := l.LogStart(); o < l.LogEnd(); {
		c, err := l.Read(o, 3000, true, l.LogEnd())
		if err != nil {
			return n, err
		}
		if c.SizeBytes == 0 {
			return n, errors.New("nothing read, no error")
		}
		eachBatch(c, func(h record.Header, _ []byte) bool { o = h.NextOffset(); return true })
		n += c.SizeBytes
		c.Release()
	}
	return n, nil
}

// A flipped bit in a segment, in any byte of a batch, is named with file and
// place, and nothing of the batch is served. The batches before and behind are.
func TestEveryFlippedBitInASegmentIsFound(t *testing.T) {
	fs := vfs.NewMem()
	l, m := filled(t, fs, 150)
	end := m.end()
	must(t, l.Close())
	victim := m.batches[3] // of the first, closed segment
	pos := int64(0)
	for _, b := range m.batches[:3] {
		pos += int64(len(b.bytes))
	}
	file := segmentNames(t, fs, logSuffix)[0]
	flip := func(at int, bit uint) {
		t.Helper()
		damaged := fs.CrashCopy(0, vfs.CrashKeep)
		must(t, vfs.FlipBit(damaged, file, pos+int64(at), bit))
		l := openLog(t, testConfig(damaged), end)
		c, err := l.Read(victim.header.BaseOffset, 10000, true, end)
		var damage *CorruptError
		if !errors.As(err, &damage) || damage.File != file || damage.Offset != pos || c.SizeBytes != 0 {
			t.Fatalf("bit %d of byte %d of the batch: %v, %d bytes served", bit, at, err, c.SizeBytes)
		}
		m.checkAll(t, l.Read, 0, victim.header.BaseOffset)
		m.checkAll(t, l.Read, m.batches[60].header.BaseOffset, end)
		must(t, l.Close())
	}
	for at := range victim.bytes {
		switch {
		case at < 17: // what no CRC covers
			for bit := range uint(8) {
				flip(at, bit)
			}
		case at < record.HeaderBytes || at%17 == 0:
			flip(at, uint(at%8))
		}
	}
}

// A sound batch at a place where another one belongs is damage too.
func TestAMisplacedBatchIsFound(t *testing.T) {
	fs := vfs.NewMem()
	l := openLog(t, testConfig(fs), 0)
	var size int
	for i := range record.Offset(8) {
		b, err := record.Encode(record.BatchOptions{}, []record.Record{{Offset: i, Value: make([]byte, 100)}})
		must(t, err)
		h, err := record.Verify(b)
		must(t, err, l.Append(b, h, nil))
		size = len(b)
	}
	must(t, l.Flush(), l.Sync(), l.Close())
	b, err := vfs.ReadFile(fs, segmentPath(testDir, 0), maxIndexFileBytes)
	must(t, err, writeAt(fs, segmentPath(testDir, 0), b[3*size:4*size], int64(2*size), false))
	l = openLog(t, testConfig(fs), 8)
	var damage *CorruptError
	if c, err := l.Read(2, 1, true, 8); !errors.As(err, &damage) || damage.Offset != int64(2*size) || c.SizeBytes > 0 {
		t.Fatalf("%v, %d bytes", err, c.SizeBytes)
	}
}

func TestEveryFlippedBitInAnIndexRowIsFound(t *testing.T) {
	entries := []entry{{0, 0, 1, noTime}, {10, 1000, 1, 500}, {20, 2000, 2, 1000}, {30, 3000, 2, 1 << 40}}
	var offsets, times []byte
	for i, e := range entries {
		offsets, times = appendOffsetRow(offsets, 7, i, e), appendTimeRow(times, 7, i, e)
	}
	if got := parseRows(offsets, times, 7, 3000); len(got) != 4 || got[3] != entries[3] {
		t.Fatalf("%v", got)
	}
	if got := parseRows(offsets, times, 8, 3000); len(got) != 0 {
		t.Fatalf("rows of another segment: %v", got)
	}
	for bit := range 8 * len(offsets) {
		for _, b := range [][]byte{offsets, times} {
			b[bit/8] ^= 1 << (bit % 8)
			if got := parseRows(offsets, times, 7, 3000); len(got) != bit/8/rowBytes {
				t.Errorf("bit %d: %d rows", bit, len(got))
			}
			b[bit/8] ^= 1 << (bit % 8)
		}
	}
}

func TestCutVerifiesTheLastBatches(t *testing.T) {
	fs := vfs.NewMem()
	l, m := filled(t, fs, 20)
	must(t, l.Close())
	names := segmentNames(t, fs, logSuffix)
	file := names[len(names)-1]
	st, err := fs.Stat(file)
	must(t, err, vfs.FlipBit(fs, file, st.SizeBytes-1, 0))
	l, err = Open(testConfig(fs))
	must(t, err)
	var damage *CorruptError
	if err := l.Cut(m.end()); !errors.As(err, &damage) || damage.File != file {
		t.Fatal(err)
	}
}

// Bits flipped, bytes cut off or added, or the file gone: an index that is not
// as it was written is made anew, and nobody notices.
func TestADamagedIndexIsRebuilt(t *testing.T) {
	fs := vfs.NewMem()
	l, m := filled(t, fs, 150)
	end := m.end()
	must(t, l.Close())
	check := func(what string, damage func(fs vfs.FS, file string) error) {
		for _, suffix := range []string{indexSuffix, timeSuffix} {
			for i, file := range segmentNames(t, fs, suffix) {
				damaged := fs.CrashCopy(0, vfs.CrashKeep)
				must(t, damage(damaged, file))
				l := openLog(t, testConfig(damaged), end)
				m.checkAll(t, l.Read, 0, end)
				for at := int64(900); at < int64(end)*10+400; at += 97 {
					want, _ := m.forTime(at)
					if o, _, _, err := l.OffsetForTime(at); err != nil || o != want {
						t.Fatalf("%s of %s (%d): OffsetForTime(%d) = %d, %v; want %d", what, file, i, at, o, err, want)
					}
				}
				must(t, l.Flush(), l.Sync(), l.Close())
				// What was made anew has been written down.
				Dump(damaged, testDir, func(d DumpItem) bool {
					if d.Err != nil {
						t.Errorf("%s of %s: still damaged: %+v", what, file, d)
					}
					return true
				})
			}
		}
	}
	rng := rand.New(rand.NewPCG(3, 3))
	for range 6 {
		check("a flipped bit", func(fs vfs.FS, file string) error {
			st, err := fs.Stat(file)
			if err != nil || st.SizeBytes == 0 {
				return err
			}
			return vfs.FlipBit(fs, file, rng.Int64N(st.SizeBytes), uint(rng.IntN(8)))
		})
	}
	check("loss", func(fs vfs.FS, file string) error { return fs.Remove(file) })
	check("a cut", func(fs vfs.FS, file string) error {
		f, err := fs.Open(file, vfs.Mode{Write: true})
		if err != nil {
			return err
		}
		return errors.Join(f.Truncate(23), f.Close())
	})
	check("zeros", func(fs vfs.FS, file string) error {
		st, err := fs.Stat(file)
		if err != nil {
			return err
		}
		return writeAt(fs, file, make([]byte, st.SizeBytes), 0, false)
	})
	check("another segment's index", func(fs vfs.FS, file string) error {
		b, err := vfs.ReadFile(fs, segmentNames(t, fs, file[strings.LastIndex(file, "."):])[1], maxIndexFileBytes)
		if err != nil {
			return err
		}
		return writeAt(fs, file, b, 0, false)
	})
}

func TestALogThatLostSomethingDoesNotOpenOrSaysSo(t *testing.T) {
	fs := vfs.NewMem()
	l, m := filled(t, fs, 150)
	end := m.end()
	must(t, l.Close())
	names := segmentNames(t, fs, logSuffix)
	var damage *CorruptError

	t.Run("the end of the last segment", func(t *testing.T) {
		cut := fs.CrashCopy(0, vfs.CrashKeep)
		last := names[len(names)-1]
		f, err := cut.Open(last, vfs.Mode{Write: true})
		must(t, err)
		n, _ := f.Size()
		must(t, f.Truncate(n-1))
		l, err := Open(testConfig(cut))
		must(t, err)
		if err := l.Cut(end); !errors.As(err, &damage) || damage.File != last {
			t.Fatal(err)
		}
	})
	t.Run("the end of a closed segment", func(t *testing.T) {
		cut := fs.CrashCopy(0, vfs.CrashKeep)
		f, err := cut.Open(names[1], vfs.Mode{Write: true})
		must(t, err)
		n, _ := f.Size()
		must(t, f.Truncate(n-1))
		l := openLog(t, testConfig(cut), end)
		if _, err := readAll(l); !errors.As(err, &damage) || damage.File != names[1] {
			t.Fatal(err)
		}
	})
	t.Run("a segment in the middle", func(t *testing.T) {
		cut := fs.CrashCopy(0, vfs.CrashKeep)
		must(t, cut.Remove(names[1]))
		l := openLog(t, testConfig(cut), end)
		if _, err := readAll(l); !errors.As(err, &damage) || damage.File != names[0] {
			t.Fatal(err)
		}
	})
	t.Run("the first segment", func(t *testing.T) {
		cut := fs.CrashCopy(0, vfs.CrashKeep)
		must(t, cut.Remove(names[0]))
		l := openLog(t, testConfig(cut), end)
		if n, err := readAll(l); n != 0 || !errors.As(err, &damage) {
			t.Fatal(n, err)
		}
	})
	t.Run("all of them", func(t *testing.T) {
		cut := fs.CrashCopy(0, vfs.CrashKeep)
		for _, name := range names {
			must(t, cut.Remove(name))
		}
		l, err := Open(testConfig(cut))
		must(t, err)
		if err := l.Cut(end); !errors.As(err, &damage) {
			t.Fatal(err)
		}
	})
	t.Run("nothing: it is sound", func(t *testing.T) {
		l := openLog(t, testConfig(fs.CrashCopy(0, vfs.CrashKeep)), end)
		if _, err := readAll(l); err != nil {
			t.Fatal(err)
		}
	})
}

func TestAnUnreadableFileIsAnErrorThatNamesIt(t *testing.T) {
	mem := vfs.NewMem()
	l, m := filled(t, mem, 150)
	must(t, l.Close())
	faulty := vfs.NewFaulty(mem)
	l = openLog(t, testConfig(faulty), m.end())
	first := segmentNames(t, mem, logSuffix)[0]
	eio := errors.New("input/output error")
	faulty.Inject(vfs.Fault{Ops: vfs.OpRead, Path: first, Err: eio})
	_, err := l.Read(0, 1000, true, m.end())
	var damage *CorruptError
	if !errors.As(err, &damage) || damage.File != first || !errors.Is(err, eio) {
		t.Fatal(err)
	}
	m.checkAll(t, l.Read, m.batches[100].header.BaseOffset, m.end())
}

func TestDumpShowsEverythingAndNamesDamage(t *testing.T) {
	fs := vfs.NewMem()
	l, m := filled(t, fs, 150)
	must(t, l.Close())
	i := 0
	must(t, Dump(fs, testDir, func(d DumpItem) bool {
		if d.Err != nil {
			t.Fatalf("damage in a sound log: %+v", d)
		}
		if h := m.batches[i].header; d.Header != h {
			t.Fatalf("batch %d: %+v, want %+v", i, d.Header, h)
		}
		i++
		return true
	}))
	if i != 150 {
		t.Fatalf("%d batches", i)
	}
	// Byte 200 lies in the first batches; the rest of the segment must still be shown.
	file := segmentNames(t, fs, logSuffix)[1]
	must(t, vfs.FlipBit(fs, file, 200, 3))
	sound, damaged := 0, 0
	must(t, Dump(fs, testDir, func(d DumpItem) bool {
		if d.Err != nil {
			damaged++
			if d.File != file {
				t.Errorf("damage at %s: %v", d.File, d.Err)
			}
		} else {
			sound++
		}
		return true
	}))
	if sound != 149 || damaged != 1 {
		t.Fatalf("%d sound, %d damaged", sound, damaged)
	}
}

// What a segment's file holds may be anything.
func FuzzSegment(f *testing.F) {
	fs := vfs.NewMem()
	l, m := filled(f, fs, 12)
	must(f, l.Close())
	name := segmentNames(f, fs, logSuffix)[0]
	log, err := vfs.ReadFile(fs, name, maxIndexFileBytes)
	must(f, err)
	rows, err := vfs.ReadFile(fs, strings.TrimSuffix(name, logSuffix)+indexSuffix, maxIndexFileBytes)
	must(f, err)
	times, err := vfs.ReadFile(fs, strings.TrimSuffix(name, logSuffix)+timeSuffix, maxIndexFileBytes)
	must(f, err)
	f.Add(log, rows, times, int64(m.end()))
	f.Add(log[:100], rows, times, int64(3))
	f.Add([]byte{}, []byte{}, []byte{}, int64(1))
	f.Fuzz(func(t *testing.T, log, rows, times []byte, end int64) {
		fs := vfs.NewMem()
		must(t, fs.MkdirAll(testDir))
		for suffix, b := range map[string][]byte{logSuffix: log, indexSuffix: rows, timeSuffix: times} {
			must(t, writeAt(fs, strings.TrimSuffix(segmentPath(testDir, 0), logSuffix)+suffix, b, 0, false))
		}
		must(t, Dump(fs, testDir, func(DumpItem) bool { return true }))
		l, err := Open(testConfig(fs))
		must(t, err)
		defer func() { _ = l.Close() }()
		if end < 0 || l.Cut(record.Offset(end)) != nil {
			return
		}
		_, _ = readAll(l)
		_, _, _, _ = l.OffsetForTime(1500)
		_, _, _, _ = l.OffsetForMaxTime()
		if c, err := l.Read(0, 1<<20, true, l.LogEnd()); err == nil && c.SizeBytes > 0 {
			if !bytes.HasPrefix(log, join(c)[:record.HeaderBytes]) {
				t.Fatal("served what is not in the file")
			}
			c.Release()
		}
	})
}
