package test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// cluster is several nodes that know of each other. The node of id i is node(i).
type cluster struct {
	t       *testing.T
	masters []int // ids
	net     *network
	nodes   map[int]*node
	order   []int // ids as they were added
}

// newCluster starts nodes 1 to size, each a master and a broker, and waits until
// all are ready.
func newCluster(t *testing.T, size int, flags ...string) *cluster {
	t.Helper()
	c := prepareCluster(t, size, flags...)
	c.start(c.order...)
	return c
}

// prepareCluster gives nodes addresses and folders but starts none.
func prepareCluster(t *testing.T, size int, flags ...string) *cluster {
	t.Helper()
	return prepareClusterOn(t, nil, size, flags...)
}

func prepareClusterOn(t *testing.T, net *network, size int, flags ...string) *cluster {
	t.Helper()
	c := &cluster{t: t, net: net, nodes: map[int]*node{}}
	for id := 1; id <= size; id++ {
		c.masters = append(c.masters, id)
		c.add(id, flags...)
	}
	return c
}

// add prepares one more node. It is a master if it is one of those that the
// cluster was prepared with.
func (c *cluster) add(id int, flags ...string) *node {
	c.t.Helper()
	n := prepareNode(c.t, c.t.TempDir(), flags...)
	n.flags = append([]string{"--node-id", strconv.Itoa(id)}, n.flags...)
	if c.net != nil {
		c.net.place(n, id)
	}
	c.nodes[id] = n
	c.order = append(c.order, id)
	return n
}

// mastersFlag names the masters' addresses, which are known once all are prepared.
func (c *cluster) mastersFlag() string {
	parts := make([]string, len(c.masters))
	for i, id := range c.masters {
		parts[i] = fmt.Sprintf("%d@%s", id, c.nodes[id].peer)
	}
	return strings.Join(parts, ",")
}

// up reports whether a node can be asked.
func (n *node) up() bool { return n.started && !n.away }

func (c *cluster) node(id int) *node { return c.nodes[id] }

// launch starts processes and does not wait.
func (c *cluster) launch(ids ...int) {
	c.t.Helper()
	for _, id := range ids {
		n := c.nodes[id]
		if !strings.Contains(strings.Join(n.flags, " "), "--masters") {
			n.flags = append(n.flags, "--masters", c.mastersFlag())
		}
		n.launch()
	}
}

// start starts processes and waits until each is ready.
func (c *cluster) start(ids ...int) {
	c.t.Helper()
	c.launch(ids...)
	c.waitReady(ids...)
}

func (c *cluster) waitReady(ids ...int) {
	c.t.Helper()
	for _, id := range ids {
		if err := c.nodes[id].waitReady(); err != nil {
			c.t.Fatalf("node %d: %v", id, err)
		}
	}
}

func contains(ids []int, id int) bool {
	for _, x := range ids {
		if x == id {
			return true
		}
	}
	return false
}

// all are the Kafka addresses of all nodes, those that do not run included.
func (c *cluster) all() []string {
	var out []string
	for _, id := range c.order {
		out = append(out, c.nodes[id].kafka)
	}
	return out
}

// others are the ids without some.
func (c *cluster) others(but ...int) []int {
	var out []int
	for _, id := range c.order {
		if !contains(but, id) {
			out = append(out, id)
		}
	}
	return out
}

// client knows all nodes; it ends with the test.
func (c *cluster) client(opts ...kgo.Opt) *kgo.Client {
	c.t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(c.all()...), kgo.MetadataMinAge(50 * time.Millisecond)}, opts...)...)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(cl.Close)
	return cl
}

// admin asks one node, or any if the id is 0.
func (c *cluster) admin(id int) (*kadm.Client, func()) {
	c.t.Helper()
	seeds := c.all()
	if id != 0 {
		seeds = []string{c.nodes[id].kafka}
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(seeds...), kgo.MetadataMinAge(50*time.Millisecond), kgo.RequestRetries(3), kgo.RetryTimeout(5*time.Second))
	if err != nil {
		c.t.Fatal(err)
	}
	return kadm.NewClient(cl), cl.Close
}

// createTopic creates a topic with three replicas, or as many as there are nodes.
func (c *cluster) createTopic(name string, partitions int32, settings ...string) {
	c.t.Helper()
	configs := map[string]*string{}
	for i := 0; i+1 < len(settings); i += 2 {
		configs[settings[i]] = &settings[i+1]
	}
	adm := kadm.NewClient(c.client())
	if _, err := adm.CreateTopic(timeout(c.t, 30*time.Second), partitions, int16(min(3, len(c.order))), configs, name); err != nil {
		c.t.Fatalf("create topic %s: %v", name, err)
	}
	c.waitLed(name, int(partitions))
}

// metadata is what one node says of a topic.
func (c *cluster) metadata(id int, topic string) (kadm.TopicDetail, error) {
	adm, done := c.admin(id)
	defer done()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	m, err := adm.Metadata(ctx, topic)
	if err != nil {
		return kadm.TopicDetail{}, err
	}
	return m.Topics[topic], m.Topics[topic].Err
}

