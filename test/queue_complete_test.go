package test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
	"github.com/tube-mq/tube/proto/tube/v1/tubev1connect"
)

// Messages are taken from one queue and sent on to another topic by Complete, while
// the node is killed again and again. In the end each was sent on exactly once, and
// is done with: never one without the other.
func TestCompleteIsAllOrNothingThroughKills(t *testing.T) {
	n := newNode(t)
	n.createTopic("in", 3)
	n.createTopic("out", 3)
	q := tubev1connect.NewQueueServiceClient(http.DefaultClient, "http://"+n.http)
	a := tubev1connect.NewQueueAdminServiceClient(http.DefaultClient, "http://"+n.http)
	const messages = 150
	if _, err := a.CreateGroup(t.Context(), connect.NewRequest(&tubev1.CreateGroupRequest{Group: "move", Topic: "in", Settings: &tubev1.QueueSettings{
		Lease: durationpb.New(2 * time.Second), MaxAttempts: new(int32(1000)), Backoff: []*durationpb.Duration{durationpb.New(0)}}})); err != nil {
		t.Fatal(err)
	}
	var send []*tubev1.OutgoingMessage
	for i := range messages {
		send = append(send, &tubev1.OutgoingMessage{Value: fmt.Appendf(nil, "m%d", i), Key: fmt.Appendf(nil, "k%d", i)})
	}
	if r, err := q.Send(t.Context(), connect.NewRequest(&tubev1.SendRequest{Topic: "in", Messages: send})); err != nil || r.Msg.Results[0].Error != nil {
		t.Fatal(r, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() { mover(ctx, q, fmt.Sprint("mover ", w)) })
	}
	for range 3 {
		time.Sleep(400 * time.Millisecond) // of moving
		n.kill()
		n.start()
	}
	eventually(t, 2*time.Minute, func() error {
		r, err := a.GetGroup(ctx, connect.NewRequest(&tubev1.GetGroupRequest{Group: "move"}))
		if err != nil {
			return err
		}
		if r.Msg.Total.Backlog > 0 {
			return fmt.Errorf("%d are not done with", r.Msg.Total.Backlog)
		}
		// What was written down and not carried out is, some seconds later.
		if sent := len(n.valuesOf("out")); sent < messages {
			return fmt.Errorf("%d of %d were sent on", sent, messages)
		}
		return nil
	})
	cancel()
	wg.Wait()
	times := n.valuesOf("out")
	for i := range messages {
		if c := times[fmt.Sprintf("moved m%d", i)]; c != 1 {
			t.Errorf("m%d was sent on %d times", i, c)
		}
	}
}

// valuesOf counts the values in a topic.
func (n *node) valuesOf(topic string) map[string]int {
	times := map[string]int{}
	for _, records := range n.readAll(topic) {
		for _, r := range records {
			times[string(r.Value)]++
		}
	}
	return times
}

// mover sends on what it receives until ctx ends, whatever goes wrong.
func mover(ctx context.Context, q tubev1connect.QueueServiceClient, id string) {
	for ctx.Err() == nil {
		r, err := q.Receive(ctx, connect.NewRequest(&tubev1.ReceiveRequest{Group: "move", MaxMessages: 3, Wait: durationpb.New(time.Second), ConsumerId: id}))
		if err != nil {
			time.Sleep(20 * time.Millisecond)
			continue
		}
		for _, m := range r.Msg.Messages {
			call, cancel := context.WithTimeout(ctx, 5*time.Second)
			_, _ = q.Complete(call, connect.NewRequest(&tubev1.CompleteRequest{Group: "move", LeaseIds: []string{m.LeaseId}, Send: []*tubev1.SendRequest{
				{Topic: "out", Messages: []*tubev1.OutgoingMessage{{Value: []byte("moved " + string(m.Value))}}}}})) // unknown is for the check to judge
			cancel()
		}
	}
}

