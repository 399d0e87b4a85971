package broker

import (
	"context"
	"time"

	"github.com/tube-mq/tube/internal/pulse"
	"github.com/tube-mq/tube/internal/queue"
)

const (
	delayWatchInterval = time.Second
	// broughtBackAheadMillis is how long before they have something due blocks of the
	// index of delayed messages are back in memory, if there is room.
	broughtBackAheadMillis = 30_000
	// swapStep is how many blocks are moved at a time, while a partition is held up.
	swapStep = 64
)

func (b *Broker) watchDelays(ctx context.Context) {
	pulse.Every(ctx, delayWatchInterval, b.lookAtDelays)
}

// lookAtDelays moves blocks of the indexes of delayed messages: those due last, of all
// partitions, out of memory if there is too much; those due soon back.
func (b *Broker) lookAtDelays() {
	pool := b.delays
	pool.tryAgain()
	if pool.empty(); pool.held.Load() <= pool.ease() && pool.used.Load() == 0 {
		return
	}
	all := b.inOrder()
	b.putDelaysOut(all, pool.ease(), 0)
	if pool.used.Load() == 0 {
		return
	}
	soon := b.queues.nowMillis() + broughtBackAheadMillis
	for _, p := range all {
		for b.bringDelaysBack(all, p, soon) {
		}
	}
}

// putDelaysOut puts blocks out of memory until no more than target bytes are there, those
// due last of all partitions first, and none that has something due before a time.
func (b *Broker) putDelaysOut(all []*Partition, target, dueMillis int64) {
	for b.delays.held.Load() > target {
		var last *Partition
		far, next := int64(0), int64(0)
		for _, p := range all {
			switch at := p.farthestDelay(); {
			case at > far:
				last, far, next = p, at, far
			case at > next:
				next = at
			}
		}
		if last == nil || far < dueMillis {
			return
		}
		if last.withQueues(func(s *queue.State) int { return s.PutOut(swapStep, max(next, dueMillis)) }) == 0 {
			return
		}
	}
}

// bringDelaysBack reads some blocks of a partition that have something due soon, if there
// is room, or can be made. It reports whether there may be more.
func (b *Broker) bringDelaysBack(all []*Partition, p *Partition, soonMillis int64) bool {
	var list []queue.SwappedBlock
	size := p.withQueues(func(s *queue.State) (size int) {
		list = s.Near(soonMillis, swapStep)
		for _, r := range list {
			size += len(r.Bytes)
		}
		return size
	})
	room := b.delays.ease() - int64(size)
	if len(list) == 0 || room < 0 {
		return false
	}
	if b.putDelaysOut(all, room, soonMillis); b.delays.held.Load() > room {
		return false
	}
	for _, r := range list {
		if b.delays.get(r.Slot, r.Bytes) != nil {
			return false // whoever needs it finds out
		}
	}
	return p.withQueues(func(s *queue.State) int {
		before := s.SwappedCount()
		s.Load(list)
		return before - s.SwappedCount()
	}) > 0
}

func (p *Partition) farthestDelay() (millis int64) {
	p.withQueues(func(s *queue.State) int { millis = s.FarthestMillis(); return 0 })
	return millis
}

func (p *Partition) withQueues(f func(s *queue.State) int) int {
	p.machine.mu.Lock()
	defer p.machine.mu.Unlock()
	return f(p.machine.queues)
}

// DelaySwap says what is where of the index of delayed messages.
type DelaySwap struct {
	MemoryBytes, DiskBytes int64 // of blocks
	Messages               int64 // whose time is on disk only
	Written, Read          int64 // blocks, since the start
}

// DelaySwap tells what of the index of delayed messages is on disk.
func (b *Broker) DelaySwap() DelaySwap {
	p := b.delays
	d := DelaySwap{MemoryBytes: p.held.Load(), DiskBytes: p.used.Load() * queue.SwapBlockBytes, Written: p.written.Load(), Read: p.read.Load()}
	if d.DiskBytes > 0 {
		for _, p := range b.all() {
			d.Messages += int64(p.withQueues((*queue.State).SwappedCount))
		}
	}
	return d
}
