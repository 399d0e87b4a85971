package test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// javaClient is the version of Kafka's own client that the tests run, and what it needs.
var javaClient = []string{
	"org/apache/kafka/kafka-clients/4.1.1/kafka-clients-4.1.1.jar",
	"org/slf4j/slf4j-api/1.7.36/slf4j-api-1.7.36.jar",
}

var javaOnce = sync.OnceValues(compileJava)

// compileJava makes a class path with test/java compiled; an error says what is missing.
func compileJava() (string, error) {
	for _, tool := range []string{"java", "javac"} {
		if _, err := exec.LookPath(tool); err != nil {
			return "", fmt.Errorf("there is no %s here: install a JDK of version 17 or later", tool)
		}
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", err
	}
	var path []string
	for _, jar := range javaClient {
		jar = filepath.Join(home, ".m2", "repository", jar)
		if _, err := os.Stat(jar); err != nil {
			return "", fmt.Errorf("Kafka's client is not here: run .ci/tools, which has Maven fetch it (%w)", err)
		}
		path = append(path, jar)
	}
	dir, err := os.MkdirTemp("", "tube-test-java-")
	if err != nil {
		return "", err
	}
	path = append(path, dir)
	joined := strings.Join(path, string(os.PathListSeparator))
	out, err := exec.Command("javac", "-cp", joined, "-d", dir, filepath.Join("java", "ShareClient.java")).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("javac: %w\n%s", err, out)
	}
	return joined, nil
}

// java runs ShareClient to its end and returns its lines.
func (n *node) java(t *testing.T, within time.Duration, args ...string) []string {
	t.Helper()
	path, err := javaOnce()
	if err != nil && strings.Contains(err.Error(), "javac: ") {
		t.Fatal(err)
	}
	if err != nil {
		t.Skip(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	cmd := exec.CommandContext(ctx, "java", append([]string{"-Xmx128m", "-cp", path, "ShareClient", n.kafka}, args...)...)
	var out, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaints
	if err := cmd.Run(); err != nil {
		t.Fatalf("%v: %v\n%s\n%s", cmd.Args, err, &out, &complaints)
	}
	return strings.Split(strings.TrimSpace(out.String()), "\n")
}

// Kafka's own share consumer: every record comes, what is released comes again with its
// count, what is rejected is a dead letter; the admin client sees the group.
func TestJavaShareConsumer(t *testing.T) {
	n := newNode(t)
	n.start()
	n.createTopic("t", 1)
	n.groupSettings(t, "g", "share.auto.offset.reset", "earliest")
	cl := n.client()
	for _, v := range []string{"one", "release", "reject", "last"} {
		if err := cl.ProduceSync(timeout(t, 20*time.Second), &kgo.Record{Topic: "t", Value: []byte(v)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	lines := n.java(t, 2*time.Minute, "g", "t", "3000", "verdicts")
	slices.Sort(lines)
	want := []string{"closed", "got 0 0 1 one", "got 0 1 1 release", "got 0 1 2 release", "got 0 2 1 reject", "got 0 3 1 last"}
	if !slices.Equal(lines, want) {
		t.Errorf("%q, want %q", lines, want)
	}
	dead := n.readAll("g.dead-letter")[0]
	if len(dead) != 1 || string(dead[0].Value) != "reject" {
		t.Errorf("dead letters %v", dead)
	}
	told := n.java(t, time.Minute, "g", "t", "0", "describe")
	for _, line := range []string{"state Empty members 0", "offset t-0 4", "group g Share"} {
		if !slices.Contains(told, line) {
			t.Errorf("the admin client says %q, not %q", told, line)
		}
	}
}
