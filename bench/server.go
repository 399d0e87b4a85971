package bench

import (
	"bufio"
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
	"strings"
	"sync"
	"time"
)

// readyTimeout is for a node to be ready, recovery included.
const readyTimeout = 5 * time.Minute

// server is a broker in a process of its own.
type server struct {
	name  string // for reports: null, tube or a peer's
	kafka string // host:port
	http  string // host:port, empty if there is none
	pid   int
	ready time.Duration // from its start
	load  string        // the program that loads it; empty: this one

	cmd    *exec.Cmd
	log    *tailBuffer
	exited chan struct{}
}

// startNull starts a null broker from this program.
func (p program) startNull(ctx context.Context, c NullConfig) (*server, error) {
	cmd := p.command(ctx, "null",
		fmt.Sprint("--partitions=", c.Partitions), fmt.Sprint("--size=", c.RecordBytes),
		fmt.Sprint("--batch-bytes=", c.BatchBytes), fmt.Sprint("--end=", c.EndOffset))
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	s := &server{name: "null", cmd: cmd, log: &tailBuffer{}, exited: make(chan struct{})}
	cmd.Stderr = s.log
	begin := time.Now()
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the null broker: %w", err)
	}
	s.pid = cmd.Process.Pid
	text, err := bufio.NewReader(out).ReadString('\n')
	go func() {
		_, _ = io.Copy(io.Discard, out)
		_ = cmd.Wait()
		close(s.exited)
	}()
	addr, ok := strings.CutPrefix(strings.TrimSpace(text), nullReadyPrefix)
	if err != nil || !ok {
		s.kill()
		return nil, fmt.Errorf("the null broker did not start: %q %s", text, s.log)
	}
	s.kafka, s.ready = addr, time.Since(begin)
	return s, nil
}

// startNode starts a node on dir at free ports and waits until it is ready.
func startNode(ctx context.Context, binary, dir string, flags []string) (*server, error) {
	ports, err := freePorts(3)
	if err != nil {
		return nil, err
	}
	return startNodeAt(ctx, ports, binary, dir, flags)
}

// startNodeAt is startNode at three addresses: Kafka, HTTP, peer.
func startNodeAt(ctx context.Context, ports []string, binary, dir string, flags []string) (*server, error) {
	s := &server{name: "tube", kafka: ports[0], http: ports[1], log: &tailBuffer{}, exited: make(chan struct{})}
	args := append([]string{"start", "--data", dir, "--kafka", ports[0], "--http", ports[1], "--peer", ports[2]}, flags...)
	s.cmd = exec.CommandContext(ctx, binary, args...)
	s.cmd.Stdout, s.cmd.Stderr = s.log, s.log
	dieWithParent(s.cmd)
	begin := time.Now()
	if err := s.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", binary, err)
	}
	s.pid = s.cmd.Process.Pid
	go func() {
		_ = s.cmd.Wait()
		close(s.exited)
	}()
	if err := s.waitReady(ctx, begin); err != nil {
		s.kill()
		return nil, err
	}
	return s, nil
}

func (s *server) waitReady(ctx context.Context, begin time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	client := &http.Client{Timeout: time.Second}
	defer client.CloseIdleConnections()
	for ctx.Err() == nil {
		resp, err := client.Get("http://" + s.http + "/readyz")
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				s.ready = time.Since(begin)
				return nil
			}
		}
		select {
		case <-s.exited:
			return fmt.Errorf("the node ended before it was ready: %s", s.log)
		case <-time.After(2 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	return fmt.Errorf("the node was not ready within %v: %s", readyTimeout, s.log)
}

// kill is kill -9.
func (s *server) kill() {
	_ = s.cmd.Process.Kill()
	<-s.exited
}

// profile saves a CPU profile of the next d and then a heap profile into
// <prefix>.cpu.pprof and <prefix>.heap.pprof. The node has to run with --pprof.
func (s *server) profile(ctx context.Context, prefix string, d time.Duration) error {
	if err := os.MkdirAll(filepath.Dir(prefix), 0o755); err != nil {
		return err
	}
	base := "http://" + s.http + "/debug/pprof/"
	return errors.Join(
		download(ctx, fmt.Sprintf("%sprofile?seconds=%d", base, max(1, int(d.Seconds()))), prefix+".cpu.pprof"),
		download(ctx, base+"heap", prefix+".heap.pprof"))
}

func download(ctx context.Context, url, path string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", url, resp.Status)
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, io.LimitReader(resp.Body, 256<<20))
	return errors.Join(err, f.Close())
}

// freePorts returns loopback addresses that nobody listens on right now.
func freePorts(n int) (addrs []string, err error) {
	for range n {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("find a free port: %w", err)
		}
		defer ln.Close()
		addrs = append(addrs, ln.Addr().String())
	}
	return addrs, nil
}

// tailBuffer keeps the last of what a process wrote, for error messages.
type tailBuffer struct {
	mu sync.Mutex
	b  []byte // guarded by mu
}

const tailBytes = 8 << 10

func (t *tailBuffer) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.b = append(t.b, p...)
	if len(t.b) > 2*tailBytes {
		t.b = append(t.b[:0], t.b[len(t.b)-tailBytes:]...)
	}
	return len(p), nil
}

func (t *tailBuffer) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(bytes.TrimSpace(t.b[max(0, len(t.b)-tailBytes):]))
}
