package record

import (
	"runtime"
	"testing"
)

func TestReleasedBuffersOutliveTheGarbageCollector(t *testing.T) {
	b := NewBuffer(64 << 10)
	first := &b.B[0]
	b.Release()
	for range 3 {
		runtime.GC() // a sync.Pool is empty after two
	}
	again := NewBuffer(64 << 10)
	defer again.Release()
	if &again.B[0] != first {
		t.Fatal("another buffer was made")
	}
}

func TestBuffersKeptAreBoundedAndGoWhenNobodyNeedsThem(t *testing.T) {
	const size = 1 << 20
	var held []*Buffer
	for range 2*keepBytes/size + 1 {
		held = append(held, NewBuffer(size))
	}
	for _, b := range held {
		b.Release()
	}
	if n := kept.Load(); n > keepBytes || n < keepBytes-size {
		t.Fatalf("%d bytes are kept, want up to %d", n, keepBytes)
	}
	TrimBuffers() // what was released since the last call may still be wanted
	b := NewBuffer(size)
	TrimBuffers() // but for one, nobody needed them
	if n := kept.Load(); n > 0 {
		t.Fatalf("%d bytes are kept that nobody needs", n)
	}
	b.Release()
	TrimBuffers()
	if n := kept.Load(); n != size {
		t.Fatalf("%d bytes are kept, want the one in use", n)
	}
	TrimBuffers()
	if n := kept.Load(); n != 0 {
		t.Fatalf("%d bytes are kept for nobody", n)
	}
}
