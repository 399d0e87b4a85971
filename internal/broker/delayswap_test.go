package broker

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/tube-mq/tube/internal/queue"
	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/vfs"
)

const testSwap = "/d/" + delaySwapFile

// swapRig is a queue whose node has next to no memory for delayed messages.
func swapRig(t *testing.T, fsys vfs.FS, onFail func(error)) *queueRig {
	return withQueue(startWith(t, fsys, "/d", testTopic(nil), Config{ReserveBytes: 1, DelayedBytes: 1, OnFail: onFail}), nil)
}

// later sends messages that are due an hour from now, in any order.
func (q *queueRig) later(n int) {
	q.t.Helper()
	base := time.Now().Add(time.Hour).UnixMilli()
	var list []queue.Outgoing
	for i := range n {
		list = append(list, queue.Outgoing{Value: []byte("x"), KeyNull: true, DeliverAtMillis: base + int64(i*7919%n)})
	}
	q.sendAll(list)
}

func (q *queueRig) delayed() []queue.Delayed {
	q.t.Helper()
	list, err := q.partition().QueueDelayed(0, maxListed)
	if err != nil {
		q.t.Fatal(err)
	}
	return list
}

// Beyond the budget they are on disk, and nobody can tell: they are listed, cancelled and
// moved, are there after a restart and a crash, and come when they are due.
func TestDelayedMessagesAreSwapped(t *testing.T) {
	mem := vfs.NewMem()
	q := swapRig(t, mem, nil)
	const n = 3000
	q.later(n)
	q.lookAtDelays()
	if d := q.DelaySwap(); d.Messages != n || d.MemoryBytes != 0 || d.DiskBytes < 8*n {
		t.Fatalf("%+v", d)
	}
	want := q.delayed()
	p := q.partition()
	if errs := p.QueueCancel(t.Context(), []record.Offset{5, 2000}); errs[0] != nil || errs[1] != nil {
		t.Fatal(errs)
	}
	want = slices.DeleteFunc(want, func(d queue.Delayed) bool { return d.Offset == 5 || d.Offset == 2000 })
	later := time.Now().Add(2 * time.Hour).UnixMilli()
	if err := p.QueueReschedule(t.Context(), 7, later); err != nil {
		t.Fatal(err)
	}
	for i := range want {
		if want[i].Offset == 7 {
			want[i].DueMillis = later
		}
	}
	check := func(when string) {
		t.Helper()
		if got := q.delayed(); !slices.Equal(got, want) {
			t.Fatalf("%s: %d wait, want %d", when, len(got), len(want))
		}
		q.lookAtDelays()
		if d := q.DelaySwap(); d.Messages != int64(len(want)) {
			t.Fatalf("%s: %+v", when, d)
		}
	}
	check("after changes")
	crashed := mem.CrashCopy(1, vfs.CrashKeep)
	if names, err := crashed.List("/d"); err != nil || !slices.Contains(names, delaySwapFile) {
		t.Fatal("the crash leaves no file: the test shows nothing")
	}
	q.stop()
	if names, err := mem.List("/d"); err != nil || slices.Contains(names, delaySwapFile) {
		t.Errorf("after a stop there are %v, %v", names, err)
	}
	for when, disk := range map[string]*vfs.Mem{"after a stop": mem, "after a crash": crashed} {
		q = swapRig(t, disk, nil)
		check(when)
		for _, d := range want[:2] {
			if err := q.partition().QueueReschedule(t.Context(), d.Offset, time.Now().UnixMilli()); err != nil {
				t.Fatal(err)
			}
		}
		got := 0
		for got < 2 {
			more := q.receive("x", 9, 10*time.Second)
			if got += len(more); len(more) == 0 || got > 2 {
				t.Fatalf("%s: %d were due, %d came", when, 2, got)
			}
		}
		q.stop()
	}
}

