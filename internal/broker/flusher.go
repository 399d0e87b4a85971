package broker

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/tube-mq/tube/internal/commitlog"
	"github.com/tube-mq/tube/internal/pulse"
	"github.com/tube-mq/tube/internal/record"
)

// A partition's newest batches are in memory until somebody writes them to its
// segment. The flusher does that off the data path: when one partition has
// flushAt bytes, or all of them together have more than the budget. A checkpoint
// writes the rest. Nothing depends on it for durability: that is the
// write-ahead log's part.
type flusher struct {
	flushAt     int64
	budgetBytes int64

	// tailBytes is what all partitions hold in memory.
	tailBytes atomic.Int64

	mu      sync.Mutex
	wake    *sync.Cond
	queue   []*Partition // to be flushed, oldest first
	aging   []*Partition // with something in memory, oldest first
	stopped bool
	ended   chan struct{} // closed by stop
	done    sync.WaitGroup
}

// flushers write at a time. What each of 1,000 partitions has is about 128 KiB, which one
// alone did not write as fast as it came: the partitions' loops had to (see offer). Two do,
// at 1.07 times the rate; four did no better.
const flushers = 2

// fullRetry is how long the writers wait after a full disk refused them.
const fullRetry = time.Second

// flushState is a partition's part in this. Guarded by flusher.mu, but for writing.
type flushState struct {
	queued, aging bool
	// writing serialises Flush and Sync of one log, and its closing.
	writing sync.Mutex
	closed  bool // guarded by writing: the log is gone, what was queued is void
	// settled is the part of tailBytes that this partition accounts for.
	settled atomic.Int64
}

func newFlusher(flushAt, budgetBytes int64) *flusher {
	f := &flusher{flushAt: flushAt, budgetBytes: budgetBytes, ended: make(chan struct{})}
	f.wake = sync.NewCond(&f.mu)
	return f
}

func (f *flusher) start(workers int) {
	for range workers {
		f.done.Go(f.run)
	}
}

func (f *flusher) stop() {
	f.mu.Lock()
	if !f.stopped {
		f.stopped = true
		close(f.ended)
	}
	f.wake.Broadcast()
	f.mu.Unlock()
	f.done.Wait()
}

// appended accounts for a batch that is now in memory. From the partition's loop.
func (f *flusher) appended(p *Partition, sizeBytes int) {
	p.flush.settled.Add(int64(sizeBytes))
	f.tailBytes.Add(int64(sizeBytes))
}

// offer queues what has to be written after a run of entries. When memory is
// at twice the budget the writers have fallen behind, and the partition's loop
// writes itself: that is the back-pressure.
func (f *flusher) offer(p *Partition) {
	own, all := p.flush.settled.Load(), f.tailBytes.Load()
	if own == 0 {
		return
	}
	if all > 2*f.budgetBytes && f.write(p) == nil {
		return // else it was reported there, and is tried again
	}
	f.mu.Lock()
	if !p.flush.aging {
		p.flush.aging = true
		f.aging = append(f.aging, p)
	}
	if own >= f.flushAt && !p.flush.queued {
		p.flush.queued = true
		f.queue = append(f.queue, p)
		f.wake.Signal()
	} else if all > f.budgetBytes && len(f.queue) == 0 {
		f.wake.Signal()
	}
	f.mu.Unlock()
}

func (f *flusher) run() {
	for {
		p := f.next()
		if p == nil {
			return
		}
		if isFull(f.write(p)) {
			select {
			case <-time.After(fullRetry):
				f.offer(p)
			case <-f.ended:
			}
		}
	}
}

func isFull(err error) bool {
	return errors.Is(err, commitlog.ErrFull) || errors.Is(err, syscall.ENOSPC)
}

// next waits for a partition that has to be written; nil when stopping.
func (f *flusher) next() *Partition {
	f.mu.Lock()
	defer f.mu.Unlock()
	for !f.stopped {
		if len(f.queue) > 0 {
			p := f.queue[0]
			f.queue = f.queue[1:]
			p.flush.queued = false
			return p
		}
		if len(f.aging) > 0 && f.tailBytes.Load() > f.budgetBytes {
			p := f.aging[0]
			f.aging = f.aging[1:]
			p.flush.aging = false
			return p
		}
		f.wake.Wait()
	}
	return nil
}

// write flushes one partition's tail. A full disk leaves it in memory, to be
// tried again; any other failure takes the node down (see Broker.storageFailed).
func (f *flusher) write(p *Partition) error {
	p.flush.writing.Lock()
	defer p.flush.writing.Unlock()
	if p.flush.closed {
		return nil
	}
	err := p.log.Flush()
	f.account(p)
	switch {
	case err == nil:
	case isFull(err):
		p.broker.diskFull(err)
	default:
		p.broker.storageFailed(p, err)
	}
	return err
}

// account corrects the sums to what is in memory now.
func (f *flusher) account(p *Partition) {
	left := p.log.TailBytes()
	f.tailBytes.Add(left - p.flush.settled.Swap(left))
}

// settle makes everything appended so far durable in the segments.
func (p *Partition) settle() error {
	p.flush.writing.Lock()
	defer p.flush.writing.Unlock()
	if p.flush.closed {
		return nil
	}
	err := p.log.Flush()
	p.broker.flusher.account(p)
	if err != nil {
		return err
	}
	return p.log.Sync()
}

// sweep removes files of dropped segments, a few at a time: deleting gigabytes
// takes long, and nothing waits for it.
func (b *Broker) sweepLoop(ctx context.Context) {
	if err := commitlog.SweepDiscarded(b.cfg.FS, b.cfg.Dir); err != nil {
		b.cfg.Logger.Warn("cannot remove what is left of deleted partitions; the next start tries again", "err", err)
	}
	pulse.Every(ctx, b.cfg.SweepInterval, func() {
		b.files.Trim()
		record.TrimBuffers()
		// A moved log start must be durable before the files go: a relaxed
		// group's may not be yet.
		if err := b.cfg.Host.Sync(); err != nil {
			return // the node stops
		}
		for _, p := range b.all() {
			if err := p.log.Sweep(); err != nil {
				p.logger.Warn("cannot remove old segments; will try again", "err", err)
			}
		}
	})
}
