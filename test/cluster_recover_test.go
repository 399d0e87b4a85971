package test

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// tube runs a command against a node, and returns what it wrote, both ways.
func (c *cluster) tube(id int, args ...string) (out string, code int) {
	c.t.Helper()
	n := c.nodes[id]
	cmd := exec.CommandContext(timeout(c.t, time.Minute), tubeBinary, args...)
	cmd.Env = []string{"TUBE_HTTP=" + n.http, "TUBE_KAFKA=" + n.kafka}
	b, err := cmd.CombinedOutput()
	if err != nil && cmd.ProcessState == nil {
		c.t.Fatalf("tube %s: %v", strings.Join(args, " "), err)
	}
	return string(b), cmd.ProcessState.ExitCode()
}

// must is tube for what has to succeed.
func (c *cluster) must(id int, args ...string) string {
	c.t.Helper()
	out, code := c.tube(id, args...)
	if code != 0 {
		c.t.Fatalf("tube %s ends with %d: %s", strings.Join(args, " "), code, out)
	}
	return out
}

// send writes messages first to last of writer 1, one after the other, to all partitions.
func (c *cluster) send(book *ledger, topic string, partitions, first, last int) {
	c.t.Helper()
	cl := c.client(kgo.DefaultProduceTopic(topic), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.RetryTimeout(time.Minute))
	defer cl.Close()
	for i := first; i <= last; i++ {
		r := &kgo.Record{Partition: int32(i % partitions), Value: message(1, uint64(i))}
		if err := cl.ProduceSync(timeout(c.t, time.Minute), r).FirstErr(); err != nil {
			c.t.Fatalf("message %d: %v", i, err)
		}
		book.ack(r, sent{1, uint64(i)})
	}
}

// offsets are what a group has committed.
func (c *cluster) offsets(group, topic string) map[int32]int64 {
	c.t.Helper()
	out := map[int32]int64{}
	eventually(c.t, 30*time.Second, func() error {
		o, err := kadm.NewClient(c.client()).FetchOffsets(timeout(c.t, 10*time.Second), group)
		if err != nil {
			return err
		}
		o.Each(func(r kadm.OffsetResponse) {
			if r.Topic == topic {
				out[r.Partition] = r.At
			}
		})
		return nil
	})
	return out
}

