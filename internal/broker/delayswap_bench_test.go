package broker

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/tube-mq/tube/internal/queue"
	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/vfs"
)

// What delayed messages cost whose index is on disk, but for a mebibyte: memory, and
// processor time for adding, for writing them for a checkpoint, and for firing 200 at a time,
// which reads what is due.
func BenchmarkSwappedDelays(b *testing.B) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, n := range []int64{1_000_000, 10_000_000} {
		for name, due := range map[string]func(i int64) int64{
			"in order":  func(i int64) int64 { return 1000 + i/20 },
			"any order": func(int64) int64 { return 1000 + random.Int64N(n/20) },
		} {
			b.Run(fmt.Sprintf("%d/%s", n, name), func(b *testing.B) {
				for b.Loop() {
					benchmarkSwapped(b, n, due)
				}
			})
		}
	}
}

func benchmarkSwapped(b *testing.B, n int64, due func(i int64) int64) {
	pool, err := newDelayPool(&Config{FS: vfs.OS{}, Dir: filepath.Join(b.TempDir(), "data"), DelayedBytes: 1 << 20, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	before := heapInUse()
	s := queue.NewState()
	s.SwapTo(delaySwap{pool, nil})
	per := func(began time.Duration, unit string) {
		b.ReportMetric(float64((processorTime()-began).Nanoseconds())/float64(n), unit)
	}
	began := processorTime()
	for base := int64(0); base < n; base += 1000 {
		a := queue.Annexe{ClockMillis: 1}
		for i := range int64(1000) {
			a.Delays = append(a.Delays, queue.AnnexeDelay{Delta: int32(i), DueMillis: due(base + i)})
		}
		s.Batch(&a, record.Offset(base), nil)
	}
	per(began, "ns-add/message")
	b.ReportMetric(float64(heapInUse()-before)/float64(n), "B-memory/message")
	b.ReportMetric(float64(pool.used.Load()*queue.SwapBlockBytes)/float64(n), "B-disk/message")
	began = processorTime()
	_ = s.Append(nil)
	per(began, "ns-save/message")
	began = processorTime()
	var longest time.Duration
	for now := int64(1000); s.DelayedCount() > 0; now += 10 {
		once := time.Now()
		if _, err := s.Apply(queue.AppendCommand(nil, now, []queue.Op{{Kind: queue.OpTick}}), record.Offset(n)); err != nil || s.Err() != nil {
			b.Fatal(err, s.Err())
		}
		longest = max(longest, time.Since(once))
	}
	per(began, "ns-fire/message")
	b.ReportMetric(float64(longest.Microseconds()), "µs-longest")
	pool.end()
}

// processorTime is what the process has used, of all processors.
func processorTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // fails with a wrong argument only
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func heapInUse() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
