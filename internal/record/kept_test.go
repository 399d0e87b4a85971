package record

import (
	"runtime"
	"testing"
	"time"
	"unsafe"
)

// What was kept is used again once nobody has any part of it, and not before.
func TestKeptBytesAreUsedAgainWhenNobodyHasThem(t *testing.T) {
	const size = 5 << 20 // of a class that no other test uses
	b := Kept(size)
	at := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	part := b[size/2 : size/2+1]
	part[0] = 7
	for range 3 {
		runtime.GC()
		if again := Kept(size); uintptr(unsafe.Pointer(unsafe.SliceData(again))) == at {
			t.Fatal("used again while somebody had a part of it")
		}
	}
	if part[0] != 7 {
		t.Fatal("overwritten while somebody had a part of it")
	}
	runtime.KeepAlive(part)
	part, b = nil, nil
	seen := map[uintptr]bool{at: true}
	deadline := time.Now().Add(10 * time.Second)
	for {
		runtime.GC()
		again := Kept(size)
		if seen[uintptr(unsafe.Pointer(unsafe.SliceData(again)))] {
			return
		}
		seen[uintptr(unsafe.Pointer(unsafe.SliceData(again)))] = true
		if time.Now().After(deadline) {
			t.Fatal("it was never used again")
		}
	}
}