// What cannot go to disk stays in memory, also what a start finds; new delayed messages
// are refused, others are not; and when there is room all goes on.
func TestDelayedMessagesWhenTheDiskIsFull(t *testing.T) {
	faulty := vfs.NewFaulty(vfs.NewMem())
	q := swapRig(t, faulty, nil)
	q.later(1000)
	q.lookAtDelays()
	full, _ := faulty.Inject(vfs.Fault{Path: testSwap, Ops: vfs.OpWrite, Err: syscall.ENOSPC})
	q.later(600)
	q.lookAtDelays()
	if d := q.DelaySwap(); d.MemoryBytes == 0 {
		t.Fatalf("%+v", d)
	}
	one := []queue.Outgoing{{Value: []byte("x"), Delay: time.Hour}, {Value: []byte("now")}}
	sent := q.partition().QueueSend(t.Context(), one)
	if !errors.Is(sent[0].Err, queue.ErrTooManyDelayed) || sent[1].Err != nil {
		t.Fatalf("%v, %v", sent[0].Err, sent[1].Err)
	}
	q.stop()
	q = swapRig(t, faulty, nil)
	if n := len(q.delayed()); n != 1600 {
		t.Fatalf("%d wait after a start, want 1600", n)
	}
	if sent := q.partition().QueueSend(t.Context(), one[:1]); !errors.Is(sent[0].Err, queue.ErrTooManyDelayed) {
		t.Fatal(sent[0].Err)
	}
	full()
	q.lookAtDelays()
	q.sendAll(one)
	q.lookAtDelays()
	if d := q.DelaySwap(); d.Messages < 1600 {
		t.Errorf("%+v", d)
	}
	q.stop()
}

// A block that is not what was written ends the replica, whoever comes upon it, and a
// start has every message, although other partitions went on, and checkpoints were made.
func TestDamagedDelaysAreMadeAnewByAStart(t *testing.T) {
	uses := map[string]func(p *Partition){
		"listed":       func(p *Partition) { _, _ = p.QueueDelayed(0, 10) },
		"checkpointed": func(p *Partition) {},
		"cancelled":    func(p *Partition) { go p.QueueCancel(t.Context(), []record.Offset{3}) },
		"fired": func(p *Partition) {
			p.queue.submit(errand{ops: []queue.Op{{Kind: queue.OpMove, Offset: 3, DueMillis: 1}}})
		},
	}
	for use, f := range uses {
		t.Run(use, func(t *testing.T) {
			mem := vfs.NewMem()
			failed := make(chan error, 10)
			q := swapRig(t, mem, func(err error) { failed <- err })
			q.later(1000)
			q.lookAtDelays()
			want := q.delayed()
			for slot := range q.DelaySwap().DiskBytes / queue.SwapBlockBytes {
				if err := vfs.FlipBit(mem, testSwap, slot*queue.SwapBlockBytes+100, 3); err != nil {
					t.Fatal(err)
				}
			}
			f(q.partition())
			if use == "checkpointed" {
				if err := q.host.Checkpoint(); err != nil {
					t.Fatal(err)
				}
			}
			select {
			case err := <-failed:
				if !errors.Is(err, queue.ErrSwapDamaged) {
					t.Fatal(err)
				}
			case <-time.After(10 * time.Second):
				t.Fatal("the node is not told")
			}
			if err := q.partition().serving(-1); !errors.Is(err, ErrStorage) {
				t.Errorf("it serves: %v", err)
			}
			for range 3 {
				if err := q.host.Checkpoint(); err != nil {
					t.Fatal(err)
				}
			}
			q.stop()
			q = swapRig(t, mem, nil)
			got := q.delayed()
			if use == "cancelled" || use == "fired" { // committed or not: it is in the log
				got, want = without(got, 3), without(want, 3)
			}
			if !slices.Equal(got, want) {
				t.Errorf("%d wait after a start, want %d", len(got), len(want))
			}
			q.stop()
		})
	}
}

