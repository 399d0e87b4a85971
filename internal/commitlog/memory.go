package commitlog

import (
	"fmt"
	"sync"
	"time"

	"github.com/tube-mq/tube/internal/record"
)

// MemoryConfig of a Memory log.
type MemoryConfig struct {
	Start record.Offset // where it begins, empty
	// RetentionBytes bounds it: DefaultMemoryBytes if it is not positive.
	RetentionBytes int64
}

// DefaultMemoryBytes bounds a memory log whose topic has no retention.bytes.
const DefaultMemoryBytes = 256 << 20

// Memory is a log that lives in memory only, for topics with
// tube.storage=memory. Batches are copied, so that a small one does not keep a
// large request in memory for as long as it is retained.
//
// Its size is bounded by the owner moving the log start to RetentionCandidate
// when Over says so; what the owner does not do in time the log does itself, at
// twice its bound: reading below is then ErrOutOfRange.
type Memory struct {
	mu       sync.Mutex
	maxBytes int64
	tail     tail
	start    record.Offset
	end      record.Offset
	closed   bool
}

// NewMemory returns an empty log.
func NewMemory(cfg MemoryConfig) *Memory {
	if cfg.RetentionBytes <= 0 {
		cfg.RetentionBytes = DefaultMemoryBytes
	}
	return &Memory{maxBytes: cfg.RetentionBytes, start: cfg.Start, end: cfg.Start}
}

// Append is Log.Append; buf is not retained.
func (m *Memory) Append(batch []byte, h record.Header, _ *record.Buffer) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed || h.BaseOffset != m.end || h.LastOffsetDelta < 0 || len(batch) < record.HeaderBytes {
		return fmt.Errorf("memory log: batch of %d bytes at offset %d does not follow the log's end %d", len(batch), h.BaseOffset, m.end)
	}
	m.tail.append(nil, 0, batch, h, nil)
	m.end = h.NextOffset()
	for m.tail.sizeBytes > 2*m.maxBytes && len(m.tail.pieces) > 1 {
		m.start = max(m.start, m.tail.pieces[1].first)
		m.dropBelowStart()
	}
	return nil
}

// Read is Log.Read.
func (m *Memory) Read(offset record.Offset, maxBytes int, minOne bool, limit record.Offset) (Chunk, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if limit = min(limit, m.end); offset >= limit {
		return Chunk{}, nil
	}
	if len(m.tail.pieces) == 0 || offset < m.tail.pieces[0].first {
		return Chunk{}, fmt.Errorf("%w: %d is below the log start %d", ErrOutOfRange, offset, m.start)
	}
	return m.tail.read(offset, maxBytes, minOne, limit, m.end), nil
}

// ReadOn is Log.ReadOn.
func (m *Memory) ReadOn(offset record.Offset, maxBytes int, limit record.Offset) ([]byte, error) {
	c, err := m.Read(offset, maxBytes, true, limit)
	if err != nil || c.Release == nil {
		return nil, err
	}
	defer c.Release()
	return c.join(), nil
}

// SetLogStart is Log.SetLogStart; memory is given back in pieces of about 64 KiB, or a
// batch if that is larger.
func (m *Memory) SetLogStart(to record.Offset) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.start = max(m.start, min(to, m.end))
	m.dropBelowStart()
	return nil
}

func (m *Memory) dropBelowStart() {
	n := 0
	for n < len(m.tail.pieces) && m.nextOf(n) <= m.start {
		n++
	}
	if n == 0 {
		return
	}
	for _, p := range m.tail.drop(n) {
		p.release()
	}
	if len(m.tail.pieces) > 0 && n > len(m.tail.pieces) {
		// Let go of the old array now and then.
		m.tail.pieces = append([]piece(nil), m.tail.pieces...)
	}
}

func (m *Memory) nextOf(i int) record.Offset {
	if i+1 < len(m.tail.pieces) {
		return m.tail.pieces[i+1].first
	}
	return m.end
}

// RetentionCandidate is Log.RetentionCandidate, batch by batch: it gives what
// remains at most retentionBytes. Batches without a timestamp have no age.
func (m *Memory) RetentionCandidate(now time.Time, retention time.Duration, retentionBytes int64) record.Offset {
	m.mu.Lock()
	defer m.mu.Unlock()
	if retentionBytes <= 0 {
		retentionBytes = m.maxBytes
	}
	limit := now.Add(-retention).UnixMilli()
	to, left := m.start, m.tail.sizeBytes
	for i := range m.tail.pieces {
		done := false
		m.tail.pieces[i].eachHeader(func(h record.Header) bool {
			old := retention >= 0 && h.MaxTimestamp >= 0 && h.MaxTimestamp < limit
			if done = left <= retentionBytes && !old; done {
				return false
			}
			left -= int64(h.SizeBytes())
			to = h.NextOffset()
			return true
		})
		if done {
			break
		}
	}
	return max(to, m.start)
}

// eachHeader visits the headers of a piece's batches.
func (p *piece) eachHeader(visit func(record.Header) bool) {
	for b := p.bytes; len(b) > 0; {
		h, err := record.ParseHeader(b)
		if err != nil || !visit(h) || h.SizeBytes() > len(b) {
			return
		}
		b = b[h.SizeBytes():]
	}
}

// OffsetForTime is Log.OffsetForTime.
func (m *Memory) OffsetForTime(timeMillis int64) (record.Offset, int64, record.Epoch, error) {
	m.mu.Lock()
	from, start, end := record.Offset(-1), m.start, m.end
	for i := range m.tail.pieces {
		if p := &m.tail.pieces[i]; p.maxTime >= timeMillis && m.nextOf(i) > start {
			from = p.first
			break
		}
	}
	m.mu.Unlock()
	if from < 0 {
		return -1, -1, -1, nil
	}
	return scanForTime(m.Read, from, start, end, timeMillis)
}

// OffsetForMaxTime is Log.OffsetForMaxTime.
func (m *Memory) OffsetForMaxTime() (record.Offset, int64, record.Epoch, error) {
	m.mu.Lock()
	newest := int64(noTime)
	for i := range m.tail.pieces {
		newest = max(newest, m.tail.pieces[i].maxTime)
	}
	m.mu.Unlock()
	if newest < 0 {
		return -1, -1, -1, nil
	}
	return m.OffsetForTime(newest)
}

// Bounds is Log.Bounds.
func (m *Memory) Bounds() (start, end record.Offset) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.start, m.end
}

// SizeBytes is what the batches take.
func (m *Memory) SizeBytes() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.tail.sizeBytes
}

// Over reports whether the log holds an eighth, and what one piece may, more than
// its bound: the owner should move the log start to RetentionCandidate.
func (m *Memory) Over() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.tail.sizeBytes > m.maxBytes+m.maxBytes/8+maxSlabBytes
}

// Flush does nothing: nothing goes to a disk.
func (*Memory) Flush() error { return nil }

// Sync does nothing.
func (*Memory) Sync() error { return nil }

// Sweep does nothing.
func (*Memory) Sweep() error { return nil }

// TailBytes is 0: nothing waits to be written.
func (*Memory) TailBytes() int64 { return 0 }

// Close gives the memory back. Reads under way finish.
func (m *Memory) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.tail.releaseAll()
	m.start, m.closed = m.end, true
	return nil
}

// Skip makes an empty log of it that goes on at to: what was up to there was in
// the memory of a process that is gone.
func (m *Memory) Skip(to record.Offset) error {
	if err := m.SetLogStart(to); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if to > m.end {
		m.start, m.end = to, to
	}
	return nil
}
