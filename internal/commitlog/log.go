package commitlog

import (
	"fmt"
	"path"
	"sync"
	"time"

	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/vfs"
)

// Config of a Log. Zero values mean the defaults.
type Config struct {
	FS  vfs.FS
	Dir string // the partition's own folder
	// SegmentBytes after which a segment is closed: 1 GiB. A larger batch gets a
	// segment of its own.
	SegmentBytes int64
	// SegmentAge after which a segment is closed when something is to be added: 7 days.
	SegmentAge time.Duration
	// IndexIntervalBytes of batches for each index entry: 16 KiB. It is what a
	// read may have to skip, and costs 24 bytes of memory in segments in use.
	IndexIntervalBytes int64
	// Start is the log start that the owner remembers, and where an empty log begins.
	Start record.Offset
	Clock func() time.Time // time.Now; for segment ages
	// Files keeps files open for readers: one for all logs of the process.
	Files *OpenFiles
}

const (
	defaultSegmentBytes = 1 << 30
	maxSegmentBytes     = 1<<31 - 1 // positions are 32 bits
	defaultSegmentAge   = 7 * 24 * time.Hour
	defaultInterval     = 16 << 10
	// maxSegmentOffsets: offsets within a segment are 32 bits.
	maxSegmentOffsets = 1<<31 - 1
)

// Log is one partition's committed batches on disk. See the package comment for
// who may call what.
type Log struct {
	fs       vfs.FS
	dir      string
	interval int64
	clock    func() time.Time
	shared   *OpenFiles

	// io serialises what writes: Cut, Flush, Sync, Sweep's preparation, Close.
	// It is taken before mu.
	io       sync.Mutex
	dirDirty bool // names changed since the last Sync
	hadFiles bool // Open found segments

	// mu guards all below and the segments' fields that say so. Never held
	// during I/O, so neither Append nor readers wait for a disk.
	mu           sync.Mutex
	segmentBytes int64
	segmentAge   time.Duration
	// segments by base offset; each ends where the next begins. The last one is
	// appended to. Empty until the first append.
	segments []*segment
	tail     tail
	start    record.Offset
	end      record.Offset
	ready    bool // Cut was called
	roll     bool // the next batch begins a new segment
	hints    [8]hint
	nextHint int
	reading  sync.WaitGroup // what reads ahead; begun under mu, while ready
	doomed   []string       // files for Sweep
	dropped  []*segment     // segments for Sweep
	failed   error          // a write or sync failed: nothing is written any more
}

// hint is where a read ended, and a consumer's next one will begin.
type hint struct {
	seg    *segment
	offset record.Offset
	pos    int64
	ahead  int64 // the disk was asked to read up to here; 0: nothing
}

// Configure takes over changed settings; they hold from the next batch on.
func (l *Log) Configure(segmentBytes int64, segmentAge time.Duration) {
	if segmentBytes <= 0 {
		segmentBytes = defaultSegmentBytes
	}
	if segmentAge <= 0 {
		segmentAge = defaultSegmentAge
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.segmentBytes, l.segmentAge = min(segmentBytes, maxSegmentBytes), segmentAge
}

// Append adds a committed batch, to which h gives its base offset and leader
// epoch: they are written into a copy of the header, batch is left alone. It is
// readable at once. buf holds batch and is retained for as long as needed; nil
// means that batch is the log's to keep.
//
// It fails if the batch does not follow the last one, or after a failed write.
func (l *Log) Append(batch []byte, h record.Header, buf *record.Buffer) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.failed != nil:
		return l.failed
	case !l.ready || h.BaseOffset != l.end || h.LastOffsetDelta < 0 || len(batch) < record.HeaderBytes:
		return fmt.Errorf("commit log %s: batch of %d bytes at offset %d does not follow the log's end %d", l.dir, len(batch), h.BaseOffset, l.end)
	}
	s := l.last(h, len(batch))
	s.index.add(h, s.sizeBytes)
	l.tail.append(s, s.sizeBytes, batch, h, buf)
	s.sizeBytes += int64(len(batch))
	s.maxTime = s.index.maxTime
	l.end = h.NextOffset()
	return nil
}

// last is the segment that a batch goes to: a new one if the present one is full or old.
func (l *Log) last(h record.Header, sizeBytes int) *segment {
	if n := len(l.segments); n > 0 {
		s := l.segments[n-1]
		full := s.sizeBytes+int64(sizeBytes) > l.segmentBytes || h.NextOffset()-s.base > maxSegmentOffsets || l.roll
		if s.sizeBytes == 0 || !full {
			return s
		}
	}
	return l.addSegment()
}

// addSegment begins a segment at the log's end. Its file is made by Flush.
func (l *Log) addSegment() *segment {
	s := &segment{
		base: l.end, path: segmentPath(l.dir, l.end), fs: l.fs, born: l.clock(),
		index: &builder{base: l.end, interval: l.interval, maxTime: noTime}, maxTime: noTime, timeKnown: true,
	}
	l.segments = append(l.segments, s)
	l.roll = false
	return s
}

// rollIfOld makes the next batch begin a new segment when the last one is old.
func (l *Log) rollIfOld() {
	if n := len(l.segments); n > 0 && l.clock().Sub(l.segments[n-1].born) >= l.segmentAge {
		l.roll = true
	}
}

// nextOf is where segment i ends.
func (l *Log) nextOf(i int) record.Offset {
	if i+1 < len(l.segments) {
		return l.segments[i+1].base
	}
	return l.end
}

// Bounds are the offsets that the log holds, those in memory included.
func (l *Log) Bounds() (start, end record.Offset) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.start, l.end
}

// LogStart is the first offset that may be read.
func (l *Log) LogStart() record.Offset { start, _ := l.Bounds(); return start }

// LogEnd is the offset that the next batch will get.
func (l *Log) LogEnd() record.Offset { _, end := l.Bounds(); return end }

// TailBytes is how much is in memory only.
func (l *Log) TailBytes() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.tail.sizeBytes
}

// SizeBytes is what the batches take, those in memory included.
func (l *Log) SizeBytes() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := int64(0)
	for _, s := range l.segments {
		n += s.sizeBytes
	}
	return n
}

// SetLogStart moves the log start up, not beyond the log's end, and drops the
// segments that lie wholly below. Their files go with the next Sweep, so the
// owner must not call Sweep before it has made the new start durable.
func (l *Log) SetLogStart(to record.Offset) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.start = max(l.start, min(to, l.end))
	l.dropBelowStart()
	return nil
}

func (l *Log) dropBelowStart() {
	for len(l.segments) > 0 && l.segments[0].base < l.nextOf(0) && l.nextOf(0) <= l.start {
		s := l.segments[0]
		if len(l.segments) == 1 {
			l.addSegment() // so that the folder always says where the log is
		}
		s.dropped = true
		l.dropped = append(l.dropped, s)
		l.segments = l.segments[1:]
	}
}

// fail poisons the log: a failed write or sync is never tried again, as the page
// cache may have dropped the data.
func (l *Log) fail(doing string, err error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.failed == nil {
		l.failed = fmt.Errorf("commit log %s: %s: %w", l.dir, doing, err)
	}
	return l.failed
}

func (l *Log) failure() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.failed
}

func (l *Log) parent() string { return path.Dir(l.dir) }
