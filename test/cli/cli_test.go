// Package cli runs sessions of the command line against a real node: those of
// internal/cli/testdata/script, and those in testdata that need one; and those in
// testdata/cluster against a cluster of real nodes.
package cli

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
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// patience is how long a node may take to start or to stop.
const patience = 30 * time.Second

func TestSessions(t *testing.T) {
	bin := t.TempDir()
	if out, err := exec.Command("go", "build", "-o", filepath.Join(bin, "tube"), "../../cmd/tube").CombinedOutput(); err != nil {
		t.Skipf("cmd/tube cannot be built: %v\n%s", err, out)
	}
	probe, err := start(filepath.Join(bin, "tube"), t.TempDir())
	if err != nil {
		if strings.Contains(err.Error(), "no node in it") {
			t.Skip("this build has no node in it")
		}
		t.Fatal(err)
	}
	if err := probe.stop(); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"../../internal/cli/testdata/script", "testdata"} {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			testscript.Run(t, testscript.Params{
				Dir:       dir,
				Cmds:      map[string]func(*testscript.TestScript, bool, []string){"exits": exits},
				Condition: func(name string) (bool, error) { return false, nil },
				Setup: func(e *testscript.Env) error {
					e.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
					n, err := start(filepath.Join(bin, "tube"), filepath.Join(e.WorkDir, "data"))
					if err != nil {
						return err
					}
					e.Defer(func() {
						if err := n.stop(); err != nil {
							t.Error(err)
						}
					})
					e.Setenv("TUBE_KAFKA", n.kafka)
					e.Setenv("TUBE_HTTP", n.http)
					return nil
				},
			})
		})
	}
}

// exits CODE COMMAND... runs a command that must end with that exit code.
func exits(ts *testscript.TestScript, _ bool, args []string) {
	err := ts.Exec(args[1], args[2:]...)
	var e *exec.ExitError
	if !errors.As(err, &e) || strconv.Itoa(e.ExitCode()) != args[0] {
		ts.Fatalf("want exit code %s, have %v", args[0], err)
	}
}

type node struct {
	cmd         *exec.Cmd
	out         *output
	kafka, http string
	ended       chan error // has what the process ended with, once
}

// output is what a process writes, for two goroutines.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// start runs a node on free ports of this machine until it is ready.
func start(binary, data string) (*node, error) {
	addrs, err := freeAddrs(3)
	if err != nil {
		return nil, err
	}
	n := &node{kafka: addrs[0], http: addrs[1], out: new(output)}
	n.cmd = exec.Command(binary, "start", "--data", data, "--kafka", addrs[0], "--http", addrs[1], "--peer", addrs[2])
	n.cmd.Stdout, n.cmd.Stderr = n.out, n.out
	if err := n.cmd.Start(); err != nil {
		return nil, err
	}
	n.ended = make(chan error, 1)
	go func() { n.ended <- n.cmd.Wait() }()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for !ready(ctx, n.http) {
		select {
		case err := <-n.ended:
			return nil, fmt.Errorf("the node ended: %v\n%s", err, n.out)
		case <-ctx.Done():
			_ = n.cmd.Process.Kill()
			<-n.ended
			return nil, fmt.Errorf("the node is not ready after %v\n%s", patience, n.out)
		case <-time.After(20 * time.Millisecond):
		}
	}
	return n, nil
}

func ready(ctx context.Context, addr string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/readyz", nil)
	if err != nil {
		return false
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	return resp.StatusCode == http.StatusOK
}

// stop asks the node to drain, which must end with exit code 0.
func (n *node) stop() error {
	if err := n.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case err := <-n.ended:
		if err != nil {
			return fmt.Errorf("after SIGTERM: %v\n%s", err, n.out)
		}
		return nil
	case <-time.After(patience):
		_ = n.cmd.Process.Kill()
		<-n.ended
		return fmt.Errorf("no end %v after SIGTERM\n%s", patience, n.out)
	}
}

// freeAddrs finds ports that are free now; all are held until the last is found.
func freeAddrs(n int) ([]string, error) {
	var out []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		out = append(out, l.Addr().String())
	}
	return out, nil
}
