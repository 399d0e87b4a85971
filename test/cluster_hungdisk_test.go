package test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// frozenDisk is a file system of its own that can be frozen: whatever changes it
// hangs in the kernel, as with a disk that does not answer. Needs root.
type frozenDisk struct {
	t   *testing.T
	dir string
}

// newFrozenDisk skips the test where it cannot be had.
func newFrozenDisk(t *testing.T, sizeBytes int64) *frozenDisk {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("a disk that hangs needs root")
	}
	for _, tool := range []string{"mkfs.ext4", "mount", "umount", "fsfreeze"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("a disk that hangs needs %s", tool)
		}
	}
	image := filepath.Join(t.TempDir(), "disk")
	dir := t.TempDir()
	f, err := os.Create(image)
	if err == nil {
		err = errors.Join(f.Truncate(sizeBytes), f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mkfs.ext4", "-q", "-F", image).CombinedOutput(); err != nil {
		t.Fatalf("mkfs.ext4: %v: %s", err, out)
	}
	if out, err := exec.Command("mount", "-o", "loop", image, dir).CombinedOutput(); err != nil {
		t.Skipf("no loop device can be mounted: %v: %s", err, out)
	}
	d := &frozenDisk{t, dir}
	t.Cleanup(func() {
		d.thaw()
		// Whoever hung in it may take a moment to be gone.
		eventually(t, 10*time.Second, func() error { return syscall.Unmount(dir, 0) })
	})
	return d
}

func (d *frozenDisk) freeze() {
	d.t.Helper()
	if out, err := exec.Command("fsfreeze", "-f", d.dir).CombinedOutput(); err != nil {
		d.t.Fatalf("fsfreeze: %v: %s", err, out)
	}
}

// thaw may be called when it is not frozen.
func (d *frozenDisk) thaw() { _ = exec.Command("fsfreeze", "-u", d.dir).Run() }

// newClusterWithFrozenDisk starts three nodes, the first of them on a disk that can
// be frozen.
func newClusterWithFrozenDisk(t *testing.T, flags ...string) (*cluster, *frozenDisk) {
	t.Helper()
	disk := newFrozenDisk(t, 1<<30)
	c := prepareCluster(t, 3, append(flags, "--disk-reserve=32MiB", "--wal-file-size=16MiB", "--max-frame-size=8MiB", "--checkpoint-every=64MiB")...)
	c.node(1).dir = filepath.Join(disk.dir, "data")
	t.Cleanup(disk.thaw) // before the nodes are killed: one that hangs is not gone until then
	c.start(c.order...)
	return c, disk
}

// ledBy finds a partition that a node leads.
func (c *cluster) ledBy(id int, topic string, partitions int32) int32 {
	c.t.Helper()
	found := int32(-1)
	eventually(c.t, 30*time.Second, func() error {
		for p := range partitions {
			if c.leader(topic, p) == id {
				found = p
				return nil
			}
		}
		return fmt.Errorf("node %d leads nothing of %s", id, topic)
	})
	return found
}

// problem waits until a node names a problem of the cluster that contains a text,
// or until none does.
func (c *cluster) problem(id int, text string, there bool) {
	c.t.Helper()
	eventually(c.t, 60*time.Second, func() error {
		s, err := c.status(id)
		if err != nil {
			return err
		}
		if strings.Contains(strings.Join(s.Problems, "\n"), text) != there {
			return fmt.Errorf("problems: %q; want %q there: %v", s.Problems, text, there)
		}
		return nil
	})
}

func (c *cluster) events(id int) string {
	c.t.Helper()
	out, err := exec.Command(tubeBinary, "cluster", "events", "--http", c.nodes[id].http, "--kafka", c.nodes[id].kafka).CombinedOutput()
	if err != nil {
		c.t.Fatalf("events: %v: %s", err, out)
	}
	return string(out)
}

// The disk of a node hangs under load: others lead, writing goes on, the masters
// say so; when it is back the node is well again after a while and leads again.
// Nothing acknowledged is lost.
func TestALeaderWhoseDiskHangsIsReplaced(t *testing.T) {
	c, disk := newClusterWithFrozenDisk(t, "--disk-slow-after=1s", "--disk-hung-after=10m")
	c.createTopic("t", 3)
	l := c.startLoad("t", 3, lightLoad)
	p := c.prober("t2")
	c.createTopic("t2", 3)
	l.flowing(300)
	led := c.ledBy(1, "t2", 3)

	disk.freeze()
	at := time.Now()
	c.node(1).away = true // it serves, but says what it knew last
	took := c.firstWrite(p, led, at)
	t.Logf("partition %d takes writes again %v after its leader's disk hangs", led, took.Round(time.Millisecond))
	// A second until it is sick, and at once handed over: those who had to elect
	// without it would begin three seconds later.
	if took >= 4*time.Second {
		t.Errorf("the leader did not hand over: writing went on after %v", took)
	}
	l.flowing(300)
	for partition := range int32(3) {
		if id := c.leader("t", partition); id == 1 {
			t.Errorf("node 1, whose disk hangs, still leads t/%d", partition)
		}
	}
	c.problem(2, "node 1 is sick", true)
	if v, err := c.node(1).metric("tube_disk_sick"); err != nil || v != 1 {
		t.Errorf("the node itself says tube_disk_sick %v, %v", v, err)
	}
	c.node(1).alive()

	disk.thaw()
	c.node(1).away = false
	c.problem(2, "node 1 is sick", false)
	c.ledBy(1, "t", 3) // its share is given back
	for _, kind := range []string{"node-sick", "node-well"} {
		if e := c.events(2); !strings.Contains(e, kind) {
			t.Errorf("no event %s:\n%s", kind, e)
		}
	}
	l.flowing(300)
	l.finish()
}

// A disk hangs for longer than it may: the node says its last word and hangs up,
// although what is left of the process cannot go before the disk is back.
func TestANodeWhoseDiskHangsForTooLongEnds(t *testing.T) {
	c, disk := newClusterWithFrozenDisk(t, "--disk-slow-after=500ms", "--disk-hung-after=3s")
	c.createTopic("t", 3)
	l := c.startLoad("t", 3, lightLoad)
	l.flowing(300)
	disk.freeze()
	n := c.node(1)
	n.away = true
	eventually(t, 20*time.Second, func() error {
		if !n.log.contains("disk hangs") || !n.log.contains("disk-hung-after is 3s") {
			return errors.New("no last word")
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		for _, addr := range []string{n.kafka, n.http, n.peer} {
			if conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr); err == nil {
				conn.Close()
				return fmt.Errorf("%s is still listened on", addr)
			}
		}
		return nil
	})
	l.flowing(300)
	disk.thaw()
	if code := n.waitExit(); code != 1 {
		t.Errorf("exit code %d", code)
	}
	n.away = false
	c.start(1)
	c.waitWhole("t", 3)
	l.flowing(300)
	l.finish()
}
