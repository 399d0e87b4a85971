package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
)

func newClusterLocal(a *app) *cobra.Command {
	var l localCluster
	c := &cobra.Command{
		Use: "local", Short: "Start a cluster on this machine, to try things; Ctrl-C stops it", Args: exactly(0),
		Long: `Start a cluster on this machine: a "tube start" for each node, with its data in a
folder of its own. What a node writes has its number before it. Ctrl-C stops all
of them cleanly. A node that ends by itself is told of, and the others go on:
kill one to see what happens.

The first nodes, up to three, are masters and brokers, the others brokers.`,
		Example: "  tube cluster local\n  tube cluster local --nodes 5 --dir /tmp/five",
		RunE: func(c *cobra.Command, _ []string) error {
			if l.number < 1 || l.number > maxLocalNodes {
				return usage("", "--nodes %d: want 1 to %d", l.number, maxLocalNodes)
			}
			return a.runLocal(c.Context(), &l)
		},
	}
	c.Flags().IntVar(&l.number, "nodes", 3, "how many nodes")
	c.Flags().StringVar(&l.dir, "dir", "./data", "folder with the nodes' data folders 1, 2, …")
	c.Flags().BoolVar(&l.freePorts, "free-ports", false, "take ports that are free, not 9092, 9080, 9070 and those after them")
	c.Flags().BoolVar(&a.json, "json", false, "when all are up, write the nodes as one line of JSON")
	return c
}

const (
	maxLocalNodes = 9
	localMasters  = 3
	// localPatience is how long the nodes may take to be ready.
	localPatience = 2 * time.Minute
	// killAfter is when a node that does not stop is killed.
	killAfter = 40 * time.Second
)

// localCluster are nodes that are processes of this machine.
type localCluster struct {
	number    int
	dir       string
	freePorts bool
	nodes     []*localNode
	ended     chan *localNode // each sends itself once
}

type localNode struct {
	ID    int    `json:"node_id"`
	Kafka string `json:"kafka_address"`
	HTTP  string `json:"http_address"`
	Peer  string `json:"peer_address"`
	Data  string `json:"data"`
	PID   int    `json:"pid"`

	cmd *exec.Cmd
	err error // what it ended with
}

func (a *app) runLocal(ctx context.Context, l *localCluster) error {
	// The signal that ends ctx is heard here too: the second one kills.
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	if err := l.plan(); err != nil {
		return err
	}
	running, err := l.start(a)
	if err == nil {
		running, err = l.await(ctx, running)
	}
	if err == nil {
		err = a.welcomeLocal(ctx, l)
	}
	for err == nil && running > 0 && ctx.Err() == nil {
		select {
		case n := <-l.ended:
			running--
			fmt.Fprintf(a.err, "node %d ended (%s). Start it again with:\n  %s\n", n.ID, ending(n.err), n.command(a.program, l))
		case <-ctx.Done():
		}
	}
	if serr := l.stop(running, signals); err == nil {
		err = serr
	}
	return err
}

func ending(err error) string {
	if err == nil {
		return "it was stopped"
	}
	return err.Error()
}

// plan gives each node its addresses and its folder.
func (l *localCluster) plan() error {
	l.ended = make(chan *localNode, l.number)
	for id := 1; id <= l.number; id++ {
		n := &localNode{ID: id, Data: filepath.Join(l.dir, strconv.Itoa(id))}
		for i, addr := range []*string{&n.Kafka, &n.HTTP, &n.Peer} {
			*addr = net.JoinHostPort("127.0.0.1", strconv.Itoa([]int{9092, 9080, 9070}[i]+id-1))
		}
		l.nodes = append(l.nodes, n)
	}
	if !l.freePorts {
		return nil
	}
	// Clusters that are started one after the other begin far apart.
	port := firstFreePort + os.Getpid()*portsApart%(lastFreePort-firstFreePort)
	for _, n := range l.nodes {
		for _, addr := range []*string{&n.Kafka, &n.HTTP, &n.Peer} {
			for tried := 0; ; tried++ {
				if tried > lastFreePort-firstFreePort {
					return fmt.Errorf("no port from %d to %d is free", firstFreePort, lastFreePort)
				}
				if port++; port > lastFreePort {
					port = firstFreePort
				}
				*addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
				if free, err := net.Listen("tcp", *addr); err == nil {
					_ = free.Close()
					break
				}
			}
		}
	}
	return nil
}

// Free ports are looked for below those that systems give to outgoing connections:
// one of those, which the first nodes make at once, would take a port away before
// the last node listens.
const (
	firstFreePort, lastFreePort = 20_000, 30_000
	portsApart                  = 64
)

// args are those of a node's "tube start".
func (n *localNode) args(l *localCluster) []string {
	var masters []string
	for _, m := range l.nodes[:min(len(l.nodes), localMasters)] {
		masters = append(masters, fmt.Sprintf("%d@%s", m.ID, m.Peer))
	}
	roles := "master,broker"
	if n.ID > localMasters {
		roles = "broker"
	}
	return []string{
		"start", "--node-id", strconv.Itoa(n.ID), "--roles", roles, "--masters", strings.Join(masters, ","), "--data", n.Data,
		"--kafka", n.Kafka, "--http", n.HTTP, "--peer", n.Peer,
	}
}

