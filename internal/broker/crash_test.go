package broker

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/vfs"
)

// image is the disk as a crash at some step leaves it, and what was
// acknowledged by then.
type image struct {
	step         string
	fs           *vfs.Mem
	acknowledged int           // records, from offset 0 on
	start        record.Offset // of the log, as somebody was told
}

// The whole storage path, write-ahead log, segments, checkpoints and retention,
// is stopped at every write, sync, rename and removal of a scripted run. What
// comes back has every acknowledged record at its offset, in order, once; a
// repeat of the last batch is recognised; and the log goes on.
func TestCrashAtEveryStepOfTheStoragePath(t *testing.T) {
	mem := vfs.NewMem()
	topic := testTopic(nil)
	topic.Config.SegmentBytes = 4 << 10
	var mu sync.Mutex
	var images []image
	var now image
	mem.SetHook(func(op vfs.Op, done bool) {
		if strings.Contains(op.Path, "preparing") || op.Kind == vfs.OpOpen {
			return // zeroes in the background: nothing depends on when
		}
		mu.Lock()
		defer mu.Unlock()
		n := uint64(len(images))
		now.step = fmt.Sprintf("%d: %s %s, done %v", n, op.Kind, op.Path, done)
		for _, c := range []struct {
			policy vfs.CrashPolicy
			name   string
		}{{vfs.CrashLose, "all unsynced lost"}, {vfs.CrashRandom, "torn"}, {vfs.CrashKeep, "killed"}} {
			im := now
			im.step += ", " + c.name
			im.fs = mem.CrashCopy(n, c.policy)
			images = append(images, im)
		}
	})
	r := startOn(t, mem, "/d", topic)
	for i := range int32(24) {
		if res := r.produce(batchOf(5, 2*i, 1000, fmt.Sprintf("%d", 2*i), fmt.Sprintf("%d%s", 2*i+1, strings.Repeat(".", 400)))); res.Err != nil {
			t.Fatal(res.Err)
		}
		mu.Lock()
		now.acknowledged = int(2*i + 2)
		mu.Unlock()
		switch i {
		case 6, 13, 20:
			if err := r.host.Checkpoint(); err != nil {
				t.Fatal(err)
			}
		case 10:
			if err := r.partition().settle(); err != nil {
				t.Fatal(err)
			}
		case 16:
			to, err := r.partition().DeleteRecords(t.Context(), 21)
			if err != nil {
				t.Fatal(err)
			}
			mu.Lock()
			now.start = to
			mu.Unlock()
		}
	}
	r.stop()
	mem.SetHook(nil)
	t.Logf("%d images", len(images))
	for i, im := range images {
		if testing.Short() && i%7 != 0 {
			continue
		}
		checkImage(t, im, topic.Config.SegmentBytes)
		if t.Failed() {
			t.Fatalf("crash at step %s", im.step)
		}
	}
}

func checkImage(t *testing.T, im image, segmentBytes int64) {
	topic := testTopic(nil)
	topic.Config.SegmentBytes = segmentBytes
	r := startOn(t, im.fs, "/d", topic)
	defer r.stop()
	b, err := r.partition().Bounds()
	if err != nil {
		t.Errorf("the partition does not serve: %v", err)
		return
	}
	if b.LogStart < im.start || int(b.HighWatermark) < im.acknowledged {
		t.Errorf("log from %d to %d; acknowledged were a start of %d and %d records", b.LogStart, b.HighWatermark, im.start, im.acknowledged)
		return
	}
	got := r.values(b.LogStart)
	if len(got) != int(b.HighWatermark-b.LogStart) {
		t.Errorf("%d records in [%d, %d)", len(got), b.LogStart, b.HighWatermark)
		return
	}
	for i, v := range got {
		if want := fmt.Sprintf("%d", int(b.LogStart)+i); strings.TrimRight(v, ".") != want {
			t.Errorf("at offset %s stands %.20q", want, v)
			return
		}
	}
	last := int32(b.HighWatermark)
	if last >= 2 {
		repeat := r.produce(batchOf(5, last-2, 1000, fmt.Sprint(last-2), fmt.Sprint(last-1)))
		if repeat.Err != nil || repeat.BaseOffset != b.HighWatermark-2 {
			t.Errorf("a repeat of the last batch is answered with %d, %v", repeat.BaseOffset, repeat.Err)
		}
	}
	if next := r.produce(batchOf(5, last, 1000, "next")); next.Err != nil || next.BaseOffset != b.HighWatermark {
		t.Errorf("the log does not go on: %d, %v", next.BaseOffset, next.Err)
	}
}
