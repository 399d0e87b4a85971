package test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// smallDisks make a node settle and forget its log soon.
var smallDisks = []string{"--wal-file-size=16MiB", "--max-frame-size=8MiB", "--checkpoint-every=64MiB"}

// fill writes about so many MiB to a topic, without any client's haste.
func (c *cluster) fill(topic string, partitions int, mib int) (records int) {
	c.t.Helper()
	cl := c.client(kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.NoCompression()))
	value := make([]byte, 256<<10)
	for i := range value {
		value[i] = byte(i * 7)
	}
	records = mib * 4
	var batch []*kgo.Record
	for i := range records {
		batch = append(batch, &kgo.Record{Topic: topic, Partition: int32(i % partitions), Value: value})
		if len(batch) == 16 || i == records-1 {
			if err := cl.ProduceSync(timeout(c.t, time.Minute), batch...).FirstErr(); err != nil {
				c.t.Fatalf("fill %s: %v", topic, err)
			}
			batch = nil
		}
	}
	return records
}

// provedOn makes a node indispensable: it kills each of the others in turn, so that
// nothing is acknowledged without this one, and checks.
func (c *cluster) provedOn(topic string, partitions int32, id int, check func()) {
	c.t.Helper()
	for _, other := range c.others(id) {
		c.node(other).kill()
		eventually(c.t, 30*time.Second, func() error {
			for p := range partitions {
				d, err := c.metadata(id, topic)
				if err != nil {
					return err
				}
				if l := int(d.Partitions[p].Leader); l < 0 || l == other {
					return fmt.Errorf("partition %d is led by %d", p, l)
				}
			}
			return nil
		})
		c.waitLed(topic, int(partitions))
		check()
		c.start(other)
		c.waitLed(topic, int(partitions))
	}
}

// A folder is emptied: the node comes back as a new replica, copies what it lacks,
// and is then worth as much as any other.
func TestEmptyDiskComesBackAsANewReplica(t *testing.T) {
	c := newCluster(t, 3, "--replace-after=3s")
	c.createTopic("t", 3)
	l := c.startLoad("t", 3, lightLoad)
	l.flowing(500)
	n := c.node(2)
	n.kill()
	n.wipe()
	l.flowing(200)
	c.waitDown(2)
	at := time.Now()
	c.launch(2)
	if err := n.waitReady(); err != nil {
		t.Fatalf("the emptied node: %v", err)
	}
	t.Logf("ready again after %v", time.Since(at).Round(time.Millisecond))
	c.waitWhole("t", 3)
	l.flowing(200)
	c.provedOn("t", 3, 2, func() { l.flowing(100) })
	l.finish()
}

// A master's folder is emptied while all are down. It comes up first, with one that was
// away when the last was decided: the two are no majority, as the empty one has forgotten
// what it voted for. With the third nothing is lost, and the empty one is a new replica.
func TestAnEmptyDiskIsNoVoterWhereNobodyElseIsUp(t *testing.T) {
	c := newCluster(t, 3)
	c.node(2).kill()
	c.waitDown(2)
	c.must(1, "topic", "create", "late", "--partitions", "1", "--replication-factor", "1")
	c.node(1).kill()
	c.node(3).kill()
	c.node(1).wipe()
	c.launch(1, 2)
	says := func() error {
		if !c.node(1).log.contains("this node's data folder is empty, and cannot stand in") {
			return fmt.Errorf("the emptied node does not say what it waits for: %s", c.node(1).log)
		}
		return nil
	}
	eventually(t, 20*time.Second, says)
	c.start(3)
	c.waitReady(2)
	c.must(3, "topic", "describe", "late")
	// It is refused until its old folder counts as down; who looks after it tries again.
	eventually(t, 60*time.Second, func() error {
		n := c.node(1)
		select {
		case <-n.exited:
			n.started = false
			c.launch(1)
		default:
		}
		_, err := os.Stat(filepath.Join(n.dir, "checkpoint"))
		return err
	})
	c.waitReady(1)
	if b, err := os.ReadFile(filepath.Join(c.node(1).dir, "meta.properties")); err != nil || strings.Contains(string(b), "meta.replica=1\n") {
		t.Errorf("the emptied node takes part as the replica that it was: %s, %v", b, err)
	}
	c.must(1, "topic", "describe", "late")
}

