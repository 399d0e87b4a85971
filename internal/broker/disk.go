package broker

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/tube-mq/tube/internal/pulse"
	"github.com/tube-mq/tube/internal/vfs"
)

// Produce is refused while less than the reserve is free, so that what keeps
// the node alive (the write-ahead log, deletes, retention, committed offsets)
// still has room. It begins again by itself.

const (
	diskWatchInterval = time.Second
	// restingDiskInterval is for a disk that has room, while nothing is produced.
	restingDiskInterval = 5 * time.Second
	// lookAfterBytes of batches the disk is looked at again in any case: others
	// write to it as well.
	lookAfterBytes = 8 << 20
)

// diskState is why produce is refused.
type diskState struct{ err error }

// admit refuses what producers send while the disk is about to be full. A batch
// goes to disk twice, so what was admitted since the last look is counted as
// such, and a producer that is faster than the watch makes it look again.
func (b *Broker) admit(sizeBytes int) error {
	if b.room.Add(-2*int64(sizeBytes)) < 0 {
		b.lookAtDisk()
	}
	return b.refusal()
}

func (b *Broker) refusal() error {
	if s := b.full.Load(); s != nil {
		return s.err
	}
	return nil
}

func (b *Broker) diskFull(cause error) {
	if b.full.Swap(&diskState{fmt.Errorf("%w: %w", ErrDiskFull, cause)}) == nil {
		b.cfg.Logger.Error("disk is full: produce is refused until there is room; reads, deletes and commits go on", "dir", b.cfg.Dir, "err", cause)
	}
}

func (b *Broker) watchDisk(ctx context.Context) {
	b.lookAtDisk()
	room := b.room.Load()
	pulse.Vary(ctx, diskWatchInterval, func() time.Duration {
		nothing := b.room.Load() == room // was produced
		b.lookAtDisk()
		room = b.room.Load()
		if nothing && b.refusal() == nil {
			return restingDiskInterval
		}
		return diskWatchInterval
	})
}

func (b *Broker) lookAtDisk() {
	disk, ok := b.cfg.FS.(vfs.Space)
	if !ok {
		b.room.Store(math.MaxInt64) // a file system that cannot tell has no reserve
		return
	}
	free, err := disk.FreeBytes(b.cfg.Dir)
	if err != nil {
		b.cfg.Logger.Warn("cannot tell how much disk is free", "dir", b.cfg.Dir, "err", err)
		return
	}
	// What is in memory still has to be written.
	free -= b.flusher.tailBytes.Load()
	b.room.Store(min(free-b.cfg.ReserveBytes, lookAfterBytes))
	switch {
	case free < b.cfg.ReserveBytes:
		b.diskFull(fmt.Errorf("%d MiB left in %s, the reserve is %d MiB", free>>20, b.cfg.Dir, b.cfg.ReserveBytes>>20))
	case free > b.cfg.ReserveBytes+b.cfg.ReserveBytes/8 && b.full.Swap(nil) != nil:
		b.cfg.Logger.Info("disk has room again: produce goes on", "free_mib", free>>20)
	}
}
