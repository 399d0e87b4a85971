package commitlog

import (
	"time"

	"github.com/tube-mq/tube/internal/record"
)

// scanBytes is how much a lookup by time reads at once.
const scanBytes = 64 << 10

// OffsetForTime finds the first record at or behind the log start with a
// timestamp ≥ timeMillis: its offset, timestamp and leader epoch; −1 each if
// there is none. A batch whose records cannot be decoded answers as a whole.
func (l *Log) OffsetForTime(timeMillis int64) (record.Offset, int64, record.Epoch, error) {
	from, err := l.floorTime(timeMillis)
	if err != nil || from < 0 {
		return -1, -1, -1, err
	}
	start, end := l.Bounds()
	return scanForTime(l.Read, from, start, end, timeMillis)
}

// OffsetForMaxTime finds the first record with the largest timestamp.
func (l *Log) OffsetForMaxTime() (record.Offset, int64, record.Epoch, error) {
	newest := int64(noTime)
	for _, v := range l.views() {
		t, err := l.maxTime(v)
		if err != nil {
			return -1, -1, -1, err
		}
		newest = max(newest, t)
	}
	if newest < 0 {
		return -1, -1, -1, nil // no record, or none with a timestamp
	}
	return l.OffsetForTime(newest)
}

// view is what there is to know of a segment at one moment.
type view struct {
	seg       *segment
	next      record.Offset
	sizeBytes int64
	entries   []entry // nil: in the files
	maxTime   int64
	timeKnown bool
}

func (l *Log) views() []view {
	l.mu.Lock()
	defer l.mu.Unlock()
	out := make([]view, len(l.segments))
	for i, s := range l.segments {
		out[i] = view{seg: s, next: l.nextOf(i), sizeBytes: s.sizeBytes, maxTime: s.maxTime, timeKnown: s.timeKnown}
		if s.index != nil {
			out[i].entries = s.index.entries
		}
	}
	return out
}

// load gets a closed segment's index. What a damaged one lacks is an error.
func (l *Log) load(v view) (*closedIndex, error) {
	of, err := l.shared.acquire(v.seg)
	if err != nil {
		if l.wasDropped(v.seg) {
			return &closedIndex{maxTime: noTime}, nil
		}
		return nil, &CorruptError{v.seg.path, 0, err}
	}
	defer l.shared.release(of)
	ix := l.shared.indexOf(of, v.next, v.sizeBytes, l.interval, false)
	return ix, ix.damage
}

// maxTime is a segment's largest timestamp.
func (l *Log) maxTime(v view) (int64, error) {
	if v.timeKnown {
		return v.maxTime, nil
	}
	ix, err := l.load(v)
	if err != nil {
		return noTime, err
	}
	l.mu.Lock()
	v.seg.maxTime, v.seg.timeKnown = ix.maxTime, true
	l.mu.Unlock()
	return ix.maxTime, nil
}

// floorTime is an offset before which no timestamp reaches t, at most an index
// interval before the first that does; −1 if none does.
func (l *Log) floorTime(t int64) (record.Offset, error) {
	for _, v := range l.views() {
		newest, err := l.maxTime(v)
		if err != nil {
			return -1, err
		}
		if newest < t {
			continue
		}
		entries := v.entries
		if entries == nil {
			ix, err := l.load(v)
			if err != nil {
				return -1, err
			}
			entries = ix.entries
		}
		if len(entries) == 0 {
			continue // dropped meanwhile
		}
		return v.seg.base + record.Offset(entries[floorTime(entries, t)].rel), nil
	}
	return -1, nil
}

type readFunc func(offset record.Offset, maxBytes int, minOne bool, limit record.Offset) (Chunk, error)

// scanForTime reads on from an offset to the first record that is late enough.
func scanForTime(read readFunc, from, start, end record.Offset, timeMillis int64) (o record.Offset, at int64, epoch record.Epoch, err error) {
	for from < end {
		c, err := read(from, scanBytes, true, end)
		if err != nil || c.SizeBytes == 0 {
			return -1, -1, -1, err
		}
		found := false
		eachBatch(c, func(h record.Header, b []byte) bool {
			from = h.NextOffset()
			if h.MaxTimestamp < timeMillis || from <= start {
				return true
			}
			found = true
			var ok bool
			o, at, ok, err = record.FirstAt(b, timeMillis, start, record.Limits{})
			if err != nil || !ok {
				// Its header promised one, so the batch answers as a whole, unless
				// the record is merely below the log start.
				if found = err != nil || h.BaseOffset >= start; found {
					o, at, err = max(h.BaseOffset, start), h.MaxTimestamp, nil
				}
			}
			epoch = h.LeaderEpoch
			return !found
		})
		c.Release()
		if found {
			return o, at, epoch, nil
		}
	}
	return -1, -1, -1, nil
}

// eachBatch visits a chunk's batches, each in one piece.
func eachBatch(c Chunk, visit func(h record.Header, b []byte) bool) {
	for i := 0; i < len(c.Parts); i++ {
		for b := c.Parts[i]; len(b) > 0; {
			h, err := record.ParseHeader(b)
			if err != nil {
				return // cannot be: it was checked
			}
			n := h.SizeBytes()
			if n > len(b) { // header and rest are two parts
				i++
				b = append(append(make([]byte, 0, n), b...), c.Parts[i]...)
			}
			if !visit(h, b[:n]) {
				return
			}
			b = b[n:]
		}
	}
}

// RetentionCandidate is where the log should start: behind the segments whose
// newest record is older than retention (< 0: no limit), and behind the oldest
// ones while what remains has at least retentionBytes (< 0: no limit). now must
// come from a clock that does not jump forward. A segment without timestamps is
// as old as this process knows it; one that cannot be read is kept. By time the
// last segment counts too, once all of it is in the file.
func (l *Log) RetentionCandidate(now time.Time, retention time.Duration, retentionBytes int64) record.Offset {
	l.mu.Lock()
	start, tailBytes := l.start, l.tail.sizeBytes
	l.rollIfOld()
	l.mu.Unlock()
	views := l.views()
	sizeBytes := int64(0)
	for _, v := range views {
		sizeBytes += v.sizeBytes
	}
	to := start
	for i, v := range views {
		last := i+1 == len(views)
		if v.sizeBytes == 0 {
			break
		}
		tooMany := retentionBytes >= 0 && !last && sizeBytes-v.sizeBytes >= retentionBytes
		if !tooMany && (retention < 0 || last && tailBytes > 0 || !l.olderThan(v, now.Add(-retention))) {
			break
		}
		sizeBytes -= v.sizeBytes
		to = v.next
	}
	return max(to, start)
}

func (l *Log) olderThan(v view, limit time.Time) bool {
	newest, err := l.maxTime(v)
	if err != nil {
		return false
	}
	if newest < 0 {
		return v.seg.born.Before(limit)
	}
	return newest < limit.UnixMilli()
}
