package vfs

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"
)

// A hung operation is seen while it hangs, the oldest of several first.
func TestTimedTellsWhatIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		faulty := NewFaulty(NewMem())
		fsys := NewTimed(faulty)
		if _, ok := fsys.Oldest(); ok {
			t.Fatal("something is under way at the start")
		}
		a, b := open(t, fsys, "a"), open(t, fsys, "b")
		released := make(chan struct{})
		faulty.Inject(Fault{Ops: OpWrite | OpSync, Hold: released})
		done := make(chan error, 2)
		go func() { _, err := a.WriteAt([]byte("x"), 0); done <- err }()
		synctest.Wait()
		time.Sleep(3 * time.Second)
		go func() { done <- b.Sync() }()
		synctest.Wait()
		time.Sleep(time.Second)
		f, ok := fsys.Oldest()
		if !ok || f.Op != OpWrite || f.Path != "a" || time.Since(f.Began) != 4*time.Second {
			t.Fatalf("under way: %+v (%v), since %v", f, ok, time.Since(f.Began))
		}
		close(released)
		for range 2 {
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
		if f, ok := fsys.Oldest(); ok {
			t.Fatalf("%+v is still under way", f)
		}
		var got [1]byte
		if _, err := a.ReadAt(got[:], 0); err != nil || !bytes.Equal(got[:], []byte("x")) {
			t.Fatalf("read %q, %v", got, err)
		}
	})
}

func open(t *testing.T, fsys FS, name string) File {
	t.Helper()
	f, err := fsys.Open(name, Mode{Create: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}
