package wal

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/vfs"
)

func openTest(t *testing.T, cfg Config) (*Log, *Writer) {
	t.Helper()
	log, _, err := Open(cfg, func(Record) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	return log, NewWriter(log)
}

// openAhead opens a log on a disk that can be made to fail; blocks of so many bytes may be
// written ahead of a sync.
func openAhead(t *testing.T, aheadBytes int) (*vfs.Faulty, *Log, *Writer) {
	t.Helper()
	f := vfs.NewFaulty(newMem(t))
	cfg := testConfig(f)
	cfg.AheadBytes = aheadBytes
	log, w := openTest(t, cfg)
	return f, log, w
}

func entry(g record.Group, i record.Index, size int) []Record {
	return []Record{{Kind: KindEntry, Group: g, Index: i, Data: make([]byte, size)}}
}

// slow has the first sync take long, so that what is submitted meanwhile is
// written in one go.
func slow(f *vfs.Faulty) {
	f.Inject(vfs.Fault{Ops: vfs.OpSyncData, Path: ".wal", Times: 1, Delay: time.Second})
}

// What a group was answered is in the order of what it asked for: a batch that
// need not be durable does not overtake one of the same group that must be (a
// vote), nor does a barrier overtake anything.
func TestAnswersOfAGroupKeepTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := vfs.NewFaulty(newMem(t))
		_, w := openTest(t, testConfig(f))
		defer w.Close()
		slow(f)
		var mu sync.Mutex
		var got []string
		submit := func(name string, b Batch) {
			b.Done = func(_ []Position, err error) {
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					name += err.Error()
				}
				got = append(got, name)
			}
			w.Submit(b)
		}
		submit("first", Batch{Records: entry(9, 1, 10), Sync: true})
		synctest.Wait() // it is being synced
		submit("other relaxed", Batch{Records: entry(3, 1, 10)})
		submit("vote", Batch{Records: entry(1, 1, 10), Sync: true})
		submit("relaxed", Batch{Records: entry(1, 2, 10)})
		submit("third relaxed", Batch{Records: entry(2, 1, 10)})
		submit("barrier", Batch{})
		submit("behind barrier", Batch{Records: entry(2, 2, 10)})
		time.Sleep(10 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		at := func(name string) int { return slices.Index(got, name) }
		if len(got) != 7 || at("relaxed") < at("vote") || at("barrier") < at("vote") || at("behind barrier") < at("barrier") {
			t.Errorf("answered in the order %q", got)
		}
		if at("other relaxed") > at("vote") || at("third relaxed") > at("vote") {
			t.Errorf("other groups' relaxed batches waited for a sync: %q", got)
		}
	})
}

// Large blocks are written while the ones before are being synced; but a sync
// covers only what was written before it began.
func TestWhatIsWrittenDuringASyncAwaitsTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, log, w := openAhead(t, 1)
		defer w.Close()
		f.Inject(vfs.Fault{Ops: vfs.OpSyncData, Path: ".wal", Times: 2, Delay: time.Second})
		began := time.Now()
		var mu sync.Mutex
		answered := map[record.Group]time.Duration{}
		submit := func(g record.Group) {
			w.Submit(Batch{Records: entry(g, 1, 5000), Sync: true, Done: func(_ []Position, err error) {
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					t.Error(err)
				}
				answered[g] = time.Since(began)
			}})
		}
		submit(1)
		synctest.Wait() // it is being synced
		written := log.Written()
		submit(2)
		synctest.Wait()
		if log.Written() == written {
			t.Error("the second block waits for the first one's sync")
		}
		time.Sleep(10 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		if answered[1] != time.Second || answered[2] != 2*time.Second {
			t.Errorf("answered after %v and %v, want after a sync of a second each", answered[1], answered[2])
		}
	})
}

