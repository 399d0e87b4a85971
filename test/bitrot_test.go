package test

import (
	"bytes"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// rotten is a node's folder with checkpointed segments, a WAL and a checkpoint,
// written once and copied for each case.
func rotten(t *testing.T) (n *node, records int) {
	t.Helper()
	n = newNode(t, "--wal-file-size=16MiB", "--max-frame-size=8MiB", "--checkpoint-every=64MiB")
	n.createTopic("t", 2, "segment.bytes", "10000000")
	value := make([]byte, 50_000)
	for i := range value {
		value[i] = byte(rand.Uint32())
	}
	// More than a checkpoint's worth, so that there is one, and some after it.
	const total = 3000
	var batch []*kgo.Record
	for i := range total {
		batch = append(batch, &kgo.Record{Partition: int32(i % 2), Key: fmt.Append(nil, i), Value: value})
		if len(batch) == 100 {
			n.mustProduce("t", batch, kgo.ProducerBatchCompression(kgo.NoCompression()))
			batch = batch[:0]
		}
	}
	return n, total
}

// files returns the data files below the folder whose path matches, sorted.
func files(t *testing.T, dir string, match func(string) bool) (found []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && match(path) {
			found = append(found, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(found)
	return found
}

// flip inverts one bit of what a file holds, at the fraction at of its used part.
func flip(t *testing.T, path string, at float64) (offset int) {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	used := len(bytes.TrimRight(b, "\x00"))
	if used == 0 {
		t.Skipf("%s is empty", path)
	}
	offset = min(int(at*float64(used)), used-1)
	b[offset] ^= 0x10
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
	return offset
}

// After a flipped bit a node says which file, or repairs what can be made again;
// what it serves is right; what it does not serve, it answers with an error and
// not with the end of the partition.
func TestFlippedBitsAreFoundAndNeverServed(t *testing.T) {
	source, records := rotten(t)
	if code := source.stop(); code != 0 {
		t.Fatalf("stop: exit code %d", code)
	}
	want := map[int32]map[int64][]byte{}
	source.start()
	for partition, got := range source.readAll("t") {
		want[partition] = map[int64][]byte{}
		for _, r := range got {
			want[partition][r.Offset] = append(slices.Clone(r.Key), r.Value...)
		}
	}
	source.kill() // leaves a WAL that has to be read
	kinds := map[string]func(string) bool{
		"segment":    func(p string) bool { return strings.HasSuffix(p, ".log") },
		"index":      func(p string) bool { return strings.HasSuffix(p, ".index") },
		"time index": func(p string) bool { return strings.HasSuffix(p, ".timeindex") },
		"wal":        func(p string) bool { return strings.HasSuffix(p, ".wal") },
		"checkpoint": func(p string) bool { return strings.Contains(p, "checkpoint") },
		"identity":   func(p string) bool { return strings.HasSuffix(p, "meta.properties") },
	}
	for kind, match := range kinds {
		for _, at := range []float64{0, 0.3, 0.6, 0.999} {
			t.Run(fmt.Sprintf("%s at %g", kind, at), func(t *testing.T) {
				dir := t.TempDir()
				if err := os.CopyFS(filepath.Join(dir, "data"), os.DirFS(source.dir)); err != nil {
					t.Fatal(err)
				}
				dir = filepath.Join(dir, "data")
				_ = os.Remove(filepath.Join(dir, "LOCK"))
				found := files(t, dir, match)
				if len(found) == 0 {
					t.Fatalf("no file is a %s", kind)
				}
				path := found[0]
				offset := flip(t, path, at)
				n := prepareNode(t, dir, source.flags...)
				checkRotten(t, n, kind, path, offset, want, records)
			})
		}
	}
}

// checkRotten starts a node on damaged files: it may refuse to, naming the file;
// if it starts, everything it serves must be right, and what is missing must be
// an error that its log explains.
func checkRotten(t *testing.T, n *node, kind, path string, offset int, want map[int32]map[int64][]byte, records int) {
	t.Helper()
	named := func() bool { return n.log.contains(filepath.Base(path)) }
	n.launch()
	if err := n.waitReady(); err != nil {
		select {
		case <-n.exited:
		default:
			t.Fatal(err)
		}
		if n.log.contains("goroutine ") {
			t.Errorf("it panicked:\n%s", n.log)
		}
		if !named() {
			t.Errorf("%s damaged at %d: it does not start and does not name the file:\n%s", path, offset, n.log)
		}
		if kind == "index" || kind == "time index" {
			t.Errorf("a damaged %s is no reason not to start: it can be made again", kind)
		}
		return
	}
	served, failures := 0, 0
	for partition, all := range want {
		got, err := readWhatIsThere(t, n, partition, all)
		if err != nil {
			failures++
			t.Logf("partition %d: %d of %d records, then %v", partition, got, len(all), err)
		}
		served += got
	}
	failed := failures > 0
	switch {
	case served < records && !failed:
		t.Errorf("%s damaged at %d: %d of %d records are served, and the rest is silence", path, offset, served, records)
	case served < records && !named():
		t.Errorf("%s damaged at %d: %d of %d records are served, and the log does not name the file", path, offset, served, records)
	}
	t.Logf("%s damaged at %d: %d of %d records served, an error for the rest: %v, named in the log: %v", filepath.Base(path), offset, served, records, failed, named())
}

// readWhatIsThere reads a partition up to its end as it was or to the first error.
func readWhatIsThere(t *testing.T, n *node, partition int32, want map[int64][]byte) (got int, err error) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(n.kafka), kgo.KeepRetryableFetchErrors(),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"t": {partition: kgo.NewOffset().At(0)}}))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ctx := timeout(t, 5*time.Second)
	for got < len(want) && ctx.Err() == nil {
		fetches := cl.PollFetches(ctx)
		fetches.EachRecord(func(r *kgo.Record) {
			if !bytes.Equal(want[r.Offset], append(slices.Clone(r.Key), r.Value...)) {
				t.Errorf("partition %d offset %d is served with wrong bytes", partition, r.Offset)
			}
			got++
		})
		if ferr := fetches.Err(); ferr != nil && ctx.Err() == nil {
			// Right after the start a partition may only be on its way to having a leader.
			if err = ferr; !kerr.IsRetriable(ferr) {
				return got, err
			}
		} else if fetches.NumRecords() > 0 {
			err = nil
		}
	}
	return got, err
}

