package bench

import (
	"context"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Of the disk's probe: a file that is written over and over, in pieces.
const (
	probeFileBytes  = 256 * mib
	probePieceBytes = mib
)

// diskRate is what the disk takes of a single writer whose bytes are synced, in
// MiB/s: pieces of 1 MiB past the page cache into a file that has its blocks, while
// another goroutine syncs. A store that writes every byte n times reaches an n-th of it
// at most. 0: it could not be told, as the file system has no direct I/O.
func diskRate(ctx context.Context, dir string, d time.Duration) (float64, error) {
	path := filepath.Join(dir, "disk-probe")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR|unix.O_DIRECT, 0o600)
	if err != nil {
		return 0, nil //nolint:nilerr // as documented
	}
	defer os.Remove(path)
	defer f.Close()
	piece, err := unix.Mmap(-1, 0, probePieceBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE) // aligned
	if err != nil {
		return 0, err
	}
	defer func() { _ = unix.Munmap(piece) }()
	fill(piece, 1)
	for at := int64(0); at < probeFileBytes; at += probePieceBytes {
		if _, err := f.WriteAt(piece, at); err != nil {
			return 0, err
		}
	}
	if err := f.Sync(); err != nil {
		return 0, err
	}

	var written, synced atomic.Int64
	var failed error
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			default:
			}
			n := written.Load()
			if n == synced.Load() {
				time.Sleep(50 * time.Microsecond)
				continue
			}
			if failed = unix.Fdatasync(int(f.Fd())); failed != nil {
				return
			}
			synced.Store(n)
		}
	}()
	begin := time.Now()
	for time.Since(begin) < d && ctx.Err() == nil && err == nil {
		_, err = f.WriteAt(piece, written.Load()%probeFileBytes)
		written.Add(probePieceBytes)
	}
	took := time.Since(begin)
	n := synced.Load()
	close(stop)
	<-done
	if err == nil {
		err = failed
	}
	return float64(n) / mib / took.Seconds(), err
}