// Batches that are large only together go ahead of a long sync once they are.
func TestBatchesThatAreLargeTogetherGoAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, log, w := openAhead(t, 10_000)
		defer w.Close()
		released := make(chan struct{})
		defer close(released)
		f.Inject(vfs.Fault{Ops: vfs.OpSyncData, Path: ".wal", Times: 1, Hold: released})
		submit := func(g record.Group, size int) (written uint64) {
			before := log.Written()
			w.Submit(Batch{Records: entry(g, 1, size), Sync: true, Done: func(_ []Position, err error) {
				if err != nil {
					t.Error(err)
				}
			}})
			synctest.Wait()
			return log.Written() - before
		}
		submit(1, 12_000) // it is being synced
		if n := submit(2, 6_000); n != 0 {
			t.Errorf("%d bytes of a small block are written during a sync", n)
		}
		if n := submit(3, 6_000); n < 12_000 {
			t.Errorf("%d bytes are written once 12,000 wait for a sync", n)
		}
	})
}

// A large block waits for a sync that is no longer than writing it would be, as that would
// hold the sync up; one that is longer it does not await.
func TestALargeBlockLetsAShortSyncPass(t *testing.T) {
	const write = 20 * time.Millisecond
	for _, c := range []struct {
		sync, writtenAfter time.Duration // since the sync began
	}{
		{write / 10, write / 10},
		{10 * write, write},
	} {
		t.Run(c.sync.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := vfs.NewFaulty(newMem(t))
				cfg := testConfig(f)
				ahead(&cfg)
				cfg.FileBytes, cfg.FirstFileBytes = 4<<20, 4<<20
				log, w := openTest(t, cfg)
				defer w.Close()
				f.Inject(vfs.Fault{Ops: vfs.OpWrite, Path: ".wal", Delay: write})
				f.Inject(vfs.Fault{Ops: vfs.OpSyncData, Path: ".wal", Delay: c.sync})
				answers := make(chan error, 50)
				submit := func(i record.Index) {
					w.Submit(Batch{Records: entry(1, i, 5000), Sync: true, Done: func(_ []Position, err error) { answers <- err }})
				}
				for i := range record.Index(40) { // until it knows how long writes take
					submit(i + 1)
					<-answers
				}
				time.Sleep(time.Second) // a mark has been written
				submit(41)
				time.Sleep(write + time.Millisecond) // its sync has begun
				before := log.Written()
				written := func() bool { return log.Written() > before }
				submit(42)
				time.Sleep(c.writtenAfter + write - 2*time.Millisecond)
				if written() {
					t.Error("written while the sync before was under way, or too early")
				}
				time.Sleep(4 * time.Millisecond)
				if !written() {
					t.Error("not written, but for the sync before")
				}
				for range 2 {
					if err := <-answers; err != nil {
						t.Error(err)
					}
				}
			})
		})
	}
}

// What needs no sync, or another file, does not overtake a sync under way.
func TestNothingOvertakesASync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, log, w := openAhead(t, 1)
		defer w.Close()
		slow(f)
		var mu sync.Mutex
		var got []string
		submit := func(name string, b Batch) {
			b.Done = func(_ []Position, err error) {
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					name += err.Error()
				}
				got = append(got, name)
			}
			w.Submit(b)
		}
		submit("vote", Batch{Records: entry(1, 1, 10), Sync: true})
		synctest.Wait() // it is being synced
		files := log.SizeBytes()
		submit("relaxed", Batch{Records: entry(1, 2, 10)})
		synctest.Wait()
		submit("next file", Batch{Records: entry(1, 3, 30<<10), Sync: true})
		synctest.Wait()
		mu.Lock()
		if len(got) > 0 || log.SizeBytes() != files {
			t.Errorf("during the sync %q were answered, the files went from %d to %d bytes", got, files, log.SizeBytes())
		}
		mu.Unlock()
		time.Sleep(10 * time.Second)
		mu.Lock()
		defer mu.Unlock()
		if !slices.Equal(got, []string{"vote", "relaxed", "next file"}) || log.SizeBytes() == files {
			t.Errorf("answered %q, and the files have %d bytes", got, log.SizeBytes())
		}
	})
}

