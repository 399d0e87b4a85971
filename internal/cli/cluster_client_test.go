package cli

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
	"github.com/tube-mq/tube/proto/tube/v1/tubev1connect"
)

// fakeCluster stands for a node's cluster service.
type fakeCluster struct {
	tubev1connect.UnimplementedClusterServiceHandler
	node  int32
	watch func(after uint64, send func(seq uint64)) error
	moves []*tubev1.Reassignment
	nodes []*tubev1.Node
}

func (f *fakeCluster) Status(context.Context, *connect.Request[tubev1.StatusRequest]) (*connect.Response[tubev1.StatusResponse], error) {
	return connect.NewResponse(&tubev1.StatusResponse{NodeId: f.node}), nil
}

func (f *fakeCluster) ListEvents(context.Context, *connect.Request[tubev1.ListEventsRequest]) (*connect.Response[tubev1.ListEventsResponse], error) {
	return connect.NewResponse(&tubev1.ListEventsResponse{Events: []*tubev1.Event{{Seq: 1, Kind: "first"}}}), nil
}

func (f *fakeCluster) WatchEvents(_ context.Context, r *connect.Request[tubev1.WatchEventsRequest], s *connect.ServerStream[tubev1.WatchEventsResponse]) error {
	return f.watch(r.Msg.AfterSeq, func(seq uint64) {
		_ = s.Send(&tubev1.WatchEventsResponse{Events: []*tubev1.Event{{Seq: seq, Kind: "later"}}})
	})
}

func (f *fakeCluster) ListNodes(context.Context, *connect.Request[tubev1.ListNodesRequest]) (*connect.Response[tubev1.ListNodesResponse], error) {
	return connect.NewResponse(&tubev1.ListNodesResponse{Nodes: f.nodes}), nil
}

func (f *fakeCluster) Reassign(context.Context, *connect.Request[tubev1.ReassignRequest]) (*connect.Response[tubev1.ReassignResponse], error) {
	return connect.NewResponse(&tubev1.ReassignResponse{Moves: []*tubev1.PartitionMove{{Topic: "t", From: []int32{1}, To: []int32{4}}}}), nil
}

func (f *fakeCluster) ListReassignments(context.Context, *connect.Request[tubev1.ListReassignmentsRequest]) (*connect.Response[tubev1.ListReassignmentsResponse], error) {
	return connect.NewResponse(&tubev1.ListReassignmentsResponse{Reassignments: f.moves}), nil
}

// serve returns the address of a node that is ready or not.
func (f *fakeCluster) serve(t *testing.T, ready int) string {
	t.Helper()
	mux := http.NewServeMux()
	mux.Handle(tubev1connect.NewClusterServiceHandler(f))
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(ready) })
	s := httptest.NewServer(mux)
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "http://")
}

// hung is the address of a node that listens and says nothing.
func hung(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	return l.Addr().String()
}

// Of several nodes one is asked that is ready, not one that hangs or still starts.
func TestANodeThatIsReadyIsAsked(t *testing.T) {
	starting := (&fakeCluster{node: 1}).serve(t, http.StatusServiceUnavailable)
	ready := (&fakeCluster{node: 2}).serve(t, http.StatusOK)
	for name, c := range map[string]struct{ http, want string }{
		"one hangs, one starts": {hung(t) + "," + starting + "," + ready, "node 2"},
		"none is ready":         {starting, "node 1"},
	} {
		a, out, log := testApp(nil)
		if code := a.run(t.Context(), []string{"cluster", "status", "--http", c.http}); code != 0 || !strings.Contains(out.String(), "Asked       "+c.want) {
			t.Errorf("%s: exit code %d, %s%s", name, code, out, log)
		}
	}
	a, _, log := testApp(nil)
	if code := a.run(t.Context(), []string{"cluster", "status", "--timeout", "100ms", "--http", hung(t)}); code != exitUnavailable || !strings.Contains(log.String(), "no answer in time") || !strings.Contains(log.String(), "--http") {
		t.Errorf("one that hangs: exit code %d, %s", code, log)
	}
}

// Whoever follows events goes on with the next when the node ends, without one missing
// or written twice.
func TestEventsAreFollowedPastTheEndOfANode(t *testing.T) {
	ctx, ctrlC := context.WithCancel(t.Context())
	defer ctrlC()
	var watched atomic.Int32
	f := &fakeCluster{watch: func(after uint64, send func(uint64)) error {
		switch watched.Add(1) {
		case 1:
			send(after + 1)
			return connect.NewError(connect.CodeUnavailable, context.Canceled)
		case 2:
			return nil
		}
		send(after + 1)
		<-ctx.Done()
		return nil
	}}
	a, out, log := testApp(nil)
	ended := make(chan int, 1)
	go func() { ended <- a.run(ctx, []string{"cluster", "events", "-f", "--http", f.serve(t, http.StatusOK)}) }()
	waitFor(t, func() bool { return strings.Contains(out.String(), "     3  ") })
	ctrlC()
	if code := <-ended; code != 0 || strings.Count(out.String(), "\n") != 3 || strings.Count(log.String(), "lost the node") != 1 {
		t.Errorf("exit code %d, %s%s", code, out, log)
	}
}

// Who waits for a move to a node that is down is told so in the end.
func TestAMoveToANodeThatIsDownIsNotWaitedForInSilence(t *testing.T) {
	f := &fakeCluster{moves: []*tubev1.Reassignment{{Topic: "t", Adding: []int32{4}}}, nodes: []*tubev1.Node{{Id: 1, State: "up"}, {Id: 4, State: "down"}}}
	a, _, log := testApp(nil)
	looks := 0
	a.now = func() time.Time { looks++; return time.Unix(int64(looks), 0) }
	code := a.run(t.Context(), []string{"topic", "reassign", "t", "--replicas", "0:4", "--wait", "--timeout", "1h", "--http", f.serve(t, http.StatusOK)})
	if code != exitConflict || !strings.Contains(log.String(), "node 4") || !strings.Contains(log.String(), "--cancel") {
		t.Errorf("exit code %d, %s", code, log)
	}
}
