package test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// How long processes may take before a test gives up on them.
const (
	readyTimeout = 30 * time.Second
	stopTimeout  = 40 * time.Second
)

// tubeBinary is the program under test; empty when it could not be built, for the
// reason in noBinary.
var tubeBinary, noBinary string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	if tubeBinary = os.Getenv("TEST_TUBE"); tubeBinary != "" {
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "tube-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	tubeBinary = filepath.Join(dir, "tube")
	build := exec.Command("go", "build", "-o", tubeBinary, "github.com/tube-mq/tube/cmd/tube")
	if out, err := build.CombinedOutput(); err != nil {
		tubeBinary, noBinary = "", fmt.Sprintf("cmd/tube does not build: %v\n%s", err, out)
	}
	return m.Run()
}

// node is a Tube process on a data folder. It may be killed and started again;
// its addresses stay.
type node struct {
	t                 *testing.T
	dir               string // data folder
	flags             []string
	kafka, http, peer string // host:port
	started           bool
	prefix            []string // runs the program somewhere else, see network
	away              bool     // runs, but is paused or cut off

	cmd    *exec.Cmd
	exited chan struct{} // closed when cmd has ended
	log    *logBuffer
	shared *kgo.Client // see mustProduceOne
}

// newNode starts a node on an empty folder and waits until it is ready.
func newNode(t *testing.T, flags ...string) *node {
	t.Helper()
	n := prepareNode(t, t.TempDir(), flags...)
	n.start()
	return n
}

// prepareNode gives a node addresses and a folder but does not start it.
func prepareNode(t *testing.T, dir string, flags ...string) *node {
	t.Helper()
	if tubeBinary == "" {
		t.Skip(noBinary)
	}
	n := &node{t: t, dir: dir, flags: flags, log: &logBuffer{}}
	n.kafka, n.http, n.peer = freePort(t), freePort(t), freePort(t)
	t.Cleanup(func() {
		n.kill()
		if t.Failed() {
			t.Logf("what the node said last:\n%s", n.log)
		}
	})
	return n
}

// launch starts the process and does not wait.
func (n *node) launch() {
	n.t.Helper()
	args := append([]string{"start", "--data", n.dir, "--kafka", n.kafka, "--http", n.http, "--peer", n.peer}, n.flags...)
	argv := append(append(slices.Clone(n.prefix), tubeBinary), args...)
	n.cmd = exec.Command(argv[0], argv[1:]...)
	n.cmd.Stdout, n.cmd.Stderr = n.log, n.log
	if dir := os.Getenv("TEST_LOGS"); dir != "" {
		name := strings.NewReplacer("/", "_", ":", "_").Replace(n.t.Name() + "-" + n.kafka + ".log")
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			n.t.Fatal(err)
		}
		n.t.Cleanup(func() { f.Close() })
		both := io.MultiWriter(n.log, f)
		n.cmd.Stdout, n.cmd.Stderr = both, both
	}
	n.cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "TUBE_") }) // settings
	n.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := n.cmd.Start(); err != nil {
		n.t.Fatalf("start the node: %v", err)
	}
	exited := make(chan struct{})
	n.exited = exited
	cmd := n.cmd
	go func() {
		_ = cmd.Wait()
		close(exited)
	}()
	n.started = true
}

// start starts the process and waits until it is ready.
func (n *node) start() {
	n.t.Helper()
	n.launch()
	if err := n.waitReady(); err != nil {
		n.t.Fatalf("%v; it said:\n%s", err, n.log)
	}
}

func (n *node) waitReady() error {
	client := &http.Client{Timeout: time.Second, Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	for deadline := time.Now().Add(readyTimeout); time.Now().Before(deadline); {
		resp, err := client.Get("http://" + n.http + "/readyz")
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return nil
			}
		}
		select {
		case <-n.exited:
			return fmt.Errorf("the node ended before it was ready, with %v", n.cmd.ProcessState)
		case <-time.After(5 * time.Millisecond):
		}
	}
	return fmt.Errorf("the node was not ready within %v", readyTimeout)
}

// kill is kill -9; it may be called when nothing runs.
func (n *node) kill() {
	if !n.started {
		return
	}
	_ = n.cmd.Process.Kill() // a paused process dies as well
	<-n.exited
	n.started = false
}

// stop asks the node to end and returns its exit code.
func (n *node) stop() int {
	n.t.Helper()
	_ = n.cmd.Process.Signal(syscall.SIGTERM)
	return n.waitExit()
}