// What asks for no sync and was written behind something that does is not answered
// well if that is lost: it may be a word that stands on it.
func TestNothingIsAnsweredWellBehindAFailedSync(t *testing.T) {
	for _, aheadBytes := range []int{0, 1} {
		t.Run(fmt.Sprint(aheadBytes), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := vfs.NewFaulty(newMem(t))
				cfg := testConfig(f)
				cfg.AheadBytes = aheadBytes
				_, w := openTest(t, cfg)
				defer w.Close()
				released := make(chan struct{})
				broken := errors.New("broken")
				f.Inject(vfs.Fault{Ops: vfs.OpSyncData, Path: ".wal", Times: 1, Hold: released, Err: broken})
				var mu sync.Mutex
				var got []error
				submit := func(b Batch) {
					b.Done = func(_ []Position, err error) {
						mu.Lock()
						defer mu.Unlock()
						got = append(got, err)
					}
					w.Submit(b)
					synctest.Wait()
				}
				submit(Batch{Records: entry(1, 1, 10), Sync: true})
				submit(Batch{Records: entry(1, 2, 10)})
				submit(Batch{})
				close(released)
				time.Sleep(time.Second)
				mu.Lock()
				defer mu.Unlock()
				if len(got) != 3 || slices.ContainsFunc(got, func(err error) bool { return !errors.Is(err, broken) }) {
					t.Errorf("answered %v, want %v three times", got, broken)
				}
			})
		})
	}
}

// A write or sync that failed is the end: it is not tried again, everything from
// then on gets the same error, and the owner is told once.
func TestFailedSyncOrWriteIsFinal(t *testing.T) {
	for _, op := range []vfs.OpKind{vfs.OpWrite, vfs.OpSyncData} {
		t.Run(op.String(), func(t *testing.T) {
			f := vfs.NewFaulty(newMem(t))
			cfg := testConfig(f)
			told := 0
			cfg.OnFail = func(error) { told++ }
			log, w := openTest(t, cfg)
			_, hits := f.Inject(vfs.Fault{Ops: op, Path: fileName(1), Times: 1, Err: syscall.EIO, ShortBytes: 100})
			var first error
			for i := range record.Index(3) {
				done := make(chan error, 1)
				w.Submit(Batch{Records: entry(1, i+1, 100), Sync: true, Done: func(_ []Position, err error) { done <- err }})
				err := <-done
				if !errors.Is(err, syscall.EIO) || first != nil && err != first {
					t.Fatalf("batch %d: %v, before: %v", i, err, first)
				}
				first = err
			}
			if hits() != 1 || told != 1 {
				t.Errorf("struck %d times, owner told %d times", hits(), told)
			}
			if err := log.Forget(Position{File: 99}); !errors.Is(err, syscall.EIO) {
				t.Errorf("Forget after the failure: %v", err)
			}
			if err := w.Close(); !errors.Is(err, syscall.EIO) {
				t.Errorf("Close after the failure: %v", err)
			}
		})
	}
}

// A full disk holds the log up before anything of a batch is written, without
// ending it; a barrier gets through, so that a checkpoint can make room; when
// there is room it goes on by itself.
func TestFullDiskHoldsUpAndRecovers(t *testing.T) {
	t.Run("small blocks", func(t *testing.T) { fullDisk(t, 0) })
	t.Run("written ahead of the sync", func(t *testing.T) { fullDisk(t, 1) })
}

func fullDisk(t *testing.T, aheadBytes int) {
	synctest.Test(t, func(t *testing.T) {
		mem := newMem(t)
		cfg := testConfig(mem)
		cfg.AheadBytes = aheadBytes
		cfg.OnFail = func(err error) { t.Errorf("the log ended: %v", err) }
		log, w := openTest(t, cfg)
		synctest.Wait() // the spare is made
		mem.SetCapacity(1)
		var mu sync.Mutex
		answered := 0
		submit := func(b Batch) {
			b.Done = func(_ []Position, err error) {
				mu.Lock()
				defer mu.Unlock()
				answered++
				if err != nil {
					t.Error(err)
				}
			}
			w.Submit(b)
		}
		const batches = 30 // more than the file and its spare hold
		for i := range record.Index(batches) {
			submit(Batch{Records: entry(1, i+1, 8000), Sync: true})
			synctest.Wait()
		}
		time.Sleep(time.Second)
		mu.Lock()
		held := answered
		mu.Unlock()
		if held == 0 || held == batches {
			t.Fatalf("%d of %d answered on a full disk", held, batches)
		}
		submit(Batch{}) // a group's, which must not be told before what it wrote is there
		submit(Batch{Probe: true})
		time.Sleep(time.Second)
		mu.Lock()
		if answered != held+1 {
			t.Errorf("%d answered on a full disk, want %d and the probe", answered, held)
		}
		mu.Unlock()
		if err := log.Forget(log.Position()); err != nil {
			t.Error(err)
		}
		mem.SetCapacity(0)
		time.Sleep(time.Second)
		mu.Lock()
		if answered != batches+2 {
			t.Errorf("%d of %d answered after there was room", answered, batches+2)
		}
		mu.Unlock()
		if err := w.Close(); err != nil {
			t.Error(err)
		}
		got, rec, err := replayed(mem)
		if err != nil || len(rec.Damage) > 0 || len(got) == 0 || got[len(got)-1].Index != batches {
			t.Errorf("%d records, %v, %v", len(got), rec.Damage, err)
		}
	})
}

