package test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
	"github.com/tube-mq/tube/proto/tube/v1/tubev1connect"
)

// queues is a client of the queue services of one node.
type queues struct {
	t *testing.T
	tubev1connect.QueueServiceClient
	admin tubev1connect.QueueAdminServiceClient
}

// queuesAt speaks HTTP/2 in the clear, so that streams work.
func queuesAt(t *testing.T, addr string) *queues {
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	t.Cleanup(transport.CloseIdleConnections)
	c := &http.Client{Transport: transport}
	return &queues{t, tubev1connect.NewQueueServiceClient(c, "http://"+addr), tubev1connect.NewQueueAdminServiceClient(c, "http://"+addr)}
}

func (n *node) queues() *queues { return queuesAt(n.t, n.http) }

// ask calls once, with a limit of time.
func ask[Q, A any](ctx context.Context, f func(context.Context, *connect.Request[Q]) (*connect.Response[A], error), q *Q) (*A, error) {
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	r, err := f(ctx, connect.NewRequest(q))
	if err != nil {
		return nil, err
	}
	return r.Msg, nil
}

// must calls and fails the test if it is refused.
func must[Q, A any](t *testing.T, f func(context.Context, *connect.Request[Q]) (*connect.Response[A], error), q *Q) *A {
	t.Helper()
	a, err := ask(context.Background(), f, q)
	if err != nil {
		t.Fatalf("%T: %v", q, err)
	}
	return a
}

// reasonOf is what the error's detail says to a program.
func reasonOf(err error) tubev1.QueueErrorDetail_Reason {
	var e *connect.Error
	if errors.As(err, &e) {
		for _, d := range e.Details() {
			if v, err := d.Value(); err == nil {
				if q, ok := v.(*tubev1.QueueErrorDetail); ok {
					return q.Reason
				}
			}
		}
	}
	return tubev1.QueueErrorDetail_REASON_UNSPECIFIED
}

// group makes a queue group that begins at the start of its topic.
func (q *queues) group(name, topic string, s *tubev1.QueueSettings) {
	q.t.Helper()
	must(q.t, q.admin.CreateGroup, &tubev1.CreateGroupRequest{Group: name, Topic: topic, Settings: s, From: &tubev1.Position{At: &tubev1.Position_Start{Start: true}}})
}

func out(value string, change ...func(*tubev1.OutgoingMessage)) *tubev1.OutgoingMessage {
	m := &tubev1.OutgoingMessage{Value: []byte(value)}
	for _, c := range change {
		c(m)
	}
	return m
}

func withKey(key string) func(*tubev1.OutgoingMessage) {
	return func(m *tubev1.OutgoingMessage) { m.Key = []byte(key) }
}

func withID(id string) func(*tubev1.OutgoingMessage) {
	return func(m *tubev1.OutgoingMessage) { m.Id = id }
}

func withHeader(name, value string) func(*tubev1.OutgoingMessage) {
	return func(m *tubev1.OutgoingMessage) { m.Headers = map[string]string{name: value} }
}

func after(d time.Duration) func(*tubev1.OutgoingMessage) {
	return func(m *tubev1.OutgoingMessage) {
		m.When = &tubev1.OutgoingMessage_Delay{Delay: durationpb.New(d)}
	}
}

// send stores messages, all of which must be taken.
func (q *queues) send(topic string, ms ...*tubev1.OutgoingMessage) []*tubev1.SendResult {
	q.t.Helper()
	a := must(q.t, q.Send, &tubev1.SendRequest{Topic: topic, Messages: ms})
	for _, r := range a.Results {
		if r.Error != nil {
			q.t.Fatalf("send: %v", r.Error)
		}
	}
	return a.Results
}

func (q *queues) take(group, who string, max int, wait time.Duration) []*tubev1.QueueMessage {
	q.t.Helper()
	return must(q.t, q.Receive, &tubev1.ReceiveRequest{Group: group, MaxMessages: int32(max), Wait: durationpb.New(wait), ConsumerId: who}).Messages
}

// takeAll receives until as many messages are there as are wanted.
func (q *queues) takeAll(group, who string, want int) (got []*tubev1.QueueMessage) {
	q.t.Helper()
	for deadline := time.Now().Add(20 * time.Second); len(got) < want; {
		if time.Now().After(deadline) {
			q.t.Fatalf("group %s gave %d messages, want %d: %v", group, len(got), want, texts(got))
		}
		got = append(got, q.take(group, who, want-len(got), time.Second)...)
	}
	return got
}

// nothing fails the test if the group has something to give.
func (q *queues) nothing(group, who string) {
	q.t.Helper()
	if got := q.take(group, who, 10, 0); len(got) > 0 {
		q.t.Errorf("group %s gives %s %v, want nothing", group, who, texts(got))
	}
}

func (q *queues) ack(group string, ms ...*tubev1.QueueMessage) {
	q.t.Helper()
	settled(q.t, must(q.t, q.Acknowledge, &tubev1.AcknowledgeRequest{Group: group, LeaseIds: leaseIDs(ms)}).Results)
}

func (q *queues) nack(group string, m *tubev1.QueueMessage, reason string, delay time.Duration) {
	q.t.Helper()
	e := &tubev1.NackEntry{LeaseId: m.LeaseId, Reason: reason, When: &tubev1.NackEntry_Delay{Delay: durationpb.New(delay)}}
	settled(q.t, must(q.t, q.Nack, &tubev1.NackRequest{Group: group, Entries: []*tubev1.NackEntry{e}}).Results)
}

func settled(t *testing.T, rs []*tubev1.LeaseResult) {
	t.Helper()
	for _, r := range rs {
		if r.Error != nil {
			t.Errorf("lease %s: %v", r.LeaseId, r.Error)
		}
	}
}

func leaseIDs(ms []*tubev1.QueueMessage) (ids []string) {
	for _, m := range ms {
		ids = append(ids, m.LeaseId)
	}
	return ids
}

func texts(ms []*tubev1.QueueMessage) (vs []string) {
	for _, m := range ms {
		vs = append(vs, string(m.Value))
	}
	return vs
}

func expectValues(t *testing.T, got []*tubev1.QueueMessage, want ...string) {
	t.Helper()
	if g, w := fmt.Sprint(texts(got)), fmt.Sprint(want); g != w {
		t.Fatalf("received %s, want %s", g, w)
	}
}