// Two of three masters are lost for good. The third goes on alone on an operator's word, with
// all that it had; new masters take the lost ones' places; a broker that was there all the
// while follows the new ones once it is restarted; and what was given up never comes back.
func TestMastersGoOnFromOneWhenTheOthersAreLost(t *testing.T) {
	c := newCluster(t, 3)
	c.createTopic("t", 3)
	c.add(4, "--roles", "broker")
	c.start(4)
	book := newLedger()
	c.send(book, "t", 3, 0, 59)
	c.node(2).kill()
	image := c.node(2).image()
	// What follows is acknowledged by the first and the third alone, and all before with it.
	c.send(book, "t", 3, 60, 119)
	c.must(1, "topic", "create", "late", "--partitions", "1", "--replication-factor", "1")
	g := c.startGroup("t", "readers", 1)
	g.waitFor(t, 120)
	eventually(t, 20*time.Second, func() error { return g.committedMore(1) })
	g.stop()
	committed := c.offsets("readers", "t")
	c.node(3).kill()
	first := c.node(1)
	dir := []string{"cluster", "unsafe-recover", "masters", "--data", first.dir}
	if out, code := c.tube(1, append(dir, "--yes")...); code == 0 || !strings.Contains(out, "stop the node first") {
		t.Fatalf("a folder in use is recovered: %d, %s", code, out)
	}
	first.kill()
	c.node(2).wipe()
	c.node(3).wipe()

	said := c.must(1, append(dir, "--dry-run")...)
	for _, part := range []string{"without masters 2,3", "The last change of metadata in it is of", "metadata", "stream groups, shard 7", "To be restarted afterwards: nodes 4", "t/0 t/1 t/2"} {
		if !strings.Contains(said, part) {
			t.Errorf("it does not say %q: %s", part, said)
		}
	}
	if out, code := c.tube(1, append(dir, "--lost", "3", "--yes")...); code == 0 || !strings.Contains(out, "which is a majority: start them") {
		t.Errorf("recovered although a majority is left: %d, %s", code, out)
	}
	if out, code := c.tube(1, dir...); code == 0 || !strings.Contains(out, "there is nobody to ask") {
		t.Errorf("recovered without being asked: %d, %s", code, out)
	}
	c.must(1, append(dir, "--yes")...)
	c.start(1)

	// The broker says what it needs.
	eventually(t, 30*time.Second, func() error {
		s, err := c.status(4)
		if err != nil {
			return err
		}
		if all := strings.Join(s.Problems, "\n"); !strings.Contains(all, "the masters were recovered") {
			return fmt.Errorf("node 4 says only %q", all)
		}
		return nil
	})
	c.node(4).kill()
	c.start(4)
	c.start(2, 3) // as new ones
	masters := func(want int) {
		t.Helper()
		eventually(t, 60*time.Second, func() error {
			var nodes []struct {
				ID    int      `json:"id"`
				State string   `json:"state"`
				Roles []string `json:"roles"`
			}
			out, _ := c.tube(1, "cluster", "nodes", "--json")
			if err := json.Unmarshal([]byte(out), &nodes); err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			if len(nodes) != want {
				return fmt.Errorf("nodes: %s", out)
			}
			return nil
		})
	}
	masters(4)
	for p := range 3 {
		said := c.must(1, "cluster", "unsafe-recover", fmt.Sprintf("t/%d", p), "--survivor", "1", "--nodes", "1,2,3", "--yes")
		if !strings.Contains(said, "1,2,3") {
			t.Errorf("partition %d: %s", p, said)
		}
	}
	c.waitWhole("t", 3)
	c.send(book, "t", 3, 120, 179)
	for p, want := range committed {
		if got := c.offsets("readers", "t")[p]; got != want {
			t.Errorf("partition %d: the group is at %d, %d was committed", p, got, want)
		}
	}
	again := c.startGroup("t", "readers", 2)
	again.waitFor(t, 60)
	again.stop()
	c.must(1, "topic", "describe", "late")
	if out := c.must(1, "cluster", "events"); !strings.Contains(out, "the masters' groups go on from what node 1 has") {
		t.Errorf("no event says so: %s", out)
	}

	// The new masters are a majority without the one that went on alone.
	first.kill()
	c.send(book, "t", 3, 180, 239)
	c.must(2, "topic", "create", "later", "--partitions", "1")
	c.start(1)

	// What was given up is refused, with the reason, and disturbs nobody.
	second := c.node(2)
	second.kill()
	whole := second.image()
	second.restore(image)
	c.launchRefused(second, "this data folder was node 2's before another took its place, or before the node was removed")
	second.restore(whole)
	c.start(2)
	c.waitWhole("t", 3)
	c.send(book, "t", 3, 240, 269)
	for _, id := range c.order {
		c.node(id).kill()
	}
	c.start(c.order...)
	c.waitWhole("t", 3)
	book.check(t, c.readAll("t"))
}

// A node that is removed while it runs ends, rather than go on serving what it has alone.
func TestANodeThatIsRemovedEnds(t *testing.T) {
	c := newCluster(t, 3)
	four := c.add(4, "--roles", "broker")
	c.start(4)
	c.createTopic("alone", 1)
	c.must(1, "topic", "reassign", "alone", "--replicas", "0:4", "--wait")
	c.must(1, "cluster", "remove-node", "4", "--force")
	if code := four.waitExit(); code == 0 || !four.log.contains("the cluster has removed this node") {
		t.Errorf("it ended with %d, and said:\n%s", code, four.log)
	}
	for _, id := range []int{1, 2, 3} {
		c.node(id).alive()
	}
	four.launch()
	if code := four.waitExit(); code == 0 || !four.log.contains("start the node with an empty data folder") {
		t.Errorf("started again it ended with %d, and said:\n%s", code, four.log)
	}
}
