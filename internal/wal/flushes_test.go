package wal

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/vfs"
)

// A flush that hangs is seen while it does, with its file; once it has come back
// it counts as the slowest, once.
func TestAFlushIsTimedWhileItHangs(t *testing.T) {
	for _, op := range []vfs.OpKind{vfs.OpWrite, vfs.OpSyncData} {
		t.Run(op.String(), func(t *testing.T) { flushHangs(t, op, 0) })
		t.Run(op.String()+" ahead", func(t *testing.T) { flushHangs(t, op, 1) })
	}
}

func flushHangs(t *testing.T, op vfs.OpKind, aheadBytes int) {
	synctest.Test(t, func(t *testing.T) {
		f, log, w := openAhead(t, aheadBytes)
		defer w.Close()
		released := make(chan struct{})
		release := sync.OnceFunc(func() { close(released) })
		defer release()
		f.Inject(vfs.Fault{Ops: op, Path: ".wal", Times: 1, Hold: released})
		if s := log.Flushes(); !s.Began.IsZero() || s.Slowest != 0 {
			t.Fatalf("before anything was written: %+v", s)
		}
		w.Submit(Batch{Records: entry(1, 1, 10), Sync: true, Done: mustNot(t)})
		synctest.Wait()
		time.Sleep(3 * time.Second)
		if s := log.Flushes(); time.Since(s.Began) != 3*time.Second || s.File != fileName(1) || s.Slowest != 0 {
			t.Fatalf("while it hangs: %+v, that is %v", s, time.Since(s.Began))
		}
		before := log.Flushes().Count
		release()
		synctest.Wait()
		if s := log.Flushes(); !s.Began.IsZero() || s.Slowest != 3*time.Second || s.Count != before+1 {
			t.Fatalf("afterwards: %+v", s)
		}
		if s := log.Flushes(); s.Slowest != 0 {
			t.Fatalf("it is told of twice: %+v", s)
		}
	})
}

// What is written while a sync hangs does not hide that it does, and counts for
// nothing until it is durable; nor does the sync hide a write that hangs longer.
func TestWritesDoNotHideASyncThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, log, w := openAhead(t, 1)
		defer w.Close()
		synced, written := make(chan struct{}), make(chan struct{})
		f.Inject(vfs.Fault{Ops: vfs.OpSyncData, Path: ".wal", Times: 1, Hold: synced})
		submit := func(i record.Index) {
			w.Submit(Batch{Records: entry(1, i, 10), Sync: true, Done: mustNot(t)})
			synctest.Wait()
		}
		submit(1)
		before := log.Flushes().Count
		time.Sleep(time.Second)
		submit(2)
		time.Sleep(time.Second)
		if s := log.Flushes(); time.Since(s.Began) != 2*time.Second || s.Count != before {
			t.Errorf("after a write beside the sync: %+v, that is %v", s, time.Since(s.Began))
		}
		f.Inject(vfs.Fault{Ops: vfs.OpWrite, Path: ".wal", Times: 1, Hold: written})
		submit(3)
		time.Sleep(time.Second)
		if s := log.Flushes(); time.Since(s.Began) != 3*time.Second {
			t.Errorf("while both hang: %+v, that is %v", s, time.Since(s.Began))
		}
		close(synced)
		synctest.Wait() // the second one is synced too
		if s := log.Flushes(); time.Since(s.Began) != time.Second || s.Slowest != 3*time.Second || s.Count != before+2 {
			t.Errorf("while a write hangs alone: %+v, that is %v", s, time.Since(s.Began))
		}
		close(written)
		synctest.Wait()
		if s := log.Flushes(); !s.Began.IsZero() || s.Slowest != time.Second || s.Count != before+3 {
			t.Errorf("afterwards: %+v", s)
		}
	})
}

func mustNot(t *testing.T) func([]Position, error) {
	return func(_ []Position, err error) {
		if err != nil {
			t.Error(err)
		}
	}
}

