package commitlog

import (
	"errors"
	"testing"

	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/vfs"
)

// inSequence reads twice, so that the log knows the reader for one in sequence, and
// returns the second chunk and where it ends.
func inSequence(t *testing.T, m *model, l *Log, from record.Offset, maxBytes int) (c Chunk, next record.Offset) {
	t.Helper()
	at := m.checkRead(t, l.Read, from, maxBytes, true, m.end())
	c, err := l.Read(at, maxBytes, true, m.end())
	must(t, err)
	if c.Ahead == nil {
		t.Fatalf("no reading ahead behind %d", at)
	}
	return c, at + records(c)
}

// records is how many offsets a chunk covers.
func records(c Chunk) (n record.Offset) {
	eachBatch(c, func(h record.Header, _ []byte) bool { n += h.NextOffset() - h.BaseOffset; return true })
	return n
}

func TestAReaderInSequenceFindsWhatWasReadAhead(t *testing.T) {
	mem := vfs.NewMem()
	l, m := filled(t, mem, 200)
	must(t, l.Close())
	counting := &countingFS{FS: mem}
	l = openLog(t, testConfig(counting), m.end())
	if c, err := l.Read(0, 3000, true, m.end()); err != nil || c.Ahead != nil {
		t.Fatalf("reading ahead of who was not seen before, or %v", err)
	} else {
		c.Release()
	}
	c, next := inSequence(t, m, l, 0, 3000)
	c.Release()
	c.Ahead()
	before := counting.reads
	m.checkRead(t, l.Read, next, 3000, true, m.end())
	if n := counting.reads - before; n != 0 {
		t.Errorf("%d reads of the file", n)
	}
	if n := l.shared.ahead.sizeBytes; n != 0 {
		t.Errorf("%d bytes are still reserved", n)
	}
	m.checkRead(t, l.Read, next, 3000, true, m.end())
	if n := counting.reads - before; n != 1 {
		t.Errorf("%d reads of the file for the next reader of the same", n)
	}
}

func TestWhatWasReadAheadKeepsToTheLimitsOfARead(t *testing.T) {
	for name, limits := range map[string]func(next, end record.Offset) (maxBytes int, limit record.Offset){
		"bytes":  func(_, end record.Offset) (int, record.Offset) { return 1000, end },
		"offset": func(next, _ record.Offset) (int, record.Offset) { return 3000, next + 5 },
	} {
		t.Run(name, func(t *testing.T) {
			l, m := filled(t, vfs.NewMem(), 200)
			c, next := inSequence(t, m, l, 0, 3000)
			c.Release()
			c.Ahead()
			maxBytes, limit := limits(next, m.end())
			m.checkRead(t, l.Read, next, maxBytes, true, limit)
		})
	}
}

// What lies at the same offsets after a segment was dropped is something else.
func TestWhatWasReadAheadGoesWithItsSegment(t *testing.T) {
	l, m := filled(t, vfs.NewMem(), 200)
	c, next := inSequence(t, m, l, 0, 3000)
	c.Release()
	c.Ahead()
	late := c.Ahead
	must(t, l.SetLogStart(m.end()))
	if c, err := l.Read(next, 3000, true, m.end()); !errors.Is(err, ErrOutOfRange) {
		t.Fatalf("%d bytes of a dropped segment, %v", c.SizeBytes, err)
	}
	must(t, l.Sweep())
	if n := l.shared.ahead.sizeBytes; n != 0 || len(l.shared.ahead.waiting) != 0 {
		t.Fatalf("%d bytes are still reserved, %d chunks held", n, len(l.shared.ahead.waiting))
	}
	late() // of a reader who was slow to read on
	if len(l.shared.ahead.waiting) != 0 {
		t.Fatal("a dropped segment was read")
	}
}

func TestReadingAheadIsBoundedAndGivenBack(t *testing.T) {
	l, m := filled(t, vfs.NewMem(), 200)
	a := &l.shared.ahead
	if !a.reserve(aheadBytes - 2999) {
		t.Fatal("no room at the start")
	}
	c, _ := inSequence(t, m, l, 0, 3000)
	c.Release()
	c.Ahead()
	if len(a.waiting) != 0 {
		t.Fatal("read ahead without room")
	}
	a.put(place{}, &aheadChunk{roomBytes: aheadBytes - 2999}) // it came to nothing
	c.Ahead()
	if len(a.waiting) != 1 || a.sizeBytes != 3000 {
		t.Fatalf("%d chunks, %d bytes", len(a.waiting), a.sizeBytes)
	}
	c.Ahead() // a second reader: one is enough
	if len(a.waiting) != 1 || a.sizeBytes != 3000 {
		t.Fatalf("%d chunks, %d bytes", len(a.waiting), a.sizeBytes)
	}
	l.shared.Trim()
	if len(a.waiting) != 1 {
		t.Fatal("given back before its reader had time to come")
	}
	l.shared.Trim()
	if len(a.waiting) != 0 || a.sizeBytes != 0 {
		t.Fatalf("%d chunks, %d bytes for a reader who went elsewhere", len(a.waiting), a.sizeBytes)
	}
}

// Reading ahead serves no damage and does not report it either: the read that comes
// to it does.
func TestDamageThatIsReadAheadIsNamedByTheNextRead(t *testing.T) {
	fs := vfs.NewMem()
	l, m := filled(t, fs, 200)
	must(t, l.Close())
	c, next := func() (Chunk, record.Offset) {
		l = openLog(t, testConfig(fs), m.end())
		return inSequence(t, m, l, 0, 3000)
	}()
	defer c.Release()
	victim := m.batches[m.at(next)]
	pos := int64(0)
	for _, b := range m.batches[:m.at(next)] {
		pos += int64(len(b.bytes))
	}
	file := segmentNames(t, fs, logSuffix)[0]
	must(t, vfs.FlipBit(fs, file, pos+int64(len(victim.bytes))-1, 3))
	c.Ahead()
	if n := l.shared.ahead.sizeBytes; n != 0 {
		t.Errorf("%d bytes are still reserved", n)
	}
	var damage *CorruptError
	if c, err := l.Read(next, 3000, true, m.end()); !errors.As(err, &damage) || damage.Offset != pos || c.SizeBytes != 0 {
		t.Fatalf("%v, %d bytes served", err, c.SizeBytes)
	}
}
