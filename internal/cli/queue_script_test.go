package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/rogpeppe/go-internal/testscript"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
	"github.com/tube-mq/tube/proto/tube/v1/tubev1connect"
)

// The scripts in testdata/queue run against services that answer what they are made
// to. "asked PATTERN" looks at what the last command asked for, as JSON.
func TestQueueSessions(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:           "testdata/queue",
		UpdateScripts: os.Getenv("UPDATE_SCRIPTS") != "",
		Cmds:          map[string]func(*testscript.TestScript, bool, []string){"exits": exits, "asked": asked},
		Setup: func(e *testscript.Env) error {
			q := &standInQueues{}
			mux := http.NewServeMux()
			mux.Handle(tubev1connect.NewQueueServiceHandler(q, connect.WithInterceptors(q)))
			mux.Handle(tubev1connect.NewQueueAdminServiceHandler(standInAdmin{standInQueues: q}, connect.WithInterceptors(q)))
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				return err
			}
			s := &http.Server{Handler: mux}
			done := make(chan error, 1)
			go func() { done <- s.Serve(l) }()
			e.Defer(func() { s.Close(); <-done })
			e.Values["queues"] = q
			e.Setenv("TUBE_HTTP", l.Addr().String())
			e.Setenv("TZ", "UTC")
			e.Setenv("GORACE", "atexit_sleep_ms=0")
			return nil
		},
	})
}

func asked(ts *testscript.TestScript, neg bool, args []string) {
	got := ts.Value("queues").(*standInQueues).last()
	for _, pattern := range args {
		if regexp.MustCompile(pattern).MatchString(got) == neg {
			ts.Fatalf("%q: asked was %s", pattern, got)
		}
	}
}

// standInQueues is a queue service with one group, billing of orders.
type standInQueues struct {
	tubev1connect.UnimplementedQueueServiceHandler
	mu  sync.Mutex
	was string
}

func (q *standInQueues) last() string {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.was
}

// WrapUnary keeps what is asked for, and refuses groups and topics that are not there.
func (q *standInQueues) WrapUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, req connect.AnyRequest) (connect.AnyResponse, error) {
		b, err := protojson.Marshal(req.Any().(proto.Message))
		if err != nil {
			return nil, err
		}
		q.mu.Lock()
		procedure := req.Spec().Procedure
		q.was = procedure[strings.LastIndex(procedure, "/")+1:] + " " + strings.ReplaceAll(string(b), `, "`, `,"`)
		q.mu.Unlock()
		if g, ok := req.Any().(interface{ GetGroup() string }); ok && g.GetGroup() == "nobody" {
			e := connect.NewError(connect.CodeNotFound, errors.New("unknown queue group: nobody"))
			d, err := connect.NewErrorDetail(&tubev1.QueueErrorDetail{Reason: tubev1.QueueErrorDetail_UNKNOWN_GROUP})
			if err != nil {
				return nil, err
			}
			e.AddDetail(d)
			return nil, e
		}
		return next(ctx, req)
	}
}

func (q *standInQueues) WrapStreamingClient(f connect.StreamingClientFunc) connect.StreamingClientFunc {
	return f
}

func (q *standInQueues) WrapStreamingHandler(f connect.StreamingHandlerFunc) connect.StreamingHandlerFunc {
	return f
}

func (q *standInQueues) Send(_ context.Context, req *connect.Request[tubev1.SendRequest]) (*connect.Response[tubev1.SendResponse], error) {
	out := &tubev1.SendResponse{}
	for i, m := range req.Msg.Messages {
		r := &tubev1.SendResult{Topic: req.Msg.Topic, Offset: int64(i), Id: m.Id, Duplicate: m.Id == "again"}
		if string(m.Value) == "huge" {
			r.Error = &tubev1.ItemError{Code: "invalid_argument", Message: "message too large"}
		}
		out.Results = append(out.Results, r)
	}
	return connect.NewResponse(out), nil
}

func at(second int64) *timestamppb.Timestamp { return timestamppb.New(time.Unix(second, 0)) }