// Half a record after the end of the WAL is what a power cut leaves: cut, said, started.
func TestGarbageAfterTheEndOfTheWALIsCut(t *testing.T) {
	for name, tail := range map[string][]byte{"garbage": bytes.Repeat([]byte{0xa5}, 1000), "a few bytes": {1, 2, 3}} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.createTopic("t", 1)
			n.mustProduce("t", values(0, 100))
			n.kill()
			wals := files(t, n.dir, func(p string) bool { return strings.HasSuffix(p, ".wal") })
			last, used := "", 0
			for _, w := range wals {
				b, err := os.ReadFile(w)
				if err != nil {
					t.Fatal(err)
				}
				if u := len(bytes.TrimRight(b, "\x00")); u > 0 {
					last, used = w, u
				}
			}
			f, err := os.OpenFile(last, os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			// Past the block that the last record ends in, which may be padded.
			if _, err := f.WriteAt(tail, int64(used+4095)/4096*4096); err != nil {
				t.Fatal(err)
			}
			f.Close()
			n.start()
			if got := n.readAll("t")[0]; len(got) != 100 {
				t.Errorf("%d records, want 100", len(got))
			}
			n.mustProduce("t", values(100, 110))
			n.kill()
			n.start()
			if got := n.readAll("t")[0]; len(got) != 110 || string(got[109].Value) != "value 109" {
				t.Errorf("%d records, want 110", len(got))
			}
		})
	}
}