func without(list []queue.Delayed, o record.Offset) []queue.Delayed {
	return slices.DeleteFunc(slices.Clone(list), func(d queue.Delayed) bool { return d.Offset == o })
}

// Of two partitions those messages stay in memory that are due first, and those due soon
// are brought back in the place of others.
func TestThoseDueSoonAreInMemory(t *testing.T) {
	topic := testTopic(nil)
	q := withQueue(startWith(t, vfs.NewMem(), "/d", topic, Config{ReserveBytes: 1, DelayedBytes: 1 << 20}), nil)
	defer q.stop()
	q.later(2000) // far
	hour := q.queues.nowMillis() + time.Hour.Milliseconds()
	q.putDelaysOut(q.inOrder(), 0, 0)
	if d := q.DelaySwap(); d.Messages != 2000 || d.MemoryBytes != 0 {
		t.Fatalf("%+v", d)
	}
	q.delays.budget = 6 * queue.SwapBlockBytes
	p := q.partition()
	q.bringDelaysBack(q.inOrder(), p, hour+10_000)
	if d := q.DelaySwap(); d.MemoryBytes != 0 {
		t.Fatalf("more is brought back than there is room for: %+v", d)
	}
	q.delays.budget = 1 << 20
	for q.bringDelaysBack(q.inOrder(), p, hour+10_000) {
	}
	if d := q.DelaySwap(); d.Messages != 0 {
		t.Fatalf("not all are back: %+v", d)
	}
	written := q.DelaySwap().Written
	q.putDelaysOut(q.inOrder(), 0, hour+10_000_000)
	if d := q.DelaySwap(); d.Messages != 0 {
		t.Fatalf("what is due before the time went: %+v", d)
	}
	q.putDelaysOut(q.inOrder(), 0, 0)
	if d := q.DelaySwap(); d.Messages != 2000 || d.Written != written {
		t.Fatalf("what has a copy is written again: %+v, %d were written", d, written)
	}
}

// The pool uses its slots again, leaves the reserve alone, and gives the disk back.
func TestDelayPool(t *testing.T) {
	mem := vfs.NewMem()
	if err := mem.MkdirAll("/d/data"); err != nil {
		t.Fatal(err)
	}
	mem.SetCapacity(3 << 20)
	p, err := newDelayPool(&Config{FS: mem, Dir: "/d/data", DelayedBytes: 1, ReserveBytes: 1 << 20, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	block := func(i int) []byte { return bytes.Repeat([]byte(fmt.Sprintf("%04d", i)), queue.SwapBlockBytes/4) }
	var slots []queue.Slot
	for i := 0; ; i++ {
		s, err := p.put(block(i))
		if err != nil {
			if !errors.Is(err, ErrDiskFull) {
				t.Fatal(err)
			}
			break
		}
		slots = append(slots, s)
	}
	if free, err := mem.FreeBytes("/d"); err != nil || free < 1<<20 || len(slots) < 500 {
		t.Fatalf("%d bytes left of a reserve of %d, %d blocks: %v", free, 1<<20, len(slots), err)
	}
	mem.SetCapacity(0)
	if _, err := p.put(block(0)); err == nil {
		t.Fatal("it is tried again at once")
	}
	mem.SetCapacity(3 << 20)
	got := make([]byte, queue.SwapBlockBytes)
	for i, s := range slots {
		if err := p.get(s, got); err != nil || !bytes.Equal(got, block(i)) {
			t.Fatalf("block %d: %v", i, err)
		}
	}
	p.give(slots[3])
	p.tryAgain()
	if s, err := p.put(block(3)); err != nil || s != slots[3] {
		t.Fatalf("slot %d, %v", s, err)
	}
	for _, s := range slots {
		p.give(s)
	}
	p.empty()
	if free, err := mem.FreeBytes("/d"); err != nil || free < 3<<20-8192 {
		t.Fatalf("%d bytes free of %d, and no slot is used: %v", free, 3<<20, err)
	}
}
