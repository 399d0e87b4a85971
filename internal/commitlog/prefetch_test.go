package commitlog

import (
	"testing"

	"github.com/tube-mq/tube/internal/vfs"
)

// asked is a file that notes what it was asked to have ready.
type asked struct {
	vfs.File
	calls int
	times []int // for each MiB
}

func (a *asked) Prefetch(off, sizeBytes int64) {
	a.calls++
	for at := off; at < off+sizeBytes; at += 1 << 20 {
		a.times[at>>20]++
	}
}

func TestReadersInSequenceAskForEachByteOnceAndInTime(t *testing.T) {
	const sizeBytes = 64 << 20
	f := &asked{times: make([]int, sizeBytes>>20)}
	ahead := int64(0)
	for at := int64(0); at < sizeBytes; at += 1 << 20 {
		if at > 0 {
			ahead = prefetch(f, at, ahead, sizeBytes)
		}
		if left := ahead - at; at > 0 && left < min(prefetchBytes/2, sizeBytes-at) {
			t.Fatalf("at %d only %d bytes are asked for", at, left)
		}
	}
	for i, n := range f.times {
		if want := min(i, 1); n != want { // the first read comes from nowhere
			t.Errorf("MiB %d was asked for %d times, want %d", i, n, want)
		}
	}
	if f.calls > 32 {
		t.Errorf("%d calls for 63 reads", f.calls)
	}
}
