package cli

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
)

// clusterPatience is how long the cluster may take for what it does by itself.
const clusterPatience = 60 * time.Second

// Each session has a cluster of its own, with as many nodes as the folder's name
// says. In it:
//
//	until PATTERN COMMAND...   runs a command until its output matches
//	stop-node N                stops a node, as SIGTERM does
//	kill-node N                kills it
func TestClusterSessions(t *testing.T) {
	bin := t.TempDir()
	if out, err := exec.Command("go", "build", "-o", filepath.Join(bin, "tube"), "../../cmd/tube").CombinedOutput(); err != nil {
		t.Fatalf("cmd/tube cannot be built: %v\n%s", err, out)
	}
	for _, nodes := range []int{3, 4} {
		t.Run(strconv.Itoa(nodes), func(t *testing.T) {
			testscript.Run(t, testscript.Params{
				Dir: filepath.Join("testdata/cluster", strconv.Itoa(nodes)),
				Cmds: map[string]func(*testscript.TestScript, bool, []string){
					"exits": exits, "until": until, "stop-node": signalNode(syscall.SIGTERM), "kill-node": signalNode(syscall.SIGKILL),
				},
				Setup: func(e *testscript.Env) error {
					e.Setenv("PATH", bin+string(os.PathListSeparator)+os.Getenv("PATH"))
					c, err := startCluster(filepath.Join(bin, "tube"), filepath.Join(e.WorkDir, "data"), nodes)
					if err != nil {
						return err
					}
					e.Defer(func() {
						if err := c.stop(); err != nil {
							t.Error(err)
						}
					})
					var kafka, http []string
					for _, n := range c.nodes {
						kafka, http = append(kafka, n.Kafka), append(http, n.HTTP)
						e.Setenv(fmt.Sprintf("PID_%d", n.ID), strconv.Itoa(n.PID))
					}
					e.Setenv("TUBE_KAFKA", strings.Join(kafka, ","))
					e.Setenv("TUBE_HTTP", strings.Join(http, ","))
					return nil
				},
			})
		})
	}
}

// runningCluster is a "tube cluster local".
type runningCluster struct {
	node
	nodes []struct {
		ID    int    `json:"node_id"`
		Kafka string `json:"kafka_address"`
		HTTP  string `json:"http_address"`
		PID   int    `json:"pid"`
	}
}

func startCluster(binary, dir string, nodes int) (*runningCluster, error) {
	c := &runningCluster{node: node{out: new(output), ended: make(chan error, 1)}}
	c.cmd = exec.Command(binary, "cluster", "local", "--free-ports", "--json", "--dir", dir, "--nodes", strconv.Itoa(nodes))
	c.cmd.Stderr = c.out
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	lines := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(stdout).ReadString('\n')
		lines <- line
		_, _ = io.Copy(io.Discard, stdout)
		c.ended <- c.cmd.Wait()
	}()
	select {
	case line := <-lines:
		if err := json.Unmarshal([]byte(line), &c.nodes); err != nil {
			_ = c.stop()
			return nil, fmt.Errorf("the cluster did not start: %q %w\n%s", line, err, c.out)
		}
		return c, nil
	case <-time.After(clusterPatience):
		_ = c.stop()
		return nil, fmt.Errorf("no cluster after %v\n%s", clusterPatience, c.out)
	}
}

func until(ts *testscript.TestScript, _ bool, args []string) {
	pattern, err := regexp.Compile("(?m)" + args[0])
	ts.Check(err)
	for end := time.Now().Add(clusterPatience); ; time.Sleep(100 * time.Millisecond) {
		err := ts.Exec(args[1], args[2:]...)
		if out := ts.ReadFile("stdout"); pattern.MatchString(out) {
			return
		}
		if time.Now().After(end) {
			ts.Fatalf("no %q after %v; the last time: %v", args[0], clusterPatience, err)
		}
	}
}

func signalNode(sig syscall.Signal) func(*testscript.TestScript, bool, []string) {
	return func(ts *testscript.TestScript, _ bool, args []string) {
		pid, err := strconv.Atoi(ts.Getenv("PID_" + args[0]))
		ts.Check(err)
		ts.Check(syscall.Kill(pid, sig))
	}
}