func (n *localNode) command(program string, l *localCluster) string {
	words := append([]string{program}, n.args(l)...)
	for i := range words {
		words[i] = quoted(words[i])
	}
	return strings.Join(words, " ")
}

// start starts the nodes and returns how many run, also with an error.
func (l *localCluster) start(a *app) (int, error) {
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	var out sync.Mutex
	for i, n := range l.nodes {
		n.cmd = exec.Command(self, append(n.args(l), "--log-format", "text")...)
		n.cmd.Env = nodeEnv(a.env)
		n.cmd.Stderr = &prefixed{mu: &out, w: a.err, prefix: fmt.Sprintf("node %d | ", n.ID)}
		apart(n.cmd)
		if err := n.cmd.Start(); err != nil {
			return i, fmt.Errorf("node %d: %w", n.ID, err)
		}
		n.PID = n.cmd.Process.Pid
		go func() {
			n.err = n.cmd.Wait()
			l.ended <- n
		}()
	}
	return len(l.nodes), nil
}

// nodeEnv leaves out settings: they would be the same for every node.
func nodeEnv(env []string) []string {
	var out []string
	for _, kv := range env {
		if !strings.HasPrefix(kv, "TUBE_") {
			out = append(out, kv)
		}
	}
	return out
}

// await returns when all nodes are ready, and how many run.
func (l *localCluster) await(ctx context.Context, running int) (int, error) {
	limit := time.After(localPatience)
	for _, n := range l.nodes {
		for !isReady(ctx, n.HTTP) {
			select {
			case n := <-l.ended:
				return running - 1, &failure{exitFailed, fmt.Sprintf("node %d did not start (%s)", n.ID, ending(n.err)), "the log above says why; ports may be in use (--free-ports) or the data be another cluster's (--dir)"}
			case <-ctx.Done():
				return running, &failure{exitFailed, "interrupted before the cluster was up", ""}
			case <-limit:
				return running, unavailable("the log above may say why", "node %d is not ready after %v", n.ID, localPatience)
			case <-time.After(50 * time.Millisecond):
			}
		}
	}
	return running, nil
}

// welcomeLocal says where the nodes are and what to try.
func (a *app) welcomeLocal(ctx context.Context, l *localCluster) error {
	if a.json {
		return json.NewEncoder(a.out).Encode(l.nodes)
	}
	a.http, a.timeout = l.nodes[0].HTTP, 5*time.Second
	s, err := ask(ctx, a, a.cluster().Status, &tubev1.StatusRequest{})
	if err != nil {
		return err
	}
	kafka, at := "", ""
	if l.freePorts {
		kafka, at = " --kafka "+l.nodes[0].Kafka, " --http "+l.nodes[0].HTTP
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\nCluster %s, data in %s\n\n", s.ClusterId, l.dir)
	t := newTable("NODE", "KAFKA", "HTTP", "PEER", "DATA", "PID")
	for _, n := range l.nodes {
		t.row(n.ID, n.Kafka, "http://"+n.HTTP, n.Peer, n.Data, n.PID)
	}
	if err := t.write(&b); err != nil {
		return err
	}
	fmt.Fprintf(&b, "\nTry in another terminal:\n\n  %s topic create orders --partitions 6%s\n", a.program, kafka)
	fmt.Fprintf(&b, "  %s topic describe orders%s%s\n  %s cluster health%s\n\nCtrl-C stops all of them.\n\n", a.program, kafka, at, a.program, at)
	_, err = io.WriteString(a.out, b.String())
	return err
}

// stop asks the nodes that run to stop and waits for it. A second signal kills.
func (l *localCluster) stop(running int, signals <-chan os.Signal) error {
	for _, n := range l.nodes {
		if n.PID != 0 {
			_ = n.cmd.Process.Signal(syscall.SIGTERM) // one that has ended needs none
		}
	}
	var errs []error
	limit := time.After(killAfter)
	// The signal that brought us here is in signals as well, unless it was none.
	for heard := 0; running > 0; {
		select {
		case n := <-l.ended:
			running--
			if n.err != nil {
				errs = append(errs, fmt.Errorf("node %d did not stop cleanly: %w", n.ID, n.err))
			}
			continue
		case <-signals:
			if heard++; heard == 1 {
				continue
			}
		case <-limit:
		}
		for _, n := range l.nodes {
			if n.PID != 0 {
				_ = n.cmd.Process.Kill()
			}
		}
	}
	return errors.Join(errs...)
}

// prefixed writes whole lines with something before each.
type prefixed struct {
	mu     *sync.Mutex // of the writer, which others use too
	w      io.Writer
	prefix string
	rest   []byte // of a line that has not ended; bounded by what a node logs at once
}

func (p *prefixed) Write(b []byte) (int, error) {
	p.rest = append(p.rest, b...)
	var out []byte
	for {
		line, rest, ok := bytes.Cut(p.rest, []byte{'\n'})
		if !ok {
			break
		}
		out = append(append(append(out, p.prefix...), line...), '\n')
		p.rest = rest
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	_, err := p.w.Write(out)
	return len(b), err
}