// A lease that is none has nothing sent.
func TestCompleteWithALostLeaseSendsNothing(t *testing.T) {
	n := newNode(t)
	n.createTopic("in", 1)
	n.createTopic("out", 1)
	q := tubev1connect.NewQueueServiceClient(http.DefaultClient, "http://"+n.http)
	a := tubev1connect.NewQueueAdminServiceClient(http.DefaultClient, "http://"+n.http)
	if _, err := a.CreateGroup(t.Context(), connect.NewRequest(&tubev1.CreateGroupRequest{Group: "g", Topic: "in"})); err != nil {
		t.Fatal(err)
	}
	if _, err := q.Send(t.Context(), connect.NewRequest(&tubev1.SendRequest{Topic: "in", Messages: []*tubev1.OutgoingMessage{{Value: []byte("a")}, {Value: []byte("b")}}})); err != nil {
		t.Fatal(err)
	}
	got, err := q.Receive(t.Context(), connect.NewRequest(&tubev1.ReceiveRequest{Group: "g", MaxMessages: 2, Wait: durationpb.New(5 * time.Second)}))
	if err != nil || len(got.Msg.Messages) != 2 {
		t.Fatal(got, err)
	}
	first, second := got.Msg.Messages[0].LeaseId, got.Msg.Messages[1].LeaseId
	if _, err := q.Acknowledge(t.Context(), connect.NewRequest(&tubev1.AcknowledgeRequest{Group: "g", LeaseIds: []string{first}})); err != nil {
		t.Fatal(err)
	}
	complete := func(leases ...string) *tubev1.CompleteResponse {
		r, err := q.Complete(t.Context(), connect.NewRequest(&tubev1.CompleteRequest{Group: "g", LeaseIds: leases, Send: []*tubev1.SendRequest{
			{Topic: "out", Messages: []*tubev1.OutgoingMessage{{Value: []byte(strings.Join(leases, " "))}}}}}))
		if err != nil {
			t.Fatal(err)
		}
		return r.Msg
	}
	if r := complete(first, second); r.Results[0].Error == nil && r.Results[1].Error == nil || len(r.Sent) > 0 {
		t.Errorf("one was done with already: %v", r)
	}
	if r := complete(second); r.Results[0].Error != nil || len(r.Sent) != 1 || r.Sent[0].Results[0].Offset != 0 {
		t.Errorf("%v", r)
	}
	if out := n.readAll("out"); len(out[0]) != 1 || string(out[0][0].Value) != second {
		t.Errorf("%v", out)
	}
}

// What Complete could never send is refused, and nothing is done: the lease is as it was.
func TestCompleteWithAMessageThatIsTooLargeDoesNothing(t *testing.T) {
	n := newNode(t)
	n.createTopic("in", 1)
	n.createTopic("out", 1)
	q := n.queues()
	q.group("g", "in", nil)
	q.send("in", out("a"))
	m := q.takeAll("g", "a", 1)[0]
	must(t, q.Extend, &tubev1.ExtendRequest{Group: "g", LeaseIds: []string{m.LeaseId}, Duration: durationpb.New(time.Hour)})
	complete := func(leases []string, value []byte) (*connect.Response[tubev1.CompleteResponse], error) {
		return q.Complete(t.Context(), connect.NewRequest(&tubev1.CompleteRequest{Group: "g", LeaseIds: leases, Send: []*tubev1.SendRequest{
			{Topic: "out", Messages: []*tubev1.OutgoingMessage{out("small"), {Value: value}}}}}))
	}
	if r, err := complete([]string{m.LeaseId}, make([]byte, 2<<20)); reasonOf(err) != tubev1.QueueErrorDetail_MESSAGE_TOO_LARGE {
		t.Errorf("%v, %v", r, err)
	}
	// Nor does a call that is refused for another lease shorten this one.
	if r, err := complete([]string{m.LeaseId, "0-9-1-1"}, nil); err != nil || r.Msg.Results[1].Error == nil || len(r.Msg.Sent) > 0 {
		t.Errorf("%v, %v", r, err)
	}
	p := must(t, q.admin.ListPending, &tubev1.ListPendingRequest{Group: "g"}).Messages
	if len(p) != 1 || p[0].LeaseId != m.LeaseId || time.Until(p[0].Until.AsTime()) < 50*time.Minute {
		t.Errorf("%v", p)
	}
	if sent := n.valuesOf("out"); len(sent) > 0 {
		t.Errorf("%v", sent)
	}
	if r, err := complete([]string{m.LeaseId}, []byte("fits")); err != nil || r.Msg.Results[0].Error != nil || len(r.Msg.Sent) != 1 {
		t.Errorf("%v, %v", r, err)
	}
}
