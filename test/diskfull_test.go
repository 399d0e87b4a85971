package test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// smallDisk mounts a file system of the given size in memory.
func smallDisk(t *testing.T, sizeBytes int) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tube-test", dir, "tmpfs", 0, fmt.Sprintf("size=%d", sizeBytes)); err != nil {
		t.Skipf("a small disk cannot be mounted (it takes root): %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Errorf("unmount %s: %v", dir, err)
		}
	})
	return dir
}

// Producers are told to come back later; everything else goes on; when there is
// room again, so does producing.
func TestAFullDiskStopsProducersAloneAndForAWhile(t *testing.T) {
	disk := smallDisk(t, 256<<20)
	// A file of somebody else's takes most of it.
	ballast := filepath.Join(disk, "ballast")
	n := prepareNode(t, filepath.Join(disk, "data"), "--disk-reserve=32MiB", "--wal-file-size=16MiB", "--max-frame-size=8MiB", "--checkpoint-every=64MiB")
	n.start()
	n.createTopic("t", 1)
	n.mustProduce("t", values(0, 100))
	var free syscall.Statfs_t
	if err := syscall.Statfs(disk, &free); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(ballast, make([]byte, int64(free.Bavail)*free.Bsize-48<<20), 0o644); err != nil {
		t.Fatal(err)
	}

	cl := n.client(kgo.DefaultProduceTopic("t"), kgo.RecordRetries(0), kgo.ProducerBatchCompression(kgo.NoCompression()), kgo.DisableIdempotentWrite())
	var refusal error
	acked := 0
	for begin := time.Now(); refusal == nil && time.Since(begin) < time.Minute; {
		r := &kgo.Record{Value: make([]byte, 500_000)}
		if refusal = cl.ProduceSync(timeout(t, 30*time.Second), r).FirstErr(); refusal == nil {
			acked++
		}
	}
	// A client that may not try again says so; that is no other than a retriable error.
	if !kerr.IsRetriable(refusal) && !errors.Is(refusal, kgo.ErrRecordRetries) {
		t.Fatalf("after %d records producing ends with %v, want a retriable error", acked, refusal)
	}
	t.Logf("%d records of 500 kB, then: %v", acked, refusal)
	n.alive()

	if got := count(n.readAll("t")); got != 100+acked {
		t.Errorf("%d records can be read, want %d", got, 100+acked)
	}
	var commit kadm.Offsets
	commit.Add(kadm.Offset{Topic: "t", Partition: 0, At: 50, LeaderEpoch: -1})
	if err := n.admin().CommitAllOffsets(timeout(t, 20*time.Second), "g", commit); err != nil {
		t.Errorf("committing an offset: %v", err)
	}
	n.createTopic("other", 1)
	if _, err := n.admin().DeleteTopic(timeout(t, 20*time.Second), "other"); err != nil {
		t.Errorf("deleting a topic: %v", err)
	}

	if err := os.Remove(ballast); err != nil {
		t.Fatal(err)
	}
	eventually(t, 30*time.Second, func() error { return n.produce("t", values(0, 1)) })
	n.kill()
	n.start()
	if got := count(n.readAll("t")); got < 100+acked+1 {
		t.Errorf("%d records after all that and a kill, want at least %d", got, 100+acked+1)
	}
}

// A disk that is full without a reserve is a failed write: the node stops with a
// clear word and is right after a restart.
func TestANodeThatMetAFullDiskIsRightAfterwards(t *testing.T) {
	disk := smallDisk(t, 128<<20)
	n := prepareNode(t, filepath.Join(disk, "data"), "--disk-reserve=0", "--wal-file-size=16MiB", "--max-frame-size=8MiB", "--checkpoint-every=64MiB")
	n.start()
	n.createTopic("t", 1)
	cl := n.client(kgo.DefaultProduceTopic("t"), kgo.RecordRetries(1), kgo.RecordDeliveryTimeout(5*time.Second), kgo.ProducerBatchCompression(kgo.NoCompression()))
	acked := 0
	var err error
	for acked < 1000 && err == nil {
		if err = cl.ProduceSync(timeout(t, 20*time.Second), &kgo.Record{Value: make([]byte, 500_000)}).FirstErr(); err == nil {
			acked++
		}
	}
	if err == nil {
		t.Fatal("500 MB went into 128 MiB")
	}
	n.kill() // if it has not stopped by itself
	if err := syscall.Mount("", disk, "", syscall.MS_REMOUNT, "size=1g"); err != nil {
		t.Fatal(err)
	}
	n.start()
	if got := count(n.readAll("t")); got < acked {
		t.Errorf("%d records after a restart, %d were acknowledged", got, acked)
	}
	if err := n.produce("t", values(0, 1)); err != nil && !errors.Is(err, kerr.OutOfOrderSequenceNumber) {
		t.Errorf("producing after a restart: %v", err)
	}
}
