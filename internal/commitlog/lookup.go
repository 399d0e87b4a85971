package commitlog

import (
	"slices"
	"time"

	"github.com/tube-mq/tube/internal/record"
)

// OffsetForTime finds the first record with a timestamp ≥ timeMillis: its offset,
// timestamp and epoch; −1, −1, −1 if there is none.
func (l *Log) OffsetForTime(timeMillis int64) (record.Offset, int64, record.Epoch, error) {
	segments, tail := l.snapshot()
	for _, s := range segments {
		o, t, e, err := s.offsetForTime(timeMillis)
		if err != nil || o >= 0 {
			return o, t, e, err
		}
	}
	return tailForTime(tail, timeMillis)
}

// OffsetForMaxTime finds the first record with the largest timestamp.
func (l *Log) OffsetForMaxTime() (record.Offset, int64, record.Epoch, error) {
	segments, tail := l.snapshot()
	newest := int64(minTime)
	for _, s := range segments {
		f, err := s.acquire()
		if err != nil {
			continue
		}
		t, err := s.newest(f)
		s.release()
		if err != nil {
			return -1, -1, -1, err
		}
		newest = max(newest, t)
	}
	for _, t := range tail {
		newest = max(newest, t.maxTime)
	}
	if newest == minTime {
		return -1, -1, -1, nil
	}
	return l.OffsetForTime(newest)
}

func (l *Log) snapshot() ([]*segment, []tailBatch) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return slices.Clone(l.segments), slices.Clone(l.tail)
}

// offsetForTime looks in one segment; −1 if no record in it is that late.
func (s *segment) offsetForTime(timeMillis int64) (record.Offset, int64, record.Epoch, error) {
	f, err := s.acquire()
	if err != nil {
		return -1, -1, -1, nil // dropped meanwhile
	}
	defer s.release()
	rows, err := s.lookup(f)
	if err != nil {
		return -1, -1, -1, err
	}
	from := floorTime(rows, s.base, timeMillis)
	pos := int64(-1)
	var head record.Header
	err = eachHeader(f, s, from.position, s.size.Load(), func(h record.Header, p int64) bool {
		if h.MaxTimestamp >= timeMillis {
			pos, head = p, h
			return false
		}
		return true
	})
	if err != nil || pos < 0 {
		return -1, -1, -1, err
	}
	b := make([]byte, head.SizeBytes())
	if _, err := f.ReadAt(b, pos); err != nil {
		return -1, -1, -1, err
	}
	if _, err := record.Verify(b); err != nil {
		return -1, -1, -1, &CorruptError{s.name(), pos, err}
	}
	return firstAt(b, head, timeMillis)
}

func tailForTime(tail []tailBatch, timeMillis int64) (record.Offset, int64, record.Epoch, error) {
	for _, t := range tail {
		if t.maxTime < timeMillis {
			continue
		}
		b := append(slices.Clone(t.head[:]), t.body...)
		h, err := record.ParseHeader(b)
		if err != nil {
			return -1, -1, -1, err
		}
		return firstAt(b, h, timeMillis)
	}
	return -1, -1, -1, nil
}

// firstAt finds the first record of a batch that is late enough. A batch that
// cannot be decoded answers with its own base.
func firstAt(b []byte, h record.Header, timeMillis int64) (record.Offset, int64, record.Epoch, error) {
	if h.Attributes&record.LogAppendTimeBit != 0 {
		return h.BaseOffset, h.MaxTimestamp, h.LeaderEpoch, nil
	}
	o, t, ok, err := record.FirstAt(b, timeMillis, h.BaseOffset, record.Limits{})
	if err != nil || !ok {
		return h.BaseOffset, h.MaxTimestamp, h.LeaderEpoch, nil
	}
	return o, t, h.LeaderEpoch, nil
}

// RetentionCandidate is where the log should start: behind the segments whose
// newest record is older than retention (< 0: no limit), and behind the oldest
// ones while what remains has at least retentionBytes (< 0: no limit). now must
// come from a clock that does not jump forward: see broker's retention clock.
// A segment that cannot be read is kept.
func (l *Log) RetentionCandidate(now time.Time, retention time.Duration, retentionBytes int64) record.Offset {
	segments, tail := l.snapshot()
	start, end := l.Bounds()
	sizeBytes := int64(0)
	for _, s := range segments {
		sizeBytes += s.size.Load()
	}
	for _, t := range tail {
		sizeBytes += int64(t.sizeBytes)
	}
	to := start
	for i, s := range segments {
		own := s.size.Load()
		last := i+1 == len(segments)
		tooMany := retentionBytes >= 0 && !last && sizeBytes-own >= retentionBytes
		tooOld := retention >= 0 && (!last || len(tail) == 0) && s.newestKnown(now) < now.Add(-retention).UnixMilli()
		if !tooMany && !tooOld {
			break
		}
		sizeBytes -= own
		to = end
		if !last {
			to = segments[i+1].base
		}
	}
	return max(to, start)
}

// newestKnown is the segment's largest timestamp; of one without timestamps the
// time since when this process has it, and now if it cannot be read.
func (s *segment) newestKnown(now time.Time) int64 {
	f, err := s.acquire()
	if err != nil {
		return now.UnixMilli()
	}
	defer s.release()
	t, err := s.newest(f)
	if err != nil {
		return now.UnixMilli()
	}
	if t < 0 {
		return s.began.UnixMilli()
	}
	return t
}
