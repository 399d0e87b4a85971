package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tube-mq/tube/internal/config"
)

// fakeNode listens nowhere and stops when told.
type fakeNode struct {
	done    chan struct{}
	err     error
	stopErr error
	stopped bool
	budget  time.Duration // left of the stop's context
}

func (n *fakeNode) Addrs() config.Addrs {
	return config.Addrs{Kafka: "127.0.0.1:40001", HTTP: "127.0.0.1:40002", Peer: "127.0.0.1:40003"}
}
func (n *fakeNode) Done() <-chan struct{} { return n.done }
func (n *fakeNode) Err() error            { return n.err }
func (n *fakeNode) Stop(ctx context.Context) error {
	n.stopped = true
	if d, ok := ctx.Deadline(); ok && ctx.Err() == nil {
		n.budget = time.Until(d)
	}
	return n.stopErr
}

func swapStart(t *testing.T, f func(cfg *config.Config) (runningNode, error)) {
	t.Helper()
	old := startNode
	startNode = func(_ context.Context, cfg *config.Config, _ *slog.Logger) (runningNode, error) { return f(cfg) }
	t.Cleanup(func() { startNode = old })
}

// buffer is a bytes.Buffer for two goroutines.
type buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *buffer) Write(p []byte) (int, error) { b.mu.Lock(); defer b.mu.Unlock(); return b.b.Write(p) }
func (b *buffer) String() string              { b.mu.Lock(); defer b.mu.Unlock(); return b.b.String() }

func testApp(in io.Reader) (*app, *buffer, *buffer) {
	out, err := new(buffer), new(buffer)
	return &app{in: in, out: out, err: err, program: "tube", now: time.Now, exit: func(int) {}}, out, err
}

func TestStartTellsTheAddressesAndStopsOnASignal(t *testing.T) {
	node := &fakeNode{done: make(chan struct{})}
	ctx, signal := context.WithCancel(context.Background())
	swapStart(t, func(cfg *config.Config) (runningNode, error) {
		if cfg.NodeID != 7 || cfg.AutoCreateTopics || !cfg.Pprof {
			t.Errorf("flags did not arrive: %+v", cfg)
		}
		signal()
		return node, nil
	})
	a, out, log := testApp(nil)
	code := a.run(ctx, []string{"start", "--node-id", "7", "--auto-create-topics=false", "--pprof", "--shutdown-timeout", "1h"})
	if code != exitOK {
		t.Errorf("exit code %d: %s", code, log)
	}
	if !node.stopped || node.budget < 50*time.Minute {
		t.Errorf("stopped %v with %v left: the drain must not inherit the signal", node.stopped, node.budget)
	}
	for _, want := range []string{
		"127.0.0.1:40001", "http://127.0.0.1:40002", "tube topic create orders --kafka 127.0.0.1:40001",
		"tube produce orders", "tube consume orders --from start", "Ctrl-C",
	} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in %s", want, out)
		}
	}
	if !strings.HasPrefix(log.String(), `{"time"`) {
		t.Errorf("not on a terminal, and the log is not JSON: %s", log)
	}
}

func TestStartFailsWithTheNode(t *testing.T) {
	for name, tc := range map[string]struct {
		start func(stop func()) (runningNode, error)
		want  string
	}{
		"cannot start": {func(func()) (runningNode, error) { return nil, errors.New("folder is locked") }, "did not start: folder is locked"},
		"fails later":  {func(func()) (runningNode, error) { return failedNode("fsync: input/output error"), nil }, "the node stopped: fsync: input/output error"},
		"does not drain": {func(stop func()) (runningNode, error) {
			stop()
			return &fakeNode{stopErr: errors.New("took too long")}, nil
		}, "did not stop cleanly: took too long"},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, signal := context.WithCancel(context.Background())
			defer signal()
			swapStart(t, func(*config.Config) (runningNode, error) { return tc.start(signal) })
			a, _, log := testApp(nil)
			if code := a.run(ctx, []string{"start"}); code != exitFailed || !strings.Contains(log.String(), tc.want) {
				t.Errorf("exit code %d, %s", code, log)
			}
		})
	}
}

// stuck is standard error on a disk that hangs.
type stuck struct{ until chan struct{} }

func (s stuck) Write(p []byte) (int, error) { <-s.until; return len(p), nil }

// A node that ends by itself does so although it cannot say why, and although it is
// being stopped.
func TestANodeThatEndsByItselfWaitsForNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, _, _ := testApp(nil)
		until, code := make(chan struct{}), make(chan int, 1)
		a.err, a.exit = stuck{until}, func(c int) { code <- c }
		node := failedNode("the disk hangs")
		swapStart(t, func(*config.Config) (runningNode, error) { return node, nil })
		go func() { _ = a.run(context.Background(), []string{"start"}) }()
		began := time.Now()
		if c := <-code; c != exitFailed || time.Since(began) > 5*time.Second {
			t.Errorf("exit code %d after %v", c, time.Since(began))
		}
		close(until)
	})
	t.Run("while it stops", func(t *testing.T) {
		ctx, signal := context.WithCancel(context.Background())
		node := &hangingNode{fakeNode{done: make(chan struct{})}, make(chan struct{})}
		defer close(node.disk)
		swapStart(t, func(*config.Config) (runningNode, error) { signal(); return node, nil })
		a, _, log := testApp(nil)
		if code := a.run(ctx, []string{"start"}); code != exitFailed || !strings.Contains(log.String(), "the node stopped: the disk hangs") {
			t.Errorf("exit code %d, %s", code, log)
		}
	})
}

// hangingNode waits for its disk when it is to stop, and then ends by itself.
type hangingNode struct {
	fakeNode
	disk chan struct{}
}

func (n *hangingNode) Stop(context.Context) error {
	n.err = errors.New("the disk hangs")
	close(n.done)
	<-n.disk
	return nil
}

func failedNode(why string) *fakeNode {
	n := &fakeNode{done: make(chan struct{}), err: errors.New(why)}
	close(n.done)
	return n
}