func (q *standInQueues) Receive(_ context.Context, req *connect.Request[tubev1.ReceiveRequest]) (*connect.Response[tubev1.ReceiveResponse], error) {
	out := &tubev1.ReceiveResponse{}
	for i := range min(req.Msg.MaxMessages, 2) {
		out.Messages = append(out.Messages, &tubev1.QueueMessage{
			LeaseId: fmt.Sprintf("0-%d-1-7", i), Id: "i1", Key: []byte("k"), Value: []byte("hello"), Topic: "orders", Offset: int64(i), Attempt: 1,
			LeaseUntil: at(60), Time: at(30), Headers: map[string]string{"a": "2", "b": "x"}, RawHeaders: []*tubev1.RawHeader{{Name: "a", Value: []byte("1")}, {Name: "a", Value: []byte("2")}},
		})
	}
	if req.Msg.ConsumerId == "idle" {
		out.Messages = nil
	}
	return connect.NewResponse(out), nil
}

func results(ids []string) []*tubev1.LeaseResult {
	var out []*tubev1.LeaseResult
	for _, id := range ids {
		r := &tubev1.LeaseResult{LeaseId: id}
		if id == "old" {
			r.Error = &tubev1.ItemError{Code: "failed_precondition", Reason: tubev1.QueueErrorDetail_LEASE_EXPIRED, Message: "lease expired"}
		}
		out = append(out, r)
	}
	return out
}

func (q *standInQueues) Acknowledge(_ context.Context, req *connect.Request[tubev1.AcknowledgeRequest]) (*connect.Response[tubev1.AcknowledgeResponse], error) {
	return connect.NewResponse(&tubev1.AcknowledgeResponse{Results: results(req.Msg.LeaseIds)}), nil
}

func (q *standInQueues) Release(_ context.Context, req *connect.Request[tubev1.ReleaseRequest]) (*connect.Response[tubev1.ReleaseResponse], error) {
	return connect.NewResponse(&tubev1.ReleaseResponse{Results: results(req.Msg.LeaseIds)}), nil
}

func (q *standInQueues) Extend(_ context.Context, req *connect.Request[tubev1.ExtendRequest]) (*connect.Response[tubev1.ExtendResponse], error) {
	return connect.NewResponse(&tubev1.ExtendResponse{Results: results(req.Msg.LeaseIds)}), nil
}

func (q *standInQueues) Nack(_ context.Context, req *connect.Request[tubev1.NackRequest]) (*connect.Response[tubev1.NackResponse], error) {
	var ids []string
	for _, e := range req.Msg.Entries {
		ids = append(ids, e.LeaseId)
	}
	return connect.NewResponse(&tubev1.NackResponse{Results: results(ids)}), nil
}

// standInAdmin is the administration beside it.
type standInAdmin struct {
	tubev1connect.UnimplementedQueueAdminServiceHandler
	*standInQueues
}

func billing() *tubev1.QueueGroup {
	five, none, share, manual, dead, n := int32(5), "none", "share", "manual", "billing.dead-letter", int32(10000)
	return &tubev1.QueueGroup{Group: "billing", Topic: "orders", Id: 1, Created: at(1), Settings: &tubev1.QueueSettings{
		MaxAttempts: &five, Order: &none, Mode: &share, Ack: &manual, DeadLetter: &dead, Lease: durationpb.New(30 * time.Second), MaxHandling: durationpb.New(12 * time.Hour),
		MaxInFlight: &n, Backoff: []*durationpb.Duration{durationpb.New(time.Second), durationpb.New(time.Minute)},
	}}
}

func (standInAdmin) CreateGroup(_ context.Context, req *connect.Request[tubev1.CreateGroupRequest]) (*connect.Response[tubev1.CreateGroupResponse], error) {
	g := billing()
	g.Group, g.Topic = req.Msg.Group, req.Msg.Topic
	return connect.NewResponse(&tubev1.CreateGroupResponse{Group: g}), nil
}

