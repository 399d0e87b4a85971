package test

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// clientsDir is where .ci/clients puts the clients of other languages.
const clientsDir = "../.cache/clients"

// fetched returns the path of something in clientsDir; without it the test is skipped.
func fetched(t *testing.T, parts ...string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(append([]string{clientsDir}, parts...)...))
	if err != nil {
		t.Fatal(err)
	}
	if found, _ := filepath.Glob(path); len(found) == 0 {
		t.Skipf("%s is not here: run .ci/clients, which says what it cannot fetch", filepath.Join(parts...))
	}
	return path
}

// atLength skips what only make compat runs.
func atLength(t *testing.T) {
	t.Helper()
	if os.Getenv("COMPAT") == "" {
		t.Skip("takes long: make compat")
	}
}

// javaSession is a class path of a version of Kafka's client, with test/java/session
// compiled for it.
func javaSession(t *testing.T, version string) string {
	t.Helper()
	sources, err := filepath.Glob("java/session/*.java")
	if err != nil {
		t.Fatal(err)
	}
	if version == "3.9" {
		sources = slices.DeleteFunc(sources, func(s string) bool { return strings.HasSuffix(s, "Newer.java") })
		jars := []string{fetched(t, "java-3.9", "kafka-clients-*.jar")}
		for _, jar := range []string{"slf4j-api", "slf4j-nop", "lz4-java", "snappy-java", "zstd-jni"} {
			jars = append(jars, fetched(t, "java", jar+"-*.jar"))
		}
		return compiled(t, jars, sources)
	}
	return compiled(t, []string{fetched(t, "java", "kafka-clients-*.jar"), filepath.Join(fetched(t, "java"), "*")}, sources)
}

// compiled compiles sources; jars may be patterns. It returns the class path.
func compiled(t *testing.T, jars, sources []string) string {
	t.Helper()
	if _, err := exec.LookPath("javac"); err != nil {
		t.Skip("there is no javac here: install a JDK of version 17 or later")
	}
	var path []string
	for _, pattern := range jars {
		if found, _ := filepath.Glob(pattern); strings.HasSuffix(pattern, ".jar") && len(found) > 0 {
			path = append(path, found...)
		} else {
			path = append(path, pattern) // java knows what * is
		}
	}
	dir := t.TempDir()
	joined := strings.Join(append(path, dir), string(os.PathListSeparator))
	args := append([]string{"-nowarn", "-cp", joined, "-d", dir}, sources...)
	if out, err := exec.Command("javac", args...).CombinedOutput(); err != nil {
		t.Fatalf("javac: %v\n%s", err, out)
	}
	return joined
}

// session runs a client that says "ok NAME" or "FAILED NAME: why" of each scenario.
func session(t *testing.T, within time.Duration, env []string, argv ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = append(os.Environ(), env...)
	cmd.WaitDelay = time.Second
	var out, complaints bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &complaints
	err := cmd.Run()
	passed := 0
	for line := range strings.Lines(out.String()) {
		if strings.HasPrefix(line, "ok ") {
			passed++
			continue
		}
		t.Error(strings.TrimSpace(line))
	}
	if err != nil || passed == 0 {
		t.Errorf("%d scenarios passed, it ended with %v (%v)\n%s", passed, err, ctx.Err(), last(complaints.String(), 4000))
	}
}

func last(s string, bytes int) string { return s[max(0, len(s)-bytes):] }

// onOne starts a node and runs a test beside others: sessions wait more than they work.
func onOne(t *testing.T) (servers, replicas string) {
	t.Parallel()
	return newNode(t).kafka, "1"
}

func onThree(t *testing.T) (servers, replicas string) {
	return strings.Join(newCluster(t, 3).all(), ","), "3"
}

// Kafka's own client, as its users use it: see test/java/session.
func TestCompatJava(t *testing.T) {
	path := javaSession(t, "4.1")
	servers, replicas := onOne(t)
	session(t, 4*time.Minute, nil, "java", "-Xmx256m", "-cp", path, "Session", servers, replicas, "", "8")
}

func TestCompatJavaOlder(t *testing.T) {
	atLength(t)
	path := javaSession(t, "3.9")
	servers, replicas := onOne(t)
	session(t, 4*time.Minute, nil, "java", "-Xmx256m", "-cp", path, "Session", servers, replicas, "", "8")
}

func TestCompatJavaCluster(t *testing.T) {
	atLength(t)
	path := javaSession(t, "4.1")
	servers, replicas := onThree(t)
	session(t, 5*time.Minute, nil, "java", "-Xmx256m", "-cp", path, "Session", servers, replicas, "", "6")
}

// librdkafka, newer than kcat's, by way of confluent-kafka: see test/python.
func TestCompatPython(t *testing.T) {
	python := fetched(t, "python", "bin", "python")
	servers, replicas := onOne(t)
	session(t, 4*time.Minute, nil, python, "python/session.py", servers, replicas)
}

func TestCompatPythonCluster(t *testing.T) {
	atLength(t)
	python := fetched(t, "python", "bin", "python")
	servers, replicas := onThree(t)
	session(t, 5*time.Minute, nil, python, "python/session.py", servers, replicas)
}

// kafkajs: see test/javascript.
func TestCompatJavaScript(t *testing.T) {
	modules := fetched(t, "javascript", "node_modules")
	servers, replicas := onOne(t)
	session(t, 4*time.Minute, []string{"NODE_PATH=" + modules}, "node", "javascript/session.js", servers, replicas)
}

func TestCompatJavaScriptCluster(t *testing.T) {
	atLength(t)
	modules := fetched(t, "javascript", "node_modules")
	servers, replicas := onThree(t)
	session(t, 5*time.Minute, []string{"NODE_PATH=" + modules}, "node", "javascript/session.js", servers, replicas)
}

// Kafka's client writes and two groups read, one of each protocol, while each node is
// killed and started again: nothing is lost, repeated or out of order.
func TestCompatJavaRidesOutKills(t *testing.T) {
	atLength(t)
	path := javaSession(t, "4.1")
	c := newCluster(t, 3)
	// The ride itself says when a group stands still; this is only for one that never ends.
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "java", "-Xmx256m", "-cp", path, "Ride", strings.Join(c.all(), ","), "3")
	out := &logBuffer{}
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = out, out, time.Second
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	eventually(t, time.Minute, func() error {
		if out.contains("riding") {
			return nil
		}
		return io.ErrNoProgress
	})
	for range 2 {
		c.killLeaderAndBack("ride")
	}
	in.Close()
	if err := <-ended; err != nil || !out.contains("ok ride") {
		t.Errorf("%v\n%s", err, out)
		for _, group := range []string{"ride-classic", "ride-consumer"} {
			state, err := exec.Command(tubeBinary, "group", "describe", group, "--kafka", strings.Join(c.all(), ",")).CombinedOutput()
			t.Logf("%s %v", state, err)
		}
	}
}

// killLeaderAndBack kills the node that leads each partition in turn, for as long as a
// client needs to notice, and starts it again.
func (c *cluster) killLeaderAndBack(topic string) {
	c.t.Helper()
	for p := range int32(3) {
		id := c.leader(topic, p)
		c.node(id).kill()
		c.waitLed(topic, 3)
		c.start(id)
		c.t.Log("killed node " + strconv.Itoa(id) + ", it is back")
	}
}
