package rpc

import (
	"bufio"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/record"
	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
	"github.com/tube-mq/tube/proto/tube/v1/tubev1connect"
)

// fake is a cluster of two nodes, one of them down, with events added by hand.
type fake struct {
	mu     sync.Mutex
	events []Event
	newer  chan struct{}
	ready  error
}

func (f *fake) Image() *meta.Image {
	return &meta.Image{
		ClusterID: "c1", Controller: 1,
		Nodes: map[record.NodeID]*meta.Node{
			1: {ID: 1, Roles: []string{"master", "broker"}, Kafka: "127.0.0.1:9092", State: meta.NodeUp},
			2: {ID: 2, Roles: []string{"broker"}, Zone: "<b>", State: meta.NodeDown},
		},
		Topics: map[record.TopicID]*meta.Topic{
			{1}: {Name: "a", Partitions: []meta.Placement{
				{Leader: 1, Replicas: []meta.Replica{{ID: 1, Node: 1}}},
				{Leader: -1, Replicas: []meta.Replica{{ID: 1, Node: 2}}},
			}},
		},
	}
}
func (f *fake) Problems() []string        { return []string{"disk is nearly full"} }
func (f *fake) ClusterProblems() []string { return nil }

// NodeProblems implements Cluster.
func (f *fake) NodeProblems(context.Context) []NodeProblems { return nil }

func (f *fake) ListEvents(after uint64, limit int) []Event {
	f.mu.Lock()
	defer f.mu.Unlock()
	if after == 0 {
		return f.events[max(0, len(f.events)-limit):]
	}
	rest := f.events[min(int(after), len(f.events)):]
	return rest[:min(limit, len(rest))]
}

func (f *fake) LastEvent() (uint64, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return uint64(len(f.events)), f.newer
}

func (f *fake) add(kind string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.events = append(f.events, Event{Seq: uint64(len(f.events) + 1), Kind: kind, Time: time.Unix(1, 0)})
	close(f.newer)
	f.newer = make(chan struct{})
}

