package broker

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"log/slog"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/replica"
	"github.com/tube-mq/tube/internal/vfs"
)

// sinkFS is a disk that takes no time but for its syncs and keeps nothing that
// is written past the page cache, so that what is measured is the processors' part.
type sinkFS struct {
	*vfs.Mem
	sync time.Duration
}

func (s sinkFS) Open(path string, mode vfs.Mode) (vfs.File, error) {
	f, err := s.Mem.Open(path, mode)
	if err != nil || !mode.Direct {
		return f, err
	}
	return sinkFile{f, s.sync, strings.HasSuffix(path, ".wal")}, nil
}

type sinkFile struct {
	vfs.File
	sync time.Duration
	log  bool
}

func (f sinkFile) WriteAt(p []byte, _ int64) (int, error) { return len(p), nil }
func (f sinkFile) WriteVec([][]byte, int64) error         { return nil }
func (f sinkFile) SyncData() error {
	if f.log {
		time.Sleep(f.sync)
	}
	return nil
}

// BenchmarkProduce has five requests of 1 MB under way, spread over partitions,
// as one client has. One operation is one batch of a record of 1 KiB.
func BenchmarkProduce(b *testing.B) {
	for _, partitions := range []int{16, 1000} {
		b.Run(fmt.Sprintf("partitions=%d", partitions), func(b *testing.B) { benchmarkProduce(b, partitions) })
	}
}

func benchmarkProduce(b *testing.B, partitions int) {
	r := startMany(b, partitions)
	defer r.stop()
	const underWay, requestBytes = 5, 1 << 20
	one := batchOf(7, 0, time.Now().UnixMilli(), string(make([]byte, 1<<10)))
	perRequest := requestBytes / len(one)
	all := make([]*Partition, partitions)
	for i := range all {
		all[i], _ = r.Partition(record.TopicPartition{Topic: r.topic.ID, Partition: record.Partition(i)})
	}
	next, sequences := 0, make([]int32, partitions)
	request := func(n int, wg *sync.WaitGroup) {
		buf := record.NewBuffer(n * len(one))
		wg.Add(n)
		for i := range n {
			batch := buf.B[i*len(one) : (i+1)*len(one) : (i+1)*len(one)]
			copy(batch, one)
			p := next % partitions
			next++
			binary.BigEndian.PutUint32(batch[53:], uint32(sequences[p]))
			sequences[p]++
			binary.BigEndian.PutUint32(batch[17:], crc32.Checksum(batch[21:], record.Castagnoli))
			all[p].Produce(ProduceRequest{Batch: batch, Buf: buf, LeaderEpoch: -1}, func(res ProduceResult) {
				if res.Err != nil {
					b.Error(res.Err)
				}
				wg.Done()
			})
		}
		buf.Release()
	}
	b.ReportAllocs()
	b.ResetTimer()
	began := cpuTime()
	var window [underWay]sync.WaitGroup
	for left, i := b.N, 0; left > 0; i++ {
		wg := &window[i%underWay]
		wg.Wait()
		n := min(left, perRequest)
		request(n, wg)
		left -= n
	}
	for i := range window {
		window[i].Wait()
	}
	b.ReportMetric(float64(cpuTime()-began)/float64(b.N), "cpu-ns/op")
	b.StopTimer()
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// startMany starts a broker with a topic of many partitions.
func startMany(b *testing.B, partitions int) *rig {
	fsys := sinkFS{vfs.NewMem(), time.Millisecond}
	topic := testTopic(func(c *meta.TopicConfig) { c.SegmentBytes = 1 << 30 })
	topic.Partitions = nil
	for i := range partitions {
		topic.Partitions = append(topic.Partitions, meta.Placement{Group: record.Group(1000 + i), Replicas: []meta.Replica{{ID: 1, Node: 1}}})
	}
	logger := slog.New(slog.DiscardHandler)
	host, err := replica.Open(replica.Config{FS: fsys, Dir: "/node", Logger: logger})
	if err != nil {
		b.Fatal(err)
	}
	br, err := New(Config{Node: 1, FS: fsys, Dir: "/node/data", Host: host, Logger: logger})
	if err != nil {
		b.Fatal(err)
	}
	r := &rig{b, fsys, "/node", host, br, topic, &running{br, host}}
	for i := range partitions {
		if err := br.Host(topic, record.Partition(i)); err != nil {
			b.Fatal(err)
		}
	}
	w := make(signal, 1)
	for {
		stop := br.Waiting(w)
		if stop == nil {
			return r
		}
		<-w
		stop()
	}
}
