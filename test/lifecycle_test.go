package test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// A node that is asked to stop answers what it has taken, and ends with 0.
func TestStoppingDrainsAndExitsWithZero(t *testing.T) {
	for name, signal := range map[string]syscall.Signal{"SIGTERM": syscall.SIGTERM, "SIGINT": syscall.SIGINT} {
		t.Run(name, func(t *testing.T) {
			n := newNode(t)
			n.createTopic("t", 2)
			cl := n.client(kgo.DefaultProduceTopic("t"), kgo.ProducerLinger(time.Millisecond), kgo.RetryTimeout(time.Minute))
			var acked atomic.Int64
			ctx, cancel := context.WithCancel(context.Background())
			var wg sync.WaitGroup
			wg.Go(func() {
				for ctx.Err() == nil {
					if cl.ProduceSync(ctx, kgo.StringRecord("v")).FirstErr() == nil {
						acked.Add(1)
					}
				}
			})
			eventually(t, 20*time.Second, func() error {
				if acked.Load() < 100 {
					return errors.New("fewer than 100 records")
				}
				return nil
			})
			if err := n.cmd.Process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			if code := n.waitExit(); code != 0 {
				t.Errorf("exit code %d, want 0", code)
			}
			// Before the writer ends: a record whose answer is missing cannot be given up.
			n.start()
			cancel()
			wg.Wait()
			got := n.readAll("t")
			if stored := int64(len(got[0]) + len(got[1])); stored < acked.Load() {
				t.Errorf("%d records are stored, %d were acknowledged", stored, acked.Load())
			}
		})
	}
}

// A stop does not wait for consumers that wait.
func TestStoppingDoesNotWaitForIdleConsumers(t *testing.T) {
	n := newNode(t)
	n.createTopic("t", 1)
	cl := n.client(kgo.ConsumeTopics("t"), kgo.ConsumerGroup("g"), kgo.FetchMaxWait(30*time.Second))
	stableWhilePolling(t, n, cl)
	begin := time.Now()
	if code := n.stop(); code != 0 {
		t.Errorf("exit code %d, want 0", code)
	}
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("stopping took %v", took)
	}
}

func stableWhilePolling(t *testing.T, n *node, cl *kgo.Client) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { cl.PollFetches(ctx) })
	stable(t, n, "g", 1)
	cancel()
	wg.Wait()
}

// refuses starts a node that must not start, and wants words in what it says.
func refuses(t *testing.T, n *node, words ...string) {
	t.Helper()
	n.launch()
	if code := n.waitExit(); code == 0 {
		t.Error("exit code 0, want another")
	}
	for _, w := range words {
		if !n.log.contains(w) {
			t.Errorf("it does not say %q, but:\n%s", w, n.log)
		}
	}
	if n.log.contains("goroutine ") {
		t.Errorf("it panicked:\n%s", n.log)
	}
}

func TestASecondProcessOnTheSameFolderIsRefused(t *testing.T) {
	n := newNode(t)
	refuses(t, prepareNode(t, n.dir), n.dir, "in use")
	n.alive()
	n.mustProduce("t", values(0, 1))
}

func TestAnAddressInUseIsNamed(t *testing.T) {
	n := newNode(t)
	other := prepareNode(t, t.TempDir())
	other.kafka = n.kafka
	refuses(t, other, n.kafka)
}

func TestTheFolderOfAnotherNodeIsRefused(t *testing.T) {
	n := newNode(t)
	n.mustProduce("t", values(0, 10))
	n.stop()
	refuses(t, prepareNode(t, n.dir, "--node-id=2"), "node", "1", "2")
	n.start()
	if got := n.readAll("t"); count(got) != 10 {
		t.Errorf("%d records after a refusal, want 10", count(got))
	}
}

func TestTheFolderOfAnotherClusterIsRefused(t *testing.T) {
	n := newNode(t)
	n.stop()
	refuses(t, prepareNode(t, n.dir, "--cluster-id=00000000-0000-4000-8000-000000000000"), "cluster")
}

func TestANewerFormatIsRefused(t *testing.T) {
	n := newNode(t)
	n.stop()
	path := filepath.Join(n.dir, "meta.properties")
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	changed := regexp.MustCompile(`(?m)^format=\d+$`).ReplaceAllString(string(b), "format=99")
	if changed == string(b) {
		t.Fatalf("no format in meta.properties:\n%s", b)
	}
	if err := os.WriteFile(path, []byte(changed), 0o644); err != nil {
		t.Fatal(err)
	}
	refuses(t, prepareNode(t, n.dir), "99")
}

func TestListeningBeyondThisMachineNeedsConsent(t *testing.T) {
	n := prepareNode(t, t.TempDir())
	n.kafka = "0.0.0.0:0"
	refuses(t, n, "--insecure")
}

func count[T any](m map[int32][]T) (total int) {
	for _, v := range m {
		total += len(v)
	}
	return total
}