func start(t *testing.T, f *fake) (*Server, string) {
	t.Helper()
	f.newer = make(chan struct{})
	s := New(Config{
		Self: Self{Node: 1, Version: "v1"}, Cluster: f, Events: f, Ready: func() error { return f.ready },
		Metrics: http.NotFoundHandler(), Logger: slog.New(slog.DiscardHandler),
	})
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- s.Serve(l) }()
	t.Cleanup(func() {
		if err := s.Stop(context.Background()); err != nil {
			t.Error(err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return s, "http://" + l.Addr().String()
}

func get(t *testing.T, url string) (int, string) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

func TestReadinessFollowsTheNode(t *testing.T) {
	f := &fake{ready: errors.New("recovering")}
	_, url := start(t, f)
	if code, body := get(t, url+"/readyz"); code != 503 || body != "recovering\n" {
		t.Errorf("%d %q", code, body)
	}
	if code, _ := get(t, url+"/healthz"); code != 200 {
		t.Errorf("healthz %d", code)
	}
	f.ready = nil
	if code, body := get(t, url+"/readyz"); code != 200 || body != "ready\n" {
		t.Errorf("%d %q", code, body)
	}
}

func TestLandingPageEscapesAndTellsTheState(t *testing.T) {
	_, url := start(t, &fake{})
	code, body := get(t, url+"/")
	for _, want := range []string{"cluster <code>c1</code>", "1 of 2", "disk is nearly full", "127.0.0.1:9092", "&lt;b&gt;"} {
		if code != 200 || !strings.Contains(body, want) {
			t.Errorf("%d, no %q in the page", code, want)
		}
	}
	if code, _ := get(t, url+"/nothing"); code != 404 {
		t.Errorf("unknown path: %d", code)
	}
	if code, _ := get(t, url+"/debug/pprof/"); code != 404 {
		t.Errorf("profiles without being asked for: %d", code)
	}
}

func TestStatusOverConnectGRPCAndJSON(t *testing.T) {
	_, url := start(t, &fake{})
	h2c := &http.Client{Transport: &http.Transport{Protocols: unencrypted()}}
	for name, client := range map[string]tubev1connect.ClusterServiceClient{
		"connect": tubev1connect.NewClusterServiceClient(http.DefaultClient, url),
		"grpc":    tubev1connect.NewClusterServiceClient(h2c, url, connect.WithGRPC()),
		"json":    tubev1connect.NewClusterServiceClient(http.DefaultClient, url, connect.WithProtoJSON()),
	} {
		resp, err := client.Status(context.Background(), connect.NewRequest(&tubev1.StatusRequest{}))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		m := resp.Msg
		if m.ClusterId != "c1" || m.NodesUp != 1 || m.Nodes != 2 || m.Partitions != 2 || m.PartitionsWithoutLeader != 1 || m.PartitionsUnderReplicated != 1 {
			t.Errorf("%s: %v", name, m)
		}
	}
	nodes, err := tubev1connect.NewClusterServiceClient(http.DefaultClient, url).ListNodes(context.Background(), connect.NewRequest(&tubev1.ListNodesRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	if ns := nodes.Msg.Nodes; len(ns) != 2 || ns[0].Id != 1 || !ns[0].Controller || ns[0].Leaders != 1 || ns[1].Replicas != 1 {
		t.Errorf("nodes %v", ns)
	}
}

func unencrypted() *http.Protocols {
	p := new(http.Protocols)
	p.SetUnencryptedHTTP2(true)
	return p
}

func TestEventsAreListedInPages(t *testing.T) {
	f := &fake{}
	_, url := start(t, f)
	for range 1500 {
		f.add("k")
	}
	client := tubev1connect.NewClusterServiceClient(http.DefaultClient, url)
	for _, tc := range []struct {
		after       uint64
		limit, want int
		first       uint64
	}{{0, 0, 100, 1401}, {0, 10, 10, 1491}, {1, 10, 10, 2}, {1, 5000, 1000, 2}, {1500, 10, 0, 0}} {
		resp, err := client.ListEvents(context.Background(), connect.NewRequest(&tubev1.ListEventsRequest{AfterSeq: tc.after, Limit: int32(tc.limit)}))
		if err != nil {
			t.Fatal(err)
		}
		if es := resp.Msg.Events; len(es) != tc.want || tc.want > 0 && es[0].Seq != tc.first {
			t.Errorf("after %d limit %d: %d events", tc.after, tc.limit, len(es))
		}
	}
	_, err := client.ListEvents(context.Background(), connect.NewRequest(&tubev1.ListEventsRequest{Limit: -1}))
	if connect.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("negative limit: %v", err)
	}
}

func TestWatchGoesOnWhereItWasAndEndsWithTheServer(t *testing.T) {
	f := &fake{}
	s, url := start(t, f)
	for _, k := range []string{"one", "two", "three"} {
		f.add(k)
	}
	client := tubev1connect.NewClusterServiceClient(http.DefaultClient, url)
	stream, err := client.WatchEvents(context.Background(), connect.NewRequest(&tubev1.WatchEventsRequest{AfterSeq: 1}))
	if err != nil {
		t.Fatal(err)
	}
	var seen []uint64
	receive := func() bool {
		ok := stream.Receive()
		if ok {
			for _, e := range stream.Msg().Events {
				seen = append(seen, e.Seq)
			}
		}
		return ok
	}
	if !receive() || len(seen) != 2 || seen[0] != 2 {
		t.Fatalf("saw %v, %v", seen, stream.Err())
	}
	f.add("four")
	if !receive() || seen[2] != 4 {
		t.Fatalf("saw %v, %v", seen, stream.Err())
	}
	if err := s.Stop(context.Background()); err != nil {
		t.Error(err)
	}
	if receive() || connect.CodeOf(stream.Err()) != connect.CodeUnavailable {
		t.Errorf("after the stop: %v", stream.Err())
	}
}

// Who watches is answered before anything happens: a client may well wait for an answer's
// begin for a while only.
func TestAWatchIsAnsweredBeforeAnythingHappens(t *testing.T) {
	_, url := start(t, &fake{})
	client := tubev1connect.NewClusterServiceClient(http.DefaultClient, url)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	stream, err := client.WatchEvents(ctx, connect.NewRequest(&tubev1.WatchEventsRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	_ = stream.Close()
}

func TestLargeBodiesAreRefused(t *testing.T) {
	_, url := start(t, &fake{})
	resp, err := http.Post(url+tubev1connect.ClusterServiceStatusProcedure, "application/json", strings.NewReader(`{"x":"`+strings.Repeat("y", maxBodyBytes)+`"}`))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode < 400 {
		t.Errorf("answered %d", resp.StatusCode)
	}
}

// Handlers that read for themselves are bounded as well.
func TestBodiesEndAtTheLimit(t *testing.T) {
	var read int
	var err error
	h := limited(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var b []byte
		b, err = io.ReadAll(r.Body)
		read = len(b)
	}))
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/", strings.NewReader(strings.Repeat("x", maxBodyBytes+1))))
	if err == nil || read > maxBodyBytes {
		t.Errorf("%d bytes were read, %v", read, err)
	}
}

// A page of another site that is open in the operator's browser must not reach
// the services of a node on the same machine.
func TestOtherSitesAreRefused(t *testing.T) {
	_, url := start(t, &fake{})
	req, err := http.NewRequest("POST", url+tubev1connect.ClusterServiceStatusProcedure, strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Origin", "https://evil.example")
	req.Header.Set("Sec-Fetch-Site", "cross-site")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusForbidden {
		t.Errorf("answered %d", resp.StatusCode)
	}
}

func TestSlowBodyIsCutOff(t *testing.T) {
	defer func(d time.Duration) { readTimeout = d }(readTimeout)
	readTimeout = 20 * time.Millisecond
	_, url := start(t, &fake{})
	c, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	head := "POST " + tubev1connect.ClusterServiceStatusProcedure + " HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\nabc"
	if _, err := io.WriteString(c, head); err != nil {
		t.Fatal(err)
	}
	if err := c.SetReadDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		t.Fatalf("a body that never ends is waited for: %v", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode < 400 {
		t.Errorf("answered %d", resp.StatusCode)
	}
}

func TestConnectionsAreCounted(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := limitConnections(inner, 1)
	accepted := make(chan net.Conn)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			accepted <- c
		}
	}()
	for range 2 {
		c, err := net.Dial("tcp", inner.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	first := <-accepted
	select {
	case <-accepted:
		t.Fatal("two connections where one is allowed")
	case <-time.After(20 * time.Millisecond):
	}
	first.Close()
	first.Close() // a second close must not free a second slot
	second := <-accepted
	if n := len(l.(*limitedListener).slots); n != 1 {
		t.Errorf("%d slots taken by one connection", n)
	}
	l.Close() // while Accept waits for a slot
	<-ended
	second.Close()
}