// While the log is stalled nobody waits for it, and who has much is told to
// refuse it; before and afterwards Submit holds up as ever.
func TestAStalledLogHoldsNobodyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := vfs.NewFaulty(newMem(t))
		cfg := testConfig(f)
		cfg.QueueBytes = 4000
		_, w := openTest(t, cfg)
		released := make(chan struct{})
		f.Inject(vfs.Fault{Ops: vfs.OpSyncData, Path: ".wal", Times: 1, Hold: released})
		w.Submit(Batch{Records: entry(1, 1, 10), Sync: true, Done: mustNot(t)})
		synctest.Wait()
		submitted := make(chan int, 20)
		submit := func(from, to int) {
			for i := from; i < to; i++ {
				w.Submit(Batch{Records: entry(1, record.Index(i+2), 1500), Done: mustNot(t)})
				submitted <- i
			}
		}
		go submit(0, 4)
		synctest.Wait()
		if n := len(submitted); n != 2 || w.Crowded() {
			t.Fatalf("%d batches were taken before the log is stalled, crowded: %v", n, w.Crowded())
		}
		w.Stall(true)
		synctest.Wait()
		if n := len(submitted); n != 4 || !w.Crowded() {
			t.Fatalf("%d of 4 batches were taken although the log is stalled, crowded: %v", n, w.Crowded())
		}
		w.Stall(false)
		go submit(4, 6)
		synctest.Wait()
		if n := len(submitted); n != 4 || w.Crowded() {
			t.Fatalf("%d batches were taken after the stall, crowded: %v", n, w.Crowded())
		}
		close(released)
		synctest.Wait()
		if n := len(submitted); n != 6 {
			t.Fatalf("%d of 6 batches were taken in the end", n)
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
}

// The same while more is written behind the flush that hangs: what the writer has
// taken of it is bounded too.
func TestAStalledLogThatWritesAheadHoldsNobodyUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := vfs.NewFaulty(newMem(t))
		cfg := testConfig(f)
		cfg.QueueBytes, cfg.AheadBytes = 4000, 1
		_, w := openTest(t, cfg)
		released := make(chan struct{})
		f.Inject(vfs.Fault{Ops: vfs.OpSyncData, Path: ".wal", Times: 1, Hold: released})
		const batches = 20
		submitted := make(chan struct{}, batches)
		go func() {
			for i := range record.Index(batches) {
				w.Submit(Batch{Records: entry(1, i+1, 1500), Sync: true, Done: mustNot(t)})
				submitted <- struct{}{}
			}
		}()
		synctest.Wait()
		if n := len(submitted); n < rounds || n >= batches || w.Crowded() {
			t.Fatalf("%d batches were taken before the log is stalled, crowded: %v", n, w.Crowded())
		}
		w.Stall(true)
		synctest.Wait()
		if n := len(submitted); n != batches || !w.Crowded() {
			t.Fatalf("%d of %d batches were taken although the log is stalled, crowded: %v", n, batches, w.Crowded())
		}
		close(released)
		synctest.Wait()
		if w.Crowded() {
			t.Error("it is crowded with nothing waiting")
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A batch that asks for a mark is a flush, although there is nothing to write.
func TestAMarkIsAFlush(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log, w := openTest(t, testConfig(newMem(t)))
		defer w.Close()
		w.Submit(Batch{Sync: true, Done: mustNot(t)})
		synctest.Wait()
		before, syncs := log.Flushes().Count, log.Syncs()
		for range 3 {
			w.Submit(Batch{Sync: true, Mark: true, Done: mustNot(t)})
			synctest.Wait()
		}
		if n := log.Flushes().Count - before; n != 3 || log.Syncs() != syncs+3 {
			t.Fatalf("%d flushes and %d syncs, want 3", n, log.Syncs()-syncs)
		}
		w.Submit(Batch{Sync: true, Done: mustNot(t)})
		synctest.Wait()
		if n := log.Flushes().Count - before; n != 3 {
			t.Fatalf("waiting for nothing counts as a flush: %d", n)
		}
	})
}