// waitDown waits until a node that does not run counts as down: before, a folder
// without its history is not taken for the node's.
func (c *cluster) waitDown(id int) {
	c.t.Helper()
	eventually(c.t, 30*time.Second, func() error {
		s, err := c.status(c.others(id)[0])
		if err != nil {
			return err
		}
		for _, p := range s.Problems {
			if strings.HasPrefix(p, fmt.Sprintf("node %d is down", id)) {
				return nil
			}
		}
		return fmt.Errorf("node %d is not down; problems: %q", id, s.Problems)
	})
}

// waitWhole waits until every partition has its replicas in sync, as each node says.
func (c *cluster) waitWhole(topic string, replicas int) {
	c.t.Helper()
	eventually(c.t, 60*time.Second, func() error {
		for _, id := range c.running() {
			d, err := c.metadata(id, topic)
			if err != nil {
				return err
			}
			for _, p := range d.Partitions {
				if len(p.Replicas) != replicas || len(p.ISR) != replicas || p.Leader < 0 {
					return fmt.Errorf("node %d: partition %d has replicas %v, in sync %v, leader %d", id, p.Partition, p.Replicas, p.ISR, p.Leader)
				}
			}
		}
		s, err := c.status(c.running()[0])
		if err != nil {
			return err
		}
		if len(s.Problems) > 0 {
			return fmt.Errorf("problems: %v", s.Problems)
		}
		return nil
	})
}

// A node is away while more is written than the others keep in their logs: it
// catches up by a copy.
func TestFollowerFarBehindCatchesUp(t *testing.T) {
	c := newCluster(t, 3, smallDisks...)
	c.createTopic("t", 2)
	records := c.fill("t", 2, 8)
	n := c.node(3)
	n.kill()
	records += c.fill("t", 2, 160)
	eventually(t, 30*time.Second, func() error {
		for _, id := range []int{1, 2} {
			// All of it would be eleven files; those that are spare have nothing in them.
			if kept := files(t, c.node(id).dir, func(p string) bool { return filepath.Ext(p) == ".wal" }); len(kept) > 8 {
				return fmt.Errorf("node %d keeps %d files of its log: %v", id, len(kept), kept)
			}
		}
		return nil
	})
	at := time.Now()
	c.start(3)
	t.Logf("ready again after %v", time.Since(at).Round(time.Millisecond))
	c.provedOn("t", 2, 3, func() {
		got := 0
		for _, r := range c.readAll("t") {
			got += len(r)
		}
		if got < records {
			t.Errorf("%d records, want %d", got, records)
		}
		records += c.fill("t", 2, 1)
	})
	t.Logf("in line after %v", time.Since(at).Round(time.Millisecond))
}

// Bits flip in a follower's files while it is down: what it serves afterwards, and
// what the others serve, is right, and writing goes on.
func TestDamageOnOneDiskNeverSpreads(t *testing.T) {
	for name, where := range map[string]string{"log": "wal", "segment": "data", "checkpoint": "checkpoint"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, 3, append([]string{"--replace-after=3s"}, smallDisks...)...)
			c.createTopic("t", 2)
			l := c.startLoad("t", 2, lightLoad)
			l.flowing(500)
			if where != "wal" {
				c.createTopic("bulk", 2)
				c.fill("bulk", 2, 100)
			}
			l.flowing(200)
			n := c.node(2)
			n.kill()
			damaged := files(t, n.dir, func(p string) bool {
				rel, _ := filepath.Rel(n.dir, p)
				return strings.Contains(rel, where) && !strings.Contains(rel, "index")
			})
			if len(damaged) == 0 {
				t.Fatalf("no files of kind %s", where)
			}
			hit := 0
			for i, f := range damaged {
				if info, err := os.Stat(f); err == nil && info.Size() > 0 && hit < 2 {
					hit++
					at := flip(t, f, 0.5)
					rel, _ := filepath.Rel(n.dir, f)
					t.Logf("flipped a bit of %s at %d (%d of %d files)", rel, at, i+1, len(damaged))
				}
			}
			c.launch(2)
			err := n.waitReady()
			t.Logf("the damaged node: %v", err)
			if err != nil {
				// It says why, and a fresh folder brings it back.
				if !n.log.contains("damage") && !n.log.contains("corrupt") && !n.log.contains("checksum") {
					t.Errorf("the node does not start and does not say that it is damaged: %v", n.log)
				}
				n.kill()
				l.flowing(100)
				c.waitDown(2)
				n.wipe()
				c.start(2)
			}
			l.flowing(300)
			// It is repaired from its peers.
			c.waitWhole("t", 3)
			// The others die in turn: the damaged node has to stand in, or to stand aside.
			for _, other := range []int{1, 3} {
				c.node(other).kill()
				time.Sleep(2 * time.Second)
				c.start(other)
				l.flowing(100)
			}
			l.finish()
		})
	}
}

