package record

import (
	"math/bits"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"
)

// Buffer is a pooled, reference-counted byte slice. A produce request is read
// into one; the Raft log, the log's tail in memory and answers in flight each
// hold a reference while they use bytes of it, and the last Release gives the
// memory back to the pool. Measured before the first line: a fresh buffer for
// every produce request halves the throughput of 1 KiB records.
//
// Invariant: nobody reads or writes B after giving up their reference. Build
// with -race or call PoisonReleased in a test to catch one who does.
type Buffer struct {
	// B is the usable part. Its content is undefined after NewBuffer: whoever
	// takes a buffer must overwrite all of B before anyone may see it.
	B []byte

	refs  atomic.Int32
	class int // index into pools, or −1 for a size that is not pooled
}

const (
	minClassBits = 9  // 512 B
	maxClassBits = 27 // 128 MiB; larger buffers are left to the garbage collector
)

var (
	// free holds the buffers of a class that wait to be used again, pools those
	// beyond keepBytes, which the garbage collector takes.
	free   [maxClassBits - minClassBits + 1]freeList
	pools  [maxClassBits - minClassBits + 1]sync.Pool
	poison atomic.Bool
)

// PoisonReleased makes every released buffer be overwritten at once, so that a
// reader who holds bytes without a reference sees garbage. For tests.
func PoisonReleased(on bool) { poison.Store(on) }

// NewBuffer returns a buffer of sizeBytes with one reference.
func NewBuffer(sizeBytes int) *Buffer {
	class := classOf(sizeBytes)
	if class < 0 {
		b := &Buffer{B: make([]byte, sizeBytes), class: -1}
		b.refs.Store(1)
		return b
	}
	b := free[class].get()
	if b == nil {
		b, _ = pools[class].Get().(*Buffer)
	}
	if b == nil {
		b = &Buffer{B: make([]byte, 1<<(class+minClassBits)), class: class}
	}
	b.B = b.B[:sizeBytes]
	b.refs.Store(1)
	return b
}

// Kept returns sizeBytes for who cannot say when everybody is done with them, as parts
// of them are passed on. They come from the pool too, and go back once the garbage
// collector finds that nobody has any part of them: then it need not clear them for the
// next one, which cost a queue's reader as much as reading from the disk. Their content
// is undefined, and they begin at a page where they are as large as one.
func Kept(sizeBytes int) []byte {
	b := NewBuffer(sizeBytes)
	if class, size := b.class, cap(b.B); class >= 0 && size >= keepFromBytes {
		// What the function refers to stays: not b, therefore.
		runtime.SetFinalizer(unsafe.SliceData(b.B), func(first *byte) {
			unused := &Buffer{B: unsafe.Slice(first, size), class: class}
			unused.refs.Store(1)
			unused.Release()
		})
	}
	return b.B[:sizeBytes:sizeBytes]
}

// KeptBuffer is a buffer of memory that is not the pool's: b may be used after the last
// Release.
func KeptBuffer(b []byte) *Buffer {
	k := &Buffer{B: b[:len(b):len(b)], class: -1}
	k.refs.Store(1)
	return k
}

func classOf(sizeBytes int) int {
	if sizeBytes > 1<<maxClassBits {
		return -1
	}
	if sizeBytes <= 1<<minClassBits {
		return 0
	}
	return bits.Len(uint(sizeBytes-1)) - minClassBits
}

// Retain adds a reference and returns b.
func (b *Buffer) Retain() *Buffer {
	if b.refs.Add(1) <= 1 {
		panic("record: Retain of a released buffer")
	}
	return b
}

// Release gives up one reference. Releasing a nil buffer does nothing.
func (b *Buffer) Release() {
	if b == nil {
		return
	}
	switch n := b.refs.Add(-1); {
	case n > 0:
		return
	case n < 0:
		panic("record: Buffer released more often than retained")
	}
	b.B = b.B[:cap(b.B)]
	if poison.Load() {
		for i := range b.B {
			b.B[i] = 0xDB
		}
	}
	if b.class >= 0 && !free[b.class].put(b) {
		pools[b.class].Put(b)
	}
}
