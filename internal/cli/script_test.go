package cli

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/rpc"
)

// The scripts in testdata/script read as a user's session. Here they run against
// a stand-in broker; test/cli runs the same ones against a node.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"tube": func() { os.Exit(Main(os.Args[1:])) },
	})
}

func TestSessions(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:           "testdata/script",
		UpdateScripts: os.Getenv("UPDATE_SCRIPTS") != "",
		Cmds:          map[string]func(*testscript.TestScript, bool, []string){"exits": exits},
		Condition:     func(name string) (bool, error) { return name == "standin", nil },
		Setup: func(e *testscript.Env) error {
			c, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.DefaultNumPartitions(4), kfake.AllowAutoTopicCreation(),
				kfake.BrokerConfigs(map[string]string{"group.initial.rebalance.delay.ms": "0"}))
			if err != nil {
				return err
			}
			e.Defer(c.Close)
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				return err
			}
			s := rpc.New(rpc.Config{
				Self: rpc.Self{Node: 1, Version: "v0.1.0", Started: time.Now()}, Cluster: standIn{}, Events: standIn{},
				Ready: func() error { return nil }, Metrics: http.NotFoundHandler(), Logger: slog.New(slog.DiscardHandler),
			})
			done := make(chan error, 1)
			go func() { done <- s.Serve(l) }()
			e.Defer(func() {
				if err := s.Stop(t.Context()); err != nil {
					t.Error(err)
				}
				<-done
			})
			e.Setenv("TUBE_KAFKA", strings.Join(c.ListenAddrs(), ","))
			e.Setenv("TUBE_HTTP", l.Addr().String())
			// Else each process that the race detector watches sleeps a second at its end.
			e.Setenv("GORACE", "atexit_sleep_ms=0")
			return nil
		},
	})
}

// exits CODE COMMAND... runs a command that must end with that exit code.
func exits(ts *testscript.TestScript, _ bool, args []string) {
	err := ts.Exec(args[1], args[2:]...)
	var e *exec.ExitError
	if !errors.As(err, &e) || strconv.Itoa(e.ExitCode()) != args[0] {
		ts.Fatalf("want exit code %s, have %v", args[0], err)
	}
}

// standIn is a cluster with one node that had two events.
type standIn struct{}

func (standIn) Image() *meta.Image {
	return &meta.Image{ClusterID: "c1", Controller: 1, Nodes: map[record.NodeID]*meta.Node{
		1: {ID: 1, Roles: []string{"master", "broker"}, State: meta.NodeUp, Version: "v0.1.0", Kafka: "127.0.0.1:9092"},
	}}
}
func (standIn) Problems() []string                              { return nil }
func (standIn) ClusterProblems() []string                       { return nil }
func (standIn) NodeProblems(context.Context) []rpc.NodeProblems { return nil }
func (standIn) ListEvents(after uint64, limit int) []rpc.Event {
	all := []rpc.Event{
		{Seq: 1, Time: time.Unix(0, 0), Kind: "node-up", Subject: "node 1"},
		{Seq: 2, Time: time.Unix(1, 0), Kind: "topic-created", Subject: "topic orders", Text: "a\x1b[31m\nb"},
	}
	return all[min(int(after), 2):][:min(limit, 2-min(int(after), 2))]
}
func (standIn) LastEvent() (uint64, <-chan struct{}) { return 2, nil }
