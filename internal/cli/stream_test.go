package cli

import (
	"context"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"
)

func cluster(t *testing.T, opts ...kfake.Opt) string {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(1), kfake.SeedTopics(1, "t"),
		kfake.BrokerConfigs(map[string]string{"group.initial.rebalance.delay.ms": "0"})}, opts...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c.ListenAddrs()[0]
}

// Ctrl-C ends a consumer of a group without an error, and the group goes on
// after what was written.
func TestCtrlCKeepsTheGroupsPosition(t *testing.T) {
	addr := cluster(t)
	a, _, log := testApp(strings.NewReader("one\ntwo\n"))
	if code := a.run(context.Background(), []string{"produce", "t", "--kafka", addr}); code != 0 {
		t.Fatal(log)
	}
	ctx, ctrlC := context.WithCancel(context.Background())
	defer ctrlC()
	a, out, log := testApp(nil)
	ended := make(chan int, 1)
	go func() { ended <- a.run(ctx, []string{"consume", "t", "-g", "g", "--kafka", addr}) }()
	waitFor(t, func() bool { return out.String() == "one\ntwo\n" })
	admin, _, refused := testApp(nil)
	if code := admin.run(context.Background(), []string{"group", "reset", "g", "--to", "start", "--kafka", addr}); code != exitConflict || !strings.Contains(refused.String(), "has 1 member") {
		t.Errorf("reset under a member: exit code %d, %s", code, refused)
	}
	ctrlC()
	if code := <-ended; code != 0 || log.String() != "" {
		t.Errorf("exit code %d, %s", code, log)
	}
	a, out, _ = testApp(nil)
	if code := a.run(context.Background(), []string{"group", "describe", "g", "--kafka", addr}); code != 0 || !strings.Contains(out.String(), "Lag          0") {
		t.Errorf("exit code %d, %s", code, out)
	}
}

// Ctrl-C at the keyboard must not lose lines that were typed already.
func TestCtrlCSendsWhatWasRead(t *testing.T) {
	addr := cluster(t)
	in, typed := io.Pipe()
	defer typed.Close()
	ctx, ctrlC := context.WithCancel(context.Background())
	defer ctrlC()
	a, _, log := testApp(in)
	ended := make(chan int, 1)
	go func() { ended <- a.run(ctx, []string{"produce", "t", "--kafka", addr}) }()
	if _, err := io.WriteString(typed, "typed\n"); err != nil {
		t.Fatal(err)
	}
	reader, out, _ := testApp(nil)
	if code := reader.run(context.Background(), []string{"consume", "t", "-n", "1", "--kafka", addr}); code != 0 || out.String() != "typed\n" {
		t.Fatalf("exit code %d, %q", code, out)
	}
	ctrlC()
	if code := <-ended; code != 0 || !strings.Contains(log.String(), "Stored 1 message in t") {
		t.Errorf("exit code %d, %s", code, log)
	}
}

// The first message that is refused ends the work and is named.
func TestProduceNamesTheLineThatFailed(t *testing.T) {
	addr := cluster(t)
	a, _, log := testApp(strings.NewReader("small\n" + strings.Repeat("x", 2<<20) + "\n"))
	code := a.run(context.Background(), []string{"produce", "t", "--kafka", addr})
	if text := log.String(); code != exitFailed || !strings.Contains(text, "line 2") || !strings.Contains(text, "1 message stored") || !strings.Contains(text, "max.message.bytes") {
		t.Errorf("exit code %d, %s", code, text)
	}
}

func waitFor(t *testing.T, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("waited too long")
		}
	}
}