// waitLed waits until every node that runs names a leader that runs for every partition.
func (c *cluster) waitLed(topic string, partitions int) {
	c.t.Helper()
	eventually(c.t, 20*time.Second, func() error {
		for _, id := range c.order {
			if !c.nodes[id].up() {
				continue
			}
			d, err := c.metadata(id, topic)
			if err != nil {
				return fmt.Errorf("node %d: %w", id, err)
			}
			if len(d.Partitions) != partitions {
				return fmt.Errorf("node %d knows %d partitions of %s, want %d", id, len(d.Partitions), topic, partitions)
			}
			for _, p := range d.Partitions {
				if p.Leader < 0 || !c.nodes[int(p.Leader)].up() {
					return fmt.Errorf("node %d says that node %d leads partition %d", id, p.Leader, p.Partition)
				}
			}
		}
		return nil
	})
}

// leader is the node that leads a partition, as the nodes that run agree.
func (c *cluster) leader(topic string, partition int32) int {
	c.t.Helper()
	leader := -1
	eventually(c.t, 20*time.Second, func() error {
		leader = -1
		for _, id := range c.order {
			if !c.nodes[id].up() {
				continue
			}
			d, err := c.metadata(id, topic)
			if err != nil {
				return err
			}
			p, ok := d.Partitions[partition]
			if !ok || p.Leader < 0 || leader >= 0 && leader != int(p.Leader) {
				return fmt.Errorf("node %d says that node %d leads, before it was %d", id, p.Leader, leader)
			}
			leader = int(p.Leader)
		}
		if leader < 0 || !c.nodes[leader].up() {
			return fmt.Errorf("node %d leads, which does not run", leader)
		}
		return nil
	})
	return leader
}

// controller is the active master, as one node says.
func (c *cluster) controller() int {
	c.t.Helper()
	controller := -1
	eventually(c.t, 20*time.Second, func() error {
		for _, id := range c.order {
			if !c.nodes[id].up() {
				continue
			}
			adm, done := c.admin(id)
			m, err := adm.BrokerMetadata(timeout(c.t, 3*time.Second))
			done()
			if err != nil {
				return err
			}
			if m.Controller < 0 || !c.nodes[int(m.Controller)].up() {
				return fmt.Errorf("node %d says the active master is node %d", id, m.Controller)
			}
			controller = int(m.Controller)
		}
		return nil
	})
	return controller
}

// status asks a node's HTTP door for the state of the cluster.
type clusterStatus struct {
	Problems []string `json:"problems"`
}

func (c *cluster) status(id int) (clusterStatus, error) {
	var s clusterStatus
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, tubeBinary, "cluster", "status", "--json", "--http", c.nodes[id].http, "--kafka", c.nodes[id].kafka).Output()
	if err != nil && len(out) == 0 {
		return s, err
	}
	return s, json.Unmarshal(out, &s)
}

// metric is the sum of a metric's lines on a node.
func (n *node) metric(name string) (float64, error) {
	client := &http.Client{Timeout: 2 * time.Second}
	defer client.CloseIdleConnections()
	r, err := client.Get("http://" + n.http + "/metrics")
	if err != nil {
		return 0, err
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		return 0, err
	}
	sum, found := 0.0, false
	for line := range strings.Lines(string(b)) {
		if words := strings.Fields(line); len(words) == 2 && (words[0] == name || strings.HasPrefix(words[0], name+"{")) {
			v, err := strconv.ParseFloat(words[1], 64)
			if err != nil {
				return 0, err
			}
			sum, found = sum+v, true
		}
	}
	if !found {
		return 0, fmt.Errorf("no metric %s", name)
	}
	return sum, nil
}

// pause stops a process where it is; resume lets it go on.
func (n *node) pause() {
	n.t.Helper()
	if err := n.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		n.t.Fatal(err)
	}
}

func (n *node) resume() {
	n.t.Helper()
	if err := n.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		n.t.Fatal(err)
	}
}

// wipe empties the data folder of a node that does not run.
func (n *node) wipe() {
	n.t.Helper()
	entries, err := os.ReadDir(n.dir)
	if err != nil {
		n.t.Fatal(err)
	}
	for _, e := range entries {
		if err := os.RemoveAll(filepath.Join(n.dir, e.Name())); err != nil {
			n.t.Fatal(err)
		}
	}
}

// image copies the data folder of a node that does not run.
func (n *node) image() (dir string) {
	n.t.Helper()
	dir = n.t.TempDir()
	copyTree(n.t, n.dir, dir)
	return dir
}

// restore makes the data folder what it was when the image was made.
func (n *node) restore(image string) {
	n.t.Helper()
	n.wipe()
	copyTree(n.t, image, n.dir)
}

func copyTree(t *testing.T, from, to string) {
	t.Helper()
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(from, path)
		target := filepath.Join(to, rel)
		if d.IsDir() {
			return os.MkdirAll(target, 0o755)
		}
		return copySparse(path, target)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// copySparse leaves out what is zero: files of the log are allocated ahead.
func copySparse(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	defer out.Close()
	buf, size := make([]byte, 64<<10), int64(0)
	for {
		n, err := io.ReadFull(in, buf)
		for i := range n {
			if buf[i] != 0 {
				if _, err := out.WriteAt(buf[:n], size); err != nil {
					return err
				}
				break
			}
		}
		size += int64(n)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return out.Truncate(size)
		}
		if err != nil {
			return err
		}
	}
}