// waitExit waits until the process has ended by itself and returns its exit code.
func (n *node) waitExit() int {
	n.t.Helper()
	select {
	case <-n.exited:
	case <-time.After(stopTimeout):
		n.t.Fatalf("the node did not end within %v; it said:\n%s", stopTimeout, n.log)
	}
	n.started = false
	return n.cmd.ProcessState.ExitCode()
}

// alive fails the test if the process has ended.
func (n *node) alive() {
	n.t.Helper()
	select {
	case <-n.exited:
		n.t.Fatalf("the node has ended with %v; it said:\n%s", n.cmd.ProcessState, n.log)
	default:
	}
}

// use makes a subtest the one that fails, and that clients end with.
func (n *node) use(t *testing.T) {
	before := n.t
	n.t = t
	t.Cleanup(func() { n.t = before })
}

// client connects a franz-go client, closed with the test.
func (n *node) client(opts ...kgo.Opt) *kgo.Client {
	n.t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(n.kafka)}, opts...)...)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(cl.Close)
	return cl
}

func (n *node) admin() *kadm.Client {
	n.t.Helper()
	return kadm.NewClient(n.client())
}

// createTopic creates a topic; settings are name, value, name, value, …
func (n *node) createTopic(name string, partitions int32, settings ...string) {
	n.t.Helper()
	configs := map[string]*string{}
	for i := 0; i+1 < len(settings); i += 2 {
		configs[settings[i]] = &settings[i+1]
	}
	if _, err := n.admin().CreateTopic(timeout(n.t, 30*time.Second), partitions, 1, configs, name); err != nil {
		n.t.Fatalf("create topic %s: %v", name, err)
	}
}

// readAll reads every partition of a topic to its present end and returns the
// records of each in the order they came.
func (n *node) readAll(topic string, opts ...kgo.Opt) map[int32][]*kgo.Record {
	n.t.Helper()
	ctx := timeout(n.t, 2*time.Minute)
	var ends, starts kadm.ListedOffsets
	eventually(n.t, 20*time.Second, func() (err error) { // leaders may change just now
		adm := n.admin()
		if ends, err = adm.ListEndOffsets(ctx, topic); err == nil {
			starts, err = adm.ListStartOffsets(ctx, topic)
		}
		if err = errors.Join(err, ends.Error(), starts.Error()); err != nil {
			return fmt.Errorf("bounds of %s: %w", topic, err)
		}
		return nil
	})
	left := map[int32]int64{} // partition → end offset, while not reached
	ends.Each(func(end kadm.ListedOffset) {
		if start, _ := starts.Lookup(topic, end.Partition); start.Offset < end.Offset {
			left[end.Partition] = end.Offset
		}
	})
	cl, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(n.kafka), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart())}, opts...)...)
	if err != nil {
		n.t.Fatal(err)
	}
	defer cl.Close()
	got := map[int32][]*kgo.Record{}
	for len(left) > 0 {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			n.t.Fatalf("read %s, with %v left to reach: %v", topic, left, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			got[r.Partition] = append(got[r.Partition], r)
			if r.Offset+1 >= left[r.Partition] {
				delete(left, r.Partition)
			}
		})
	}
	return got
}

// timeout is a context that ends with the test or after d.
func timeout(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// eventually polls until the condition holds; it returns what is still wrong, or
// nil when all is well.
func eventually(t *testing.T, within time.Duration, condition func() error) {
	t.Helper()
	var err error
	for deadline := time.Now().Add(within); ; {
		if err = condition(); err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after %v still: %v", within, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// lastPort is the port that freePort gave last. They begin somewhere below those
// that the system gives to outgoing connections: one of those, which the nodes of a
// cluster make at once, would take a port away before its node listens.
var lastPort atomic.Int32

func init() { lastPort.Store(int32(os.Getpid() % 10_000)) }

// freePort is a loopback address that nobody listens on right now, another one for
// each call.
func freePort(t *testing.T) string {
	t.Helper()
	for range 10_000 {
		addr := fmt.Sprintf("127.0.0.1:%d", 10_000+lastPort.Add(1)%10_000)
		if ln, err := net.Listen("tcp", addr); err == nil {
			_ = ln.Close()
			return addr
		}
	}
	t.Fatal("no port is free")
	return ""
}

// logBuffer keeps the last of what a process wrote.
type logBuffer struct {
	mu sync.Mutex
	b  []byte // guarded by mu
}

const logBytes = 64 << 10

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.b = append(l.b, p...)
	if len(l.b) > 2*logBytes {
		l.b = append(l.b[:0], l.b[len(l.b)-logBytes:]...)
	}
	return len(p), nil
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return string(bytes.TrimSpace(l.b))
}

func (l *logBuffer) contains(part string) bool {
	return strings.Contains(strings.ToLower(l.String()), strings.ToLower(part))
}