// An older copy of a node's folder comes back after the cluster has gone on: the
// node does not vote for what it has forgotten, and nothing is lost.
func TestOldDiskImageVotesForNothing(t *testing.T) {
	c := newCluster(t, 3, "--replace-after=3s")
	c.createTopic("t", 3)
	l := c.startLoad("t", 3, lightLoad)
	l.flowing(200)
	n := c.node(2)
	n.kill()
	image := n.image()
	// Replaced: an empty folder takes the node's place.
	n.wipe()
	c.waitDown(2)
	c.start(2)
	l.flowing(300)
	c.waitWhole("t", 3)
	n.kill()
	n.restore(image)
	c.launch(2)
	select {
	case <-n.exited:
		n.started = false
		if !n.log.contains("before another took its place") {
			t.Errorf("the node does not say why it is refused: %s", n.log)
		}
	case <-time.After(20 * time.Second):
		t.Errorf("a replaced folder is taken back; the node says: %s", n.log)
		n.kill()
	}
	l.flowing(200)
	l.finish()
}

// An older copy of a node's folder is put back, as from a backup: it is refused, however
// often it is started, and an empty folder takes its place.
func TestAnOlderCopyOfAFolderIsRefused(t *testing.T) {
	c := newCluster(t, 3, "--replace-after=30s")
	c.createTopic("t", 3)
	l := c.startLoad("t", 3, lightLoad)
	l.flowing(200)
	n := c.node(3)
	if code := n.stop(); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	image := n.image()
	c.start(3)
	l.flowing(200)
	if code := n.stop(); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	n.restore(image)
	for range 3 {
		c.launch(3)
		if code := n.waitExit(); code == 0 {
			t.Error("exit code 0")
		}
	}
	for _, part := range []string{"this is an older copy of the data folder of node 3", "start 2", "empty data folder"} {
		if !n.log.contains(part) {
			t.Errorf("the node does not say %q: %s", part, n.log)
		}
	}
	l.flowing(200)
	c.waitDown(3)
	n.wipe()
	c.start(3)
	c.waitWhole("t", 3)
	c.provedOn("t", 3, 3, func() { l.flowing(100) })
	l.finish()
}

// powerCut ends a node's process, and tells its folder that the machine was started since,
// as after a power cut. What was not synced is there all the same: the disk is a real one.
func (n *node) powerCut() {
	n.t.Helper()
	n.kill()
	file := filepath.Join(n.dir, "boot")
	if b, err := os.ReadFile(file); err != nil || !strings.HasPrefix(string(b), "boot=") {
		n.t.Fatalf("%s: %q, %v", file, b, err)
	}
	if err := os.WriteFile(file, []byte("boot=another\n"), 0o644); err != nil {
		n.t.Fatal(err)
	}
}

// A replica of a quorum-memory topic that may have forgotten something catches up and
// takes part again; two of them wait for the third, and say so.
func TestReplicasThatMayHaveForgottenTakePartAgain(t *testing.T) {
	c := newCluster(t, 3)
	c.createTopic("t", 2, "tube.durability", "quorum-memory")
	l := c.startLoad("t", 2, lightLoad)
	l.flowing(200)
	c.node(2).powerCut()
	l.flowing(100)
	c.start(2)
	if !c.node(2).log.contains("the machine stopped uncleanly") {
		t.Errorf("node 2 says nothing of it: %s", c.node(2).log)
	}
	c.waitWhole("t", 3)
	c.provedOn("t", 2, 2, func() { l.flowing(100) })

	c.node(3).kill()
	c.node(1).powerCut()
	c.node(2).powerCut()
	c.start(1, 2)
	eventually(t, 30*time.Second, func() error {
		s, err := c.status(1)
		if err != nil {
			return err
		}
		for _, p := range s.Problems {
			if strings.Contains(p, "waits for node 3: the machine here stopped uncleanly") {
				return nil
			}
		}
		return fmt.Errorf("problems: %q", s.Problems)
	})
	if d, err := c.metadata(1, "t"); err != nil || d.Partitions[0].Leader >= 0 || d.Partitions[1].Leader >= 0 {
		t.Errorf("led without who may have what was acknowledged: %+v, %v", d.Partitions, err)
	}
	c.start(3)
	l.flowing(100)
	c.waitWhole("t", 3)
	l.finish()
}
