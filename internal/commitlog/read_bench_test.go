package commitlog

import (
	"syscall"
	"testing"
	"time"

	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/vfs"
)

// BenchmarkRead reads a log of batches of about 1 MB in sequence from the page
// cache, 1 MiB at a time as consumers do, and reports the processor time of a MiB.
func BenchmarkRead(b *testing.B) {
	record.PoisonReleased(false)
	defer record.PoisonReleased(true)
	l := openLog(b, Config{FS: vfs.OS{}, Dir: b.TempDir() + "/log"}, 0)
	defer l.Close()
	batch, err := record.Encode(record.BatchOptions{}, []record.Record{{Value: make([]byte, 999_000)}})
	must(b, err)
	h, err := record.Check(batch, record.Limits{})
	must(b, err)
	for ; h.BaseOffset < 128; h.BaseOffset++ {
		must(b, l.Append(batch, h, nil))
	}
	must(b, l.Flush())
	must(b, l.Sync())
	read := func() (sum int) {
		for o := record.Offset(0); o < h.BaseOffset; {
			c, err := l.Read(o, 1<<20, true, h.BaseOffset)
			must(b, err)
			sum += c.SizeBytes
			c.Release()
			o++
		}
		return sum
	}
	read() // into the page cache
	b.ResetTimer()
	began, sum := processorTime(b), 0
	for b.Loop() {
		sum += read()
	}
	b.ReportMetric(float64(processorTime(b)-began)/(float64(sum)/(1<<20)), "cpu-ns/MiB")
}

func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	must(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