func (standInAdmin) UpdateGroup(context.Context, *connect.Request[tubev1.UpdateGroupRequest]) (*connect.Response[tubev1.UpdateGroupResponse], error) {
	return connect.NewResponse(&tubev1.UpdateGroupResponse{Group: billing()}), nil
}

func (standInAdmin) DeleteGroup(context.Context, *connect.Request[tubev1.DeleteGroupRequest]) (*connect.Response[tubev1.DeleteGroupResponse], error) {
	return connect.NewResponse(&tubev1.DeleteGroupResponse{}), nil
}

func (standInAdmin) PauseGroup(context.Context, *connect.Request[tubev1.PauseGroupRequest]) (*connect.Response[tubev1.PauseGroupResponse], error) {
	return connect.NewResponse(&tubev1.PauseGroupResponse{Group: billing()}), nil
}

func (standInAdmin) ResumeGroup(context.Context, *connect.Request[tubev1.ResumeGroupRequest]) (*connect.Response[tubev1.ResumeGroupResponse], error) {
	return connect.NewResponse(&tubev1.ResumeGroupResponse{Group: billing()}), nil
}

func (standInAdmin) ListGroups(_ context.Context, req *connect.Request[tubev1.ListGroupsRequest]) (*connect.Response[tubev1.ListGroupsResponse], error) {
	if req.Msg.PageToken == "" {
		return connect.NewResponse(&tubev1.ListGroupsResponse{Groups: []*tubev1.QueueGroup{billing()}, NextPageToken: "billing"}), nil
	}
	g := billing()
	g.Group, g.Paused = "mail", true
	return connect.NewResponse(&tubev1.ListGroupsResponse{Groups: []*tubev1.QueueGroup{g}}), nil
}

func (standInAdmin) GetGroup(context.Context, *connect.Request[tubev1.GetGroupRequest]) (*connect.Response[tubev1.GetGroupResponse], error) {
	return connect.NewResponse(&tubev1.GetGroupResponse{
		Group: billing(), Total: &tubev1.QueueProgress{Backlog: 1234, Consumers: 2},
		Partitions: []*tubev1.QueueProgress{{Known: true, Leader: 1, Floor: 10, End: 1244, Ready: 1200, InFlight: 34}, {Partition: 1}},
	}), nil
}

func (standInAdmin) ExplainGroup(context.Context, *connect.Request[tubev1.ExplainGroupRequest]) (*connect.Response[tubev1.ExplainGroupResponse], error) {
	return connect.NewResponse(&tubev1.ExplainGroupResponse{Summary: "all 3 messages are leased", Causes: []*tubev1.QueueCause{
		{Kind: tubev1.QueueCause_ALL_LEASED, Text: "all 3 messages are leased", Partition: -1, Messages: 3, ConsumerId: "w1", Until: at(60)},
		{Kind: tubev1.QueueCause_NO_LEADER, Text: "partition 1 has no leader", Partition: 1},
	}}), nil
}

func (standInAdmin) SeekGroup(context.Context, *connect.Request[tubev1.SeekGroupRequest]) (*connect.Response[tubev1.SeekGroupResponse], error) {
	return connect.NewResponse(&tubev1.SeekGroupResponse{Partitions: []*tubev1.PartitionOffset{{Partition: 0, Offset: 42}}}), nil
}

func (standInAdmin) PurgeGroup(context.Context, *connect.Request[tubev1.PurgeGroupRequest]) (*connect.Response[tubev1.PurgeGroupResponse], error) {
	return connect.NewResponse(&tubev1.PurgeGroupResponse{Purged: 1234}), nil
}

func (standInAdmin) ListPending(context.Context, *connect.Request[tubev1.ListPendingRequest]) (*connect.Response[tubev1.ListPendingResponse], error) {
	return connect.NewResponse(&tubev1.ListPendingResponse{Messages: []*tubev1.PendingMessage{
		{Offset: 3, State: "leased", LeaseId: "0-3-1-7", ConsumerId: "w1", Address: "10.0.0.1:5", Until: at(60)}, {Offset: 4, State: "blocked", BlockedBy: 3},
	}}), nil
}

