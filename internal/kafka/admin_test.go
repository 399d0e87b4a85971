package kafka

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tube-mq/tube/internal/master"
	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/record"
)

// instantMeta commits at once to metadata in memory. Safe for concurrent use.
type instantMeta struct {
	mu      sync.Mutex
	machine *meta.Machine
	index   record.Index
	err     error // of every proposal, if set
	// wait holds proposals up until their context ends.
	wait bool
}

func (m *instantMeta) Propose(ctx context.Context, data []byte) (any, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.wait {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	if m.err != nil {
		return nil, m.err
	}
	m.index++
	return m.machine.Apply(m.index, data), nil
}

func (m *instantMeta) image() *meta.Image {
	m.mu.Lock()
	defer m.mu.Unlock()
	im := *m.machine.Image()
	im.Controller = 1
	return &im
}

// adminDoor is a door to a real master on metadata in memory. The node is 1 of
// the brokers 1 and 2; new topics have 4 partitions.
type adminDoor struct {
	*Door
	t    *testing.T
	meta *instantMeta
}

func newAdminDoor(t *testing.T) *adminDoor {
	t.Helper()
	m := &instantMeta{machine: meta.New()}
	for _, c := range [][]byte{
		meta.Bootstrap(time.UnixMilli(1), "cluster"),
		meta.RegisterNode(time.UnixMilli(1), meta.Node{ID: 1, Incarnation: "a", Roles: []string{"master", "broker"}, Zone: "east", Kafka: "one.example:9092"}),
		meta.RegisterNode(time.UnixMilli(1), meta.Node{ID: 2, Incarnation: "b", Roles: []string{"broker"}, Kafka: "two.example:9093"}),
	} {
		r, err := m.Propose(t.Context(), c)
		if err = errors.Join(err, r.(meta.Result).Err); err != nil {
			t.Fatal(err)
		}
	}
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	admin := master.New(master.Config{Node: 1, Proposer: m, Image: m.image, Logger: quiet, DefaultPartitions: 4, AutoCreateTopics: true})
	d, err := New(Config{Node: 1, Logger: quiet}, Backend{Topics: admin, Placement: admin, Image: m.image})
	if err != nil {
		t.Fatal(err)
	}
	return &adminDoor{Door: d, t: t, meta: m}
}

// askAdmin sends a request through the bytes of its version, both ways.
func askAdmin[R kmsg.Response](d *adminDoor, version int16, req kmsg.Request) R {
	d.t.Helper()
	return askGroups[R](&groupDoor{Door: d.Door, t: d.t}, version, req)
}

// topic makes a topic with settings, given as name, value, name, value.
func (d *adminDoor) topic(name string, partitions int, settings ...string) *meta.Topic {
	d.t.Helper()
	spec := master.TopicSpec{Name: name, Partitions: partitions, ReplicationFactor: 1, Settings: map[string]string{}}
	for i := 0; i < len(settings); i += 2 {
		spec.Settings[settings[i]] = settings[i+1]
	}
	t, err := d.topics.CreateTopic(d.t.Context(), spec)
	if err != nil {
		d.t.Fatal(err)
	}
	return t
}

// unchanged fails the test if f changes anything that the masters know.
func (d *adminDoor) unchanged(f func()) {
	d.t.Helper()
	before := d.meta.machine.Digest() // the index is in it: a proposal that is refused counts too
	f()
	if d.meta.machine.Digest() != before {
		d.t.Fatal("something was proposed")
	}
}

func wantAdminCode(t *testing.T, got int16, message *string, want *kerr.Error) {
	t.Helper()
	wantGroupCode(t, got, want)
	if want == nil && message != nil || want != nil && (message == nil || *message == "") {
		t.Fatalf("code %v with message %v", want, message)
	}
}

func text(s *string) string {
	if s == nil {
		return "<null>"
	}
	return *s
}

func ptr[T any](v T) *T { return &v }

func TestAdminErrorsHaveACodeAndAText(t *testing.T) {
	d := newAdminDoor(t)
	for _, c := range []struct {
		err  error
		code *kerr.Error
		says string
		not  string
	}{
		{fmt.Errorf("%w: t", meta.ErrTopicExists), kerr.TopicAlreadyExists, "exists: t", ""},
		{fmt.Errorf("%w: disk /data is broken", master.ErrUnavailable), kerr.NotController, "", "/data"},
		{fmt.Errorf("%w: %w", master.ErrUnavailable, context.DeadlineExceeded), kerr.RequestTimedOut, "", "master"},
		{errors.New("index 7 of /data"), kerr.UnknownServerError, "", "/data"},
		{refuse(kerr.PolicyViolation, "too %s", "much"), kerr.PolicyViolation, "too much", ""},
	} {
		code, message := d.adminError(c.err, "Test", "t")
		wantAdminCode(t, code, message, c.code)
		if !strings.Contains(*message, c.says) || c.not != "" && strings.Contains(*message, c.not) {
			t.Errorf("%v is told as %q", c.err, *message)
		}
	}
}

// An answer can be many times its question, so there is an end to it.
func TestAbsurdAdminRequestsEndTheirConnection(t *testing.T) {
	d := newAdminDoor(t)
	const n = maxAdminItems + 1
	for _, req := range []kmsg.Request{
		&kmsg.CreateTopicsRequest{Topics: make([]kmsg.CreateTopicsRequestTopic, n)},
		&kmsg.CreatePartitionsRequest{Topics: make([]kmsg.CreatePartitionsRequestTopic, n)},
		&kmsg.DeleteTopicsRequest{TopicNames: make([]string, n)},
		&kmsg.DeleteTopicsRequest{Version: 6, Topics: make([]kmsg.DeleteTopicsRequestTopic, n)},
		&kmsg.DescribeConfigsRequest{Resources: make([]kmsg.DescribeConfigsRequestResource, n)},
		&kmsg.AlterConfigsRequest{Resources: make([]kmsg.AlterConfigsRequestResource, n)},
		&kmsg.IncrementalAlterConfigsRequest{Resources: make([]kmsg.IncrementalAlterConfigsRequestResource, n)},
		&kmsg.AlterPartitionAssignmentsRequest{Topics: make([]kmsg.AlterPartitionAssignmentsRequestTopic, n)},
		&kmsg.ListPartitionReassignmentsRequest{Topics: []kmsg.ListPartitionReassignmentsRequestTopic{{Partitions: make([]int32, n)}}},
		&kmsg.ElectLeadersRequest{Topics: []kmsg.ElectLeadersRequestTopic{{Partitions: make([]int32, n)}}},
	} {
		if resp := d.table[req.Key()].handle(d.Door, t.Context(), &client{}, req); resp != nil {
			t.Errorf("%T with %d items is answered", req, n)
		}
	}
}
