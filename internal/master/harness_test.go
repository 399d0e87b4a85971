package master

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/record"
)

// committed is a meta log that commits at once. Safe for concurrent use.
type committed struct {
	mu      sync.Mutex
	machine *meta.Machine
	index   record.Index
	err     error // of every proposal, if set
}

func (c *committed) Propose(_ context.Context, data []byte) (any, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return nil, c.err
	}
	c.index++
	return c.machine.Apply(c.index, data), nil
}

func (c *committed) image() *meta.Image {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.machine.Image()
}

// proposals counts what went into the log, refused or not.
func (c *committed) proposals() record.Index {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.index
}

// newLog is the log of a cluster with a broker for each zone given: 1, 2, …
func newLog(t *testing.T, zones ...string) *committed {
	t.Helper()
	c := &committed{machine: meta.New()}
	for i, z := range zones {
		c.apply(t, meta.RegisterNode(time.UnixMilli(1), meta.Node{ID: record.NodeID(i + 1), Incarnation: "i", Roles: []string{"broker"}, Zone: z, Kafka: "127.0.0.1:9092"}))
	}
	return c
}

func (c *committed) apply(t *testing.T, command []byte) {
	t.Helper()
	r, err := c.Propose(t.Context(), command)
	if err == nil {
		err = r.(meta.Result).Err
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (c *committed) master(node record.NodeID) *Master {
	return New(Config{Node: node, Proposer: c, Image: c.image, DefaultPartitions: 4, AutoCreateTopics: true})
}

func wantErr(t *testing.T, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Fatalf("got %v, want %v", got, want)
	}
}
