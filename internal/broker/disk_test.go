package broker

import (
	"errors"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/vfs"
)

// The reserve holds however fast a producer is and whoever else fills the disk:
// it does not depend on the watch, which looks once a second. When there is
// room again producing goes on.
func TestReserveHoldsAgainstAFastProducer(t *testing.T) {
	const (
		reserve = 40 << 20
		slack   = 2*lookAfterBytes + 4<<20 // admitted since the last look, and the log's next file
	)
	mem := vfs.NewMem()
	r := startWith(t, mem, "/d", testTopic(nil), Config{ReserveBytes: reserve})
	defer r.stop()
	defer mem.SetCapacity(0) // before stop, which waits for what is under way
	// Somebody else takes the disk just after it was looked at.
	mem.SetCapacity(110 << 20)
	refused := 0
	for range 400 {
		res := r.produce(batchOf(-1, 0, 1000, string(make([]byte, 500<<10))))
		if errors.Is(res.Err, ErrDiskFull) {
			refused++
			continue
		}
		if res.Err != nil {
			t.Fatal(res.Err)
		}
	}
	if refused == 0 {
		t.Fatal("nothing was refused")
	}
	if err := r.partition().settle(); err != nil {
		t.Fatal(err)
	}
	if free, err := mem.FreeBytes("/d"); err != nil || free < reserve-slack {
		t.Fatalf("%d MiB left of a reserve of %d, %v", free>>20, reserve>>20, err)
	}
	// What needs the reserve goes on.
	if _, err := r.partition().DeleteRecords(t.Context(), record.Offset(1)); err != nil {
		t.Fatal(err)
	}
	mem.SetCapacity(0)
	deadline := time.Now().Add(10 * time.Second)
	for r.produce(batchOf(-1, 0, 1000, "again")).Err != nil {
		if time.Now().After(deadline) {
			t.Fatal("producing does not go on although there is room")
		}
	}
}

// looking counts how often somebody asks how much is free.
type looking struct {
	*vfs.Mem
	looks atomic.Int64
}

func (l *looking) FreeBytes(path string) (int64, error) {
	l.looks.Add(1)
	return l.Mem.FreeBytes(path)
}

// A disk that has room and takes nothing is looked at every five seconds, one that is full
// every second: producing begins again soon.
func TestADiskAtRestIsLookedAtSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs := &looking{Mem: vfs.NewMem()}
		r := startWith(t, fs, "/d", testTopic(nil), Config{ReserveBytes: 40 << 20})
		defer r.stop()
		in := func(d time.Duration) int64 {
			before := fs.looks.Load()
			time.Sleep(d)
			synctest.Wait()
			return fs.looks.Load() - before
		}
		in(10 * time.Second) // the start's own work
		if n := in(30 * time.Second); n > 7 {
			t.Errorf("at rest %d looks in 30 s", n)
		}
		fs.SetCapacity(1 << 20)
		defer fs.SetCapacity(0)
		in(6 * time.Second)
		if r.refusal() == nil {
			t.Fatal("a full disk is not noticed")
		}
		if n := in(10 * time.Second); n < 9 {
			t.Errorf("while it is full %d looks in 10 s", n)
		}
	})
}

// What a full disk did not take is written once there is room, whether or not its partition
// gets more, also if memory is so full that the partition's loop writes by itself.
func TestWhatAFullDiskRefusedIsWrittenLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		disk := vfs.NewFaulty(vfs.NewMem())
		full, _ := disk.Inject(vfs.Fault{Ops: vfs.OpWrite, Path: ".log", Err: syscall.ENOSPC})
		r := startWith(t, disk, "/d", testTopic(nil), Config{ReserveBytes: 1, FlushBytes: 1 << 10, TailBudgetBytes: 2 << 10})
		defer r.stop()
		if res := r.produce(batchOf(-1, 0, 1000, string(make([]byte, 8<<10)))); res.Err != nil {
			t.Fatal(res.Err)
		}
		time.Sleep(3 * fullRetry)
		synctest.Wait()
		if r.partition().log.TailBytes() == 0 {
			t.Fatal("a full disk took it")
		}
		full()
		time.Sleep(2 * fullRetry)
		synctest.Wait()
		if n := r.partition().log.TailBytes(); n > 0 {
			t.Fatalf("%d bytes are in memory still", n)
		}
	})
}
