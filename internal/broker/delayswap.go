package broker

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path"
	"sync"
	"sync/atomic"

	"github.com/tube-mq/tube/internal/queue"
	"github.com/tube-mq/tube/internal/vfs"
)

// delayPool is where the partitions' indexes of delayed messages go, as far as they
// are not due for long, once they take more memory than they may all together. It is
// one file beside the partitions' folders, made anew at each start and never synced:
// what it holds is in the checkpoint and the log as well.
//
//	slots of queue.SwapBlockBytes each, the first of them slot 1
//
// The file grows as slots are needed, by allocated pieces, leaves the disk's reserve
// alone, and is emptied when none is used any more.
type delayPool struct {
	fs      vfs.FS
	name    string
	budget  int64
	reserve int64
	logger  *slog.Logger

	held atomic.Int64 // bytes in memory
	// refused is why the last block was not taken; nil: it was.
	refused atomic.Pointer[error]

	mu     sync.Mutex
	file   vfs.File // nil: not needed yet
	slots  int64    // that the file has room for
	next   queue.Slot
	free   []queue.Slot // below next
	again  bool         // after a refusal: it is worth trying
	ending bool         // the file is not needed once no slot is used
	// used, written and read are slots: that hold a block, and since the start.
	used, written, read atomic.Int64
}

const (
	delaySwapFile = "delayed.swap"
	// The file grows by as much as it is large, within these bounds, in slots.
	leastGrowthSlots = 32
	mostGrowthSlots  = 2048
)

func newDelayPool(cfg *Config) (*delayPool, error) {
	p := &delayPool{
		fs: cfg.FS, name: path.Join(path.Dir(cfg.Dir), delaySwapFile), budget: cfg.DelayedBytes, reserve: cfg.ReserveBytes,
		logger: cfg.Logger, next: 1,
	}
	if err := cfg.FS.Remove(p.name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("broker: %w", err)
	}
	return p, nil
}

func (p *delayPool) over() bool { return p.held.Load() > p.budget }

// ease is what the index is brought down to in the background, so that there is room
// for what comes and for what is due soon.
func (p *delayPool) ease() int64 { return p.budget - p.budget/16 }

// refusal is why no more delayed messages can be taken in; nil: they can.
func (p *delayPool) refusal() error {
	if p.refused.Load() == nil || !p.over() {
		return nil
	}
	return fmt.Errorf("%w: on this node their index has reached its memory, delayed-memory, of %d MiB, and cannot go to disk, as its log says; make room there, or let it have more",
		queue.ErrTooManyDelayed, p.budget>>20)
}

// tryAgain has the next block tried after one was refused.
func (p *delayPool) tryAgain() {
	p.mu.Lock()
	p.again = p.refused.Load() != nil
	p.mu.Unlock()
}

func (p *delayPool) put(block []byte) (queue.Slot, error) {
	s, err := p.place()
	if err == nil {
		if _, err = p.file.WriteAt(block, offsetOf(s)); err != nil {
			p.give(s)
			p.refuse(err)
		}
	}
	if err != nil {
		return 0, err
	}
	p.written.Add(1)
	p.refused.Store(nil)
	return s, nil
}

func offsetOf(s queue.Slot) int64 { return int64(s-1) * queue.SwapBlockBytes }

// place finds a slot that is free.
func (p *delayPool) place() (queue.Slot, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if cause := p.refused.Load(); cause != nil {
		if !p.again {
			return 0, *cause
		}
		p.again = false
	}
	if n := len(p.free); n > 0 {
		s := p.free[n-1]
		p.free = p.free[:n-1]
		p.used.Add(1)
		return s, nil
	}
	if int64(p.next) > p.slots {
		if err := p.grow(); err != nil {
			p.refuse(err)
			return 0, err
		}
	}
	p.next++
	p.used.Add(1)
	return p.next - 1, nil
}

func (p *delayPool) grow() error {
	slots := p.slots + min(max(p.slots, leastGrowthSlots), mostGrowthSlots)
	more := (slots - p.slots) * queue.SwapBlockBytes
	if disk, ok := p.fs.(vfs.Space); ok {
		free, err := disk.FreeBytes(path.Dir(p.name))
		if err == nil && free-more < p.reserve {
			err = fmt.Errorf("%w: %d MiB left in %s, the reserve is %d MiB", ErrDiskFull, free>>20, path.Dir(p.name), p.reserve>>20)
		}
		if err != nil {
			return err
		}
	}
	if p.file == nil {
		f, err := p.fs.Open(p.name, vfs.Mode{Create: true})
		if err != nil {
			return err
		}
		p.file = f
	}
	if err := p.file.Allocate(slots * queue.SwapBlockBytes); err != nil {
		return err
	}
	p.slots = slots
	return nil
}

func (p *delayPool) refuse(err error) {
	if p.refused.Swap(&err) == nil {
		p.logger.Warn("the index of delayed messages cannot go to disk: it stays in memory, and beyond its budget no more delayed messages are taken",
			"file", p.name, "err", err)
	}
}

func (p *delayPool) get(s queue.Slot, block []byte) error {
	p.mu.Lock()
	f := p.file
	p.mu.Unlock()
	if f == nil {
		return fs.ErrClosed
	}
	p.read.Add(1)
	_, err := f.ReadAt(block, offsetOf(s))
	return err
}

func (p *delayPool) give(s queue.Slot) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.free = append(p.free, s)
	if p.used.Add(-1) == 0 && p.ending {
		p.remove()
	}
}

// empty gives the disk back what no slot needs. Should it not be given back, it is used again.
func (p *delayPool) empty() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.used.Load() == 0 && p.slots > 0 && p.file.Truncate(0) == nil {
		p.free, p.next, p.slots = nil, 1, 0
	}
}

// end has the file removed once the last slot is given up: the replica host, which is
// closed later, makes a checkpoint of what is in it.
func (p *delayPool) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ending = true; p.used.Load() == 0 {
		p.remove()
	}
}

func (p *delayPool) remove() {
	if p.file == nil {
		return
	}
	err := errors.Join(p.file.Close(), p.fs.Remove(p.name))
	p.file, p.free, p.next, p.slots = nil, nil, 1, 0
	if err != nil {
		p.logger.Warn("cannot remove the swapped index of delayed messages; the next start will", "file", p.name, "err", err)
	}
}

// delaySwap is a partition's way to the pool. It implements queue.Swap.
type delaySwap struct {
	*delayPool
	p *Partition
}

func (s delaySwap) Grow(deltaBytes int)                     { s.held.Add(int64(deltaBytes)) }
func (s delaySwap) Over() bool                              { return s.over() }
func (s delaySwap) Put(block []byte) (queue.Slot, error)    { return s.put(block) }
func (s delaySwap) Get(slot queue.Slot, block []byte) error { return s.get(slot, block) }
func (s delaySwap) Free(slot queue.Slot)                    { s.give(slot) }
func (s delaySwap) Lost(err error)                          { s.p.broker.queues.goes(func() { s.p.indexLost(err) }) }

// indexLost takes a replica out of service whose index of delayed messages is lost. If
// others can take its place, this one is copied anew. The only one has all that it needs
// in the checkpoint and the log, for a start.
func (p *Partition) indexLost(err error) {
	p.fail(err)
	if p.group.Alone() {
		p.broker.storageFailed(p, fmt.Errorf("%w; a new start makes it anew", err))
		return
	}
	p.group.Fail(err)
}
