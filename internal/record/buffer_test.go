package record

import (
	"bytes"
	"testing"
)

func TestBufferIsNotReusedWhileSomebodyHoldsIt(t *testing.T) {
	PoisonReleased(true)
	defer PoisonReleased(false)
	b := NewBuffer(1000)
	for i := range b.B {
		b.B[i] = 7
	}
	seen := b.B
	b.Retain()
	b.Release()
	for range 100 {
		o := NewBuffer(1000)
		if &o.B[0] == &seen[0] {
			t.Fatal("the buffer was given out while it was held")
		}
		o.Release()
	}
	if !bytes.Equal(seen, bytes.Repeat([]byte{7}, 1000)) {
		t.Fatal("overwritten while held")
	}
	b.Release()
	if seen[0] == 7 {
		t.Fatal("a released buffer keeps its content under PoisonReleased")
	}
}

func TestBufferSizesAndClasses(t *testing.T) {
	for _, n := range []int{0, 1, 511, 512, 513, 4096, 1<<20 + 1} {
		b := NewBuffer(n)
		if len(b.B) != n {
			t.Fatalf("asked for %d, got %d", n, len(b.B))
		}
		if cap(b.B) > max(2*n, 512) {
			t.Fatalf("asked for %d, holds %d", n, cap(b.B))
		}
		b.Release()
	}
	var none *Buffer
	none.Release()
}

func TestBufferMisuseStopsTheProgram(t *testing.T) {
	mustPanic := func(name string, f func()) {
		t.Helper()
		defer func() {
			if recover() == nil {
				t.Errorf("%s: no panic", name)
			}
		}()
		f()
	}
	b := NewBuffer(1<<maxClassBits + 1) // not pooled, so nobody else gets it
	b.Release()
	mustPanic("Retain after Release", func() { b.Retain() })
	c := NewBuffer(1<<maxClassBits + 1)
	c.Release()
	mustPanic("Release twice", c.Release)
}