func (standInAdmin) ListDelayed(context.Context, *connect.Request[tubev1.ListDelayedRequest]) (*connect.Response[tubev1.ListDelayedResponse], error) {
	return connect.NewResponse(&tubev1.ListDelayedResponse{Total: 7, Messages: []*tubev1.DelayedMessage{{Offset: 5, DeliverAt: at(90), Id: "i5"}}}), nil
}

func (standInAdmin) CancelDelayed(_ context.Context, req *connect.Request[tubev1.CancelDelayedRequest]) (*connect.Response[tubev1.CancelDelayedResponse], error) {
	out := &tubev1.CancelDelayedResponse{}
	for _, m := range req.Msg.Messages {
		r := &tubev1.ItemResult{Offset: m.GetAt().GetOffset()}
		if m.GetId() == "gone" {
			r.Error = &tubev1.ItemError{Reason: tubev1.QueueErrorDetail_UNKNOWN_MESSAGE, Message: "unknown message: it is not delayed any more"}
		}
		out.Results = append(out.Results, r)
	}
	return connect.NewResponse(out), nil
}

func (standInAdmin) RescheduleDelayed(context.Context, *connect.Request[tubev1.RescheduleDelayedRequest]) (*connect.Response[tubev1.RescheduleDelayedResponse], error) {
	return connect.NewResponse(&tubev1.RescheduleDelayedResponse{Results: []*tubev1.ItemResult{{Offset: 5}}}), nil
}

func (standInAdmin) RetryPending(context.Context, *connect.Request[tubev1.RetryPendingRequest]) (*connect.Response[tubev1.RetryPendingResponse], error) {
	return connect.NewResponse(&tubev1.RetryPendingResponse{Results: []*tubev1.ItemResult{{Offset: 5}}}), nil
}

func (standInAdmin) ListDead(_ context.Context, req *connect.Request[tubev1.ListDeadRequest]) (*connect.Response[tubev1.ListDeadResponse], error) {
	out := &tubev1.ListDeadResponse{}
	if len(req.Msg.Messages) == 0 || req.Msg.Messages[0].Offset == 17 {
		out.Messages = append(out.Messages, &tubev1.DeadMessage{
			Offset: 17, Topic: "orders", SourceOffset: 3, Died: at(100), Time: at(10), Key: []byte("k"), Value: []byte("bad"), ValueSize: 3, Reason: "no\x1b[31m",
			Headers: map[string]string{"a": "1"}, Attempts: []*tubev1.DeliveryAttempt{{Time: at(20), ConsumerId: "w1", Address: "10.0.0.1:5", Error: "no"}},
		})
	}
	return connect.NewResponse(out), nil
}

// RedriveDead takes two calls.
func (s standInAdmin) RedriveDead(_ context.Context, req *connect.Request[tubev1.RedriveDeadRequest]) (*connect.Response[tubev1.RedriveDeadResponse], error) {
	if req.Msg.PageToken == "" && len(req.Msg.Messages) == 0 {
		return connect.NewResponse(&tubev1.RedriveDeadResponse{Matched: 1000, Redriven: 1000, NextPageToken: "more"}), nil
	}
	return connect.NewResponse(&tubev1.RedriveDeadResponse{Matched: 1, Redriven: 1}), nil
}

func (standInAdmin) DropDead(context.Context, *connect.Request[tubev1.DropDeadRequest]) (*connect.Response[tubev1.DropDeadResponse], error) {
	return connect.NewResponse(&tubev1.DropDeadResponse{Matched: 2, Dropped: 2}), nil
}

func (standInAdmin) TraceMessage(context.Context, *connect.Request[tubev1.TraceMessageRequest]) (*connect.Response[tubev1.TraceMessageResponse], error) {
	return connect.NewResponse(&tubev1.TraceMessageResponse{Topic: "orders", Offset: 42, Stored: true, Nodes: []int32{1, 3}, Time: at(10), Size: 5, Groups: []*tubev1.GroupTrace{
		{Group: "billing", State: "leased", Text: "in the hand of w1", ConsumerId: "w1", Until: at(60)},
	}}), nil
}
