package commitlog

import (
	"sort"
	"sync"
	"time"

	"github.com/tube-mq/tube/internal/record"
)

// MemoryConfig of a Memory log.
type MemoryConfig struct {
	Start record.Offset
	// RetentionBytes bounds it when positive: the oldest batches go first.
	RetentionBytes int64
}

// Memory is a log that lives in memory only, for topics with tube.storage=memory.
type Memory struct {
	mu        sync.RWMutex
	maxBytes  int64
	batches   []tailBatch
	start     record.Offset
	end       record.Offset
	sizeBytes int64
}

// DefaultMemoryBytes bounds a memory log whose topic has no retention.bytes.
const DefaultMemoryBytes = 256 << 20

// NewMemory returns an empty log that begins at cfg.Start.
func NewMemory(cfg MemoryConfig) *Memory {
	if cfg.RetentionBytes <= 0 {
		cfg.RetentionBytes = DefaultMemoryBytes
	}
	return &Memory{maxBytes: cfg.RetentionBytes, start: cfg.Start, end: cfg.Start}
}

// Append adds a batch; it is copied, so that a request's buffer does not live as
// long as one of its batches.
func (m *Memory) Append(batch []byte, h record.Header, _ *record.Buffer) error {
	t := newTail(append([]byte(nil), batch...), h, nil)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.batches = append(m.batches, t)
	m.sizeBytes += int64(t.sizeBytes)
	m.end = t.next
	return nil
}

// Read is Log.Read.
func (m *Memory) Read(offset record.Offset, maxBytes int, minOne bool, limit record.Offset) (Chunk, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if offset >= m.end {
		return Chunk{}, nil
	}
	return readTail(m.batches, offset, maxBytes, minOne, limit), nil
}

// SetLogStart drops batches that lie wholly below.
func (m *Memory) SetLogStart(to record.Offset) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.start = max(m.start, min(to, m.end))
	n := sort.Search(len(m.batches), func(i int) bool { return m.batches[i].next > m.start })
	for i := range n {
		m.sizeBytes -= int64(m.batches[i].sizeBytes)
		m.batches[i] = tailBatch{}
	}
	m.batches = m.batches[n:]
	return nil
}

// RetentionCandidate is Log.RetentionCandidate, batch by batch.
func (m *Memory) RetentionCandidate(now time.Time, retention time.Duration, retentionBytes int64) record.Offset {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if retentionBytes <= 0 {
		retentionBytes = m.maxBytes
	}
	to, size := m.start, m.sizeBytes
	for _, t := range m.batches {
		tooOld := retention >= 0 && t.maxTime >= 0 && t.maxTime < now.Add(-retention).UnixMilli()
		if size <= retentionBytes && !tooOld {
			break
		}
		size -= int64(t.sizeBytes)
		to = t.next
	}
	return to
}

// OffsetForTime is Log.OffsetForTime.
func (m *Memory) OffsetForTime(timeMillis int64) (record.Offset, int64, record.Epoch, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return tailForTime(m.batches, timeMillis)
}

// OffsetForMaxTime is Log.OffsetForMaxTime.
func (m *Memory) OffsetForMaxTime() (record.Offset, int64, record.Epoch, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	newest := int64(minTime)
	for _, t := range m.batches {
		newest = max(newest, t.maxTime)
	}
	if newest == minTime {
		return -1, -1, -1, nil
	}
	return tailForTime(m.batches, newest)
}

// SizeBytes is what the batches take.
func (m *Memory) SizeBytes() int64 {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.sizeBytes
}

// Over reports whether the log holds more than its bound: the owner should move
// the log start to RetentionCandidate.
func (m *Memory) Over() bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.sizeBytes > m.maxBytes+m.maxBytes/8
}

// Flush, Sync, Sweep and TailBytes have nothing to do: nothing goes to a disk.

// Flush does nothing.
func (*Memory) Flush() error { return nil }

// Sync does nothing.
func (*Memory) Sync() error { return nil }

// Sweep does nothing.
func (*Memory) Sweep() error { return nil }

// TailBytes is 0: nothing waits to be written.
func (*Memory) TailBytes() int64 { return 0 }

// Close drops everything.
func (m *Memory) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.batches, m.sizeBytes = nil, 0
	return nil
}