// On a full disk a probe says that what was written before has been answered. So
// it waits for the syncer.
func TestAProbeOnAFullDiskAwaitsTheSyncer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mem := newMem(t)
		f := vfs.NewFaulty(mem)
		cfg := testConfig(f)
		cfg.AheadBytes = 1
		log, w := openTest(t, cfg)
		synctest.Wait() // the spare is made
		mem.SetCapacity(1)
		var mu sync.Mutex
		var got []string
		answered := func(want ...string) bool {
			mu.Lock()
			defer mu.Unlock()
			return slices.Equal(got, want)
		}
		submit := func(name string, b Batch) {
			b.Done = func(_ []Position, err error) {
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					t.Error(err)
				}
				got = append(got, name)
			}
			w.Submit(b)
		}
		released := make(chan struct{})
		f.Inject(vfs.Fault{Ops: vfs.OpSyncData, Path: ".wal", Times: 1, Hold: released})
		submit("written", Batch{Records: entry(1, 1, 10), Sync: true})
		synctest.Wait()
		submit("no room", Batch{Records: entry(1, 2, 1<<20), Sync: true})
		submit("of a relaxed group", Batch{})
		submit("probe", Batch{Probe: true})
		time.Sleep(time.Second)
		if !answered() {
			t.Errorf("%q were answered during the sync", got)
		}
		close(released)
		time.Sleep(time.Second)
		if !answered("written", "probe") {
			t.Errorf("%q were answered on a full disk", got)
		}
		if err := log.Forget(log.Position()); err != nil {
			t.Error(err)
		}
		mem.SetCapacity(0)
		time.Sleep(time.Second)
		if !answered("written", "probe", "no room", "of a relaxed group") {
			t.Errorf("%q were answered after there was room", got)
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
}

// A start on a full disk says so, and can be tried again.
func TestOpenOnAFullDisk(t *testing.T) {
	mem := newMem(t)
	mem.SetCapacity(8 << 10)
	if _, _, err := Open(testConfig(mem), nil); !errors.Is(err, ErrFull) {
		t.Fatalf("%v", err)
	}
	mem.SetCapacity(0)
	_, w := openTest(t, testConfig(mem))
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

// Submit blocks while too much waits, and no longer.
func TestQueueIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := vfs.NewFaulty(newMem(t))
		cfg := testConfig(f)
		cfg.QueueBytes = 4000
		_, w := openTest(t, cfg)
		slow(f)
		done := func(_ []Position, err error) {
			if err != nil {
				t.Error(err)
			}
		}
		w.Submit(Batch{Records: entry(1, 1, 10), Sync: true, Done: done})
		synctest.Wait()
		submitted := make(chan int, 10)
		go func() {
			for i := range 6 {
				w.Submit(Batch{Records: entry(1, record.Index(i+2), 1500), Done: done})
				submitted <- i
			}
		}()
		synctest.Wait()
		if n := len(submitted); n != 2 {
			t.Errorf("%d batches of 1500 bytes wait, the limit is 4000 bytes", n)
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if n := len(submitted); n != 6 {
			t.Errorf("%d of 6 submitted", n)
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
	})
}
