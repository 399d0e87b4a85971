package wal

import (
	"errors"

	"github.com/tube-mq/tube/internal/record"
)

// Steps does what a Writer does, without goroutines and without a clock: its
// owner says when the next block is written and when it is synced, so that
// something can happen in between. It is for simulation. Not safe for concurrent
// use. A Writer assembles a block while the one before is being written; Steps
// does one after the other.
type Steps struct {
	log     *Log
	pending []Batch
	round   round
	written bool // round is written and waits for its sync
	blocked bool // the disk was full at the last Write
	marked  bool
	stalled bool
	waiting map[record.Group]struct{}
}

// NewSteps takes a log over. Its files are not prepared ahead of time.
func NewSteps(l *Log) *Steps {
	l.unprepared = true
	return &Steps{log: l, marked: true, waiting: map[record.Group]struct{}{}}
}

// Submit queues a batch. It does not block.
func (s *Steps) Submit(b Batch) { s.pending = append(s.pending, b) }

// Stall and Crowded are a Writer's.
func (s *Steps) Stall(on bool) { s.stalled = on }

// Crowded reports whether more waits than may, while the log is stalled.
func (s *Steps) Crowded() bool {
	if !s.stalled {
		return false
	}
	n := 0
	for _, b := range s.pending {
		n += sizeOf(b)
	}
	return n > s.log.cfg.QueueBytes
}

// Waiting reports whether there is something to write; Unsynced, whether what
// was written waits for its sync. Blocked: the disk is full, as of the last Write.
func (s *Steps) Waiting() bool  { return len(s.pending) > 0 && !s.written }
func (s *Steps) Unsynced() bool { return s.written }
func (s *Steps) Blocked() bool  { return s.blocked }

// Write writes the next block, and answers who need not wait for the sync. If
// the disk is full nothing is written, and it can be tried again.
func (s *Steps) Write() {
	if !s.Waiting() {
		return
	}
	r := &s.round
	r.batches = append(r.batches[:0], s.pending...)
	records, mark := r.layOut()
	mark = mark || !s.marked
	if r.write = records > 0 || mark; r.write {
		r.err = s.log.encode(&r.block, r.batches, r.positions, s.log.roll)
		if s.blocked = errors.Is(r.err, ErrFull); s.blocked {
			s.answerProbes()
			return
		}
		if r.err == nil {
			r.err = s.log.write(&r.block)
		}
		s.marked = records == 0
	}
	s.pending = s.pending[:0]
	if r.err == nil && !r.sync {
		s.log.expose()
	}
	answerWritten(r.batches, r.positions, r.err, s.waiting)
	s.written = r.sync
}

// answerProbes answers, on a full disk, what a Writer answers then.
func (s *Steps) answerProbes() {
	left := s.pending[:0]
	for _, b := range s.pending {
		if !isProbe(&b) {
			left = append(left, b)
		} else if b.Done != nil {
			b.Done(nil, nil)
		}
	}
	s.pending = left
}

// Sync makes the last block durable and answers who waits for that.
func (s *Steps) Sync() {
	if !s.written {
		return
	}
	s.written = false
	r := &s.round
	if r.err == nil {
		r.err = s.log.sync()
	}
	s.log.expose()
	for i, b := range r.batches {
		if b.Done != nil {
			b.Done(r.positions[i], r.err)
		}
	}
	clear(r.batches)
}

// Mark leaves a mark that says that what was written before was durable, as a
// Writer does when it has been idle for a while.
func (s *Steps) Mark() {
	if len(s.pending) == 0 && !s.written && !s.marked {
		s.Submit(Batch{Done: mark})
	}
}

// Drain writes and syncs everything that was submitted; it reports false if the
// disk is too full for that.
func (s *Steps) Drain() bool {
	for len(s.pending) > 0 || s.written {
		s.Sync()
		if s.Write(); s.blocked {
			return false
		}
	}
	return true
}

// Close drains, leaves a last mark and closes the log.
func (s *Steps) Close() error {
	s.Drain()
	for _, b := range s.pending {
		if b.Done != nil {
			b.Done(nil, ErrClosed)
		}
	}
	s.pending = nil
	return s.log.close()
}
