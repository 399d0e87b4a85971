package databases

import (
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// node of Tube, built from this tree.
type node struct{ binary, kafka, http string }

func newNode(t *testing.T) *node {
	t.Helper()
	n := &node{filepath.Join(t.TempDir(), "tube"), freePort(t), freePort(t)}
	build := exec.Command("go", "build", "-o", n.binary, "./cmd/tube")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	said := &said{}
	cmd := exec.Command(n.binary, "start", "--data", t.TempDir(), "--kafka", n.kafka, "--http", n.http, "--peer", freePort(t))
	cmd.Stdout, cmd.Stderr = said, said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("what the node said last:\n%s", said)
		}
	})
	eventually(t, func() error {
		_, err := exec.Command(n.binary, "topic", "list", "--kafka", n.kafka).Output()
		return err
	})
	return n
}

func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func (n *node) run(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command(n.binary, append(args, "--kafka", n.kafka)...).CombinedOutput()
	if err != nil {
		t.Fatalf("tube %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// createTopic makes a topic that stores a message with an id once.
func (n *node) createTopic(t *testing.T, topic string) {
	t.Helper()
	n.run(t, "topic", "create", topic, "--partitions", "1", "--config", "tube.dedupe.window=600000", "-q")
}

// read returns the values in a topic.
func (n *node) read(t *testing.T, topic string) []string {
	t.Helper()
	return strings.Fields(n.run(t, "consume", topic, "--until-end", "-q"))
}
