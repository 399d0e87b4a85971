package cli

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/tube-mq/tube/internal/config"
	"github.com/tube-mq/tube/internal/node"
)

// The scripts in testdata/logdump look into folders that a node left behind:
// "stopped" after a clean stop, "killed" as a kill leaves it, with 30 messages in
// topic orders and none in topic idle.
func TestLogDump(t *testing.T) {
	folders := t.TempDir()
	leaveFolders(t, folders)
	testscript.Run(t, testscript.Params{
		Dir: "testdata/logdump",
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits": exits, "flip": flip,
		},
		Setup: func(e *testscript.Env) error {
			e.Setenv("GORACE", "atexit_sleep_ms=0")
			return os.CopyFS(e.WorkDir, os.DirFS(folders))
		},
	})
}

// flip GLOB OFFSET flips a bit of the last file that matches; an offset below 0
// counts from the end.
func flip(ts *testscript.TestScript, _ bool, args []string) {
	names, err := filepath.Glob(ts.MkAbs(args[0]))
	ts.Check(err)
	if len(names) == 0 {
		ts.Fatalf("no file matches %s", args[0])
	}
	b, err := os.ReadFile(names[len(names)-1])
	ts.Check(err)
	at, err := strconv.Atoi(args[1])
	ts.Check(err)
	if at < 0 {
		at += len(b)
	}
	b[at] ^= 1
	ts.Check(os.WriteFile(names[len(names)-1], b, 0o600))
}

func leaveFolders(t *testing.T, dir string) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cfg, err := config.Load(ctx, config.Sources{Flags: map[string]string{
		"data": filepath.Join(dir, "stopped"), "kafka": "127.0.0.1:0", "http": "127.0.0.1:0", "peer": "127.0.0.1:0",
	}})
	if err != nil {
		t.Fatal(err)
	}
	n, err := node.Start(ctx, cfg, "v0.0.0", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	c, err := kgo.NewClient(kgo.SeedBrokers(n.Addrs().Kafka))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, topic := range []string{"orders", "idle"} {
		if _, err := kadm.NewClient(c).CreateTopic(ctx, 1, 1, nil, topic); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 30 {
		if err := c.ProduceSync(ctx, &kgo.Record{Topic: "orders", Value: fmt.Append(nil, "message ", i)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	// Nothing is under way: a copy is what a kill would leave.
	if err := os.CopyFS(filepath.Join(dir, "killed"), os.DirFS(cfg.Data)); err != nil {
		t.Fatal(err)
	}
	if err := n.Stop(ctx); err != nil {
		t.Fatal(err)
	}
}
