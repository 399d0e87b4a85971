package wal

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/tube-mq/tube/internal/vfs"
)

// A spare is zeroed in an eighth of a slow disk's time, so that flushes do not wait
// behind it, but in time for a log that is written quickly.
func TestASpareLeavesTheDiskToOthers(t *testing.T) {
	const pieces, piece = 16, 10 * time.Millisecond
	zeroing := func(t *testing.T, busy bool) (took time.Duration) {
		synctest.Test(t, func(t *testing.T) {
			f := vfs.NewFaulty(newMem(t))
			cfg := testConfig(f)
			cfg.FileBytes = pieces * zeroPiece
			log, w := openTest(t, cfg)
			defer w.Close()
			f.Inject(vfs.Fault{Ops: vfs.OpWrite, Path: preparingName, Delay: piece})
			begin := time.Now()
			log.prepare()
			for ready := false; !ready; {
				if busy {
					log.written.Add(zeroPiece) // as the writer counts
				}
				time.Sleep(time.Millisecond)
				log.mu.Lock()
				ready = len(log.spares) > 0
				log.mu.Unlock()
			}
			took = time.Since(begin)
		})
		return took
	}
	if took := zeroing(t, false); took < (pieces-1)*zeroShare*piece {
		t.Errorf("a spare took %v of a disk that takes %v a piece: too much of it", took, piece)
	}
	if took := zeroing(t, true); took > 2*pieces*piece {
		t.Errorf("the log is written quickly, and a spare took %v", took)
	}
}
