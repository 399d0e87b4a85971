package commitlog

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/vfs"
)

// watched notes reads of files: past the page cache, and through it. While broken is
// set the former fail.
type watched struct {
	vfs.FS
	past, through atomic.Int64
	broken        atomic.Bool
	reading       func() // called by the latter, if it is set
}

type watchedFile struct {
	vfs.File
	of *watched
}

func (w *watched) Open(path string, mode vfs.Mode) (vfs.File, error) {
	f, err := w.FS.Open(path, mode)
	if err != nil || mode.Write || mode.Create {
		return f, err
	}
	return &watchedFile{f, w}, nil
}

func (f *watchedFile) ReadAt(b []byte, off int64) (int, error) {
	if !f.Direct() {
		f.of.through.Add(1)
		if f.of.reading != nil {
			f.of.reading()
		}
	} else if f.of.past.Add(1); f.of.broken.Load() {
		return 0, errors.New("the disk does not read")
	}
	return f.File.ReadAt(b, off)
}

// onLog is a log of batches of up to 100 KB that lie in files, all but some.
func onLog(t *testing.T, batches int) (*model, *Log, *watched) {
	m, rng := &model{}, rand.New(rand.NewPCG(1, 2))
	w := &watched{FS: vfs.NewMem()}
	cfg := testConfig(w)
	cfg.SegmentBytes, cfg.Files = 5<<20, NewOpenFiles(10, 1<<20)
	l := openLog(t, cfg, 0)
	for i := range batches {
		m.add(t, l, rng, 1, 50_000)
		if i == batches-5 {
			must(t, l.Flush(), l.Sync())
		}
	}
	w.past.Store(0)
	w.through.Store(0)
	return m, l, w
}

// checkOn reads all of a log with ReadOn, and keeps it until the end.
func checkOn(t *testing.T, m *model, l *Log, maxBytes int) {
	t.Helper()
	var parts [][]byte
	for o := record.Offset(0); o < m.end(); {
		b, err := l.ReadOn(o, maxBytes, m.end())
		if err != nil || len(b) == 0 {
			t.Fatalf("at %d: %d bytes, %v", o, len(b), err)
		}
		if size, _ := peek(b); len(b) > max(maxBytes, size) {
			t.Fatalf("at %d: %d bytes, asked for %d", o, len(b), maxBytes)
		}
		parts = append(parts, b)
		for len(b) > 0 {
			var size int
			size, o = peek(b)
			b = b[size:]
		}
	}
	var want [][]byte
	for _, a := range m.batches {
		want = append(want, a.bytes)
	}
	if !bytes.Equal(bytes.Join(parts, nil), bytes.Join(want, nil)) {
		t.Fatal("what was read and kept is not what was appended")
	}
}

// Who reads on gets all batches, also those larger than he asks for, whatever else he
// reads, and has most of them read ahead past the page cache.
func TestReadOnHasTheNextPieceReadAhead(t *testing.T) {
	for _, maxBytes := range []int{1, 80 << 10, 300 << 10, 1 << 20} {
		m, l, w := onLog(t, 150)
		checkOn(t, m, l, maxBytes)
		if past, through := w.past.Load(), w.through.Load(); maxBytes >= 300<<10 && past <= through {
			t.Errorf("%d bytes at a time: %d reads past the page cache, %d through it", maxBytes, past, through)
		}
		must(t, l.Close())
	}
}

// What cannot be read ahead is read when it is asked for.
func TestReadOnDoesWithoutReadingAhead(t *testing.T) {
	m, l, w := onLog(t, 100)
	defer l.Close()
	w.broken.Store(true)
	checkOn(t, m, l, 300<<10)
	if w.past.Load() == 0 {
		t.Error("nothing was tried")
	}
	// Nor is more than the limit kept in memory for readers who do not come.
	w.broken.Store(false)
	for i := 0; i < len(m.batches); i += 2 {
		h := m.batches[i].header
		if _, err := l.ReadOn(h.BaseOffset, 8<<20, h.NextOffset()); err != nil {
			t.Fatal(err)
		}
	}
	l.shared.mu.Lock()
	ahead, readers := l.shared.onward.bytes, len(l.shared.onward.at)
	l.shared.mu.Unlock()
	if ahead > maxOnwardBytes || readers < 2 {
		t.Errorf("%d bytes are read ahead for %d readers", ahead, readers)
	}
	checkOn(t, m, l, 300<<10)
}

// A log that is closed has nobody read from its files, nor what was read for readers.
func TestCloseEndsReadingAhead(t *testing.T) {
	m, l, _ := onLog(t, 100)
	for i := 0; i < 50; i += 2 {
		h := m.batches[i].header
		_, err := l.ReadOn(h.BaseOffset, 300<<10, h.NextOffset())
		must(t, err)
	}
	must(t, l.Close())
	nothing := func(when string) {
		t.Helper()
		if a := l.shared.onward; a.bytes != 0 || len(a.at) != 0 {
			t.Errorf("%s %d bytes are kept for %d readers", when, a.bytes, len(a.at))
		}
	}
	nothing("closed:")
	// Closed in the middle of a read.
	m, l, w := onLog(t, 100)
	w.reading = func() {
		w.reading = nil
		must(t, l.Close())
	}
	_, err := l.ReadOn(0, 300<<10, m.end())
	must(t, err)
	nothing("closed in the middle of a read:")
}

// Damage is told as it is of any read, at its place and not before.
func TestReadOnTellsOfDamage(t *testing.T) {
	m, l, w := onLog(t, 60)
	defer l.Close()
	bad := 40
	pos := int64(0)
	l.mu.Lock()
	s := l.segments[len(l.segments)-1]
	l.mu.Unlock()
	for i := range m.batches {
		if h := m.batches[i].header; h.BaseOffset >= s.base {
			if i >= bad {
				bad = i
				break
			}
			pos += int64(len(m.batches[i].bytes))
		}
	}
	f, err := w.FS.Open(s.path, vfs.Mode{Write: true})
	must(t, err)
	_, err = f.WriteAt([]byte{0xFF, 0xFE, 0xFD}, pos+int64(len(m.batches[bad].bytes))-10)
	must(t, err, f.Close())
	for o := record.Offset(0); ; {
		b, err := l.ReadOn(o, 300<<10, m.end())
		if err != nil {
			var damage *CorruptError
			if !errors.As(err, &damage) || o != m.batches[bad].header.BaseOffset {
				t.Fatalf("at %d, where %d is damaged: %v", o, m.batches[bad].header.BaseOffset, err)
			}
			return
		}
		for len(b) > 0 {
			var size int
			size, o = peek(b)
			b = b[size:]
		}
		if o > m.batches[bad].header.BaseOffset {
			t.Fatal("what is damaged was served")
		}
	}
}
