package tube

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
	"github.com/tube-mq/tube/proto/tube/v1/tubev1connect"
)

// soon is how long a test waits for what should happen at once.
const soon = 20 * time.Second

// entry is a message in the fake's one partition.
type entry struct {
	m        *tubev1.QueueMessage
	state    string // ready, leased, done, dead
	due      time.Time
	attempt  int32
	lease    string
	session  int
	verdicts []string // what was said of it, in order
}

// fake is a server with topics of one partition, and at first one group, "billing" on
// "orders". A topic has one group.
type fake struct {
	tubev1connect.UnimplementedQueueServiceHandler
	tubev1connect.UnimplementedQueueAdminServiceHandler
	t      testing.TB
	url    []string // two doors of the same fake
	closes []func()

	mu       sync.Mutex
	changed  chan struct{} // closed at every change
	entries  []*entry
	length   time.Duration // of a lease
	leases   int
	sessions map[int]context.CancelFunc
	last     int // session
	most     int // leased at a time, the most ever
	extends  int
	grants   []int32
	groups   map[string]string // name → topic
	created  *tubev1.CreateGroupRequest
	sends    []*tubev1.SendRequest
	auto     bool // the group confirms by itself

	// What goes wrong.
	onSend   func(*tubev1.SendRequest) (*tubev1.SendResponse, error) // both nil: as usual
	noAnswer bool                                                    // settlements are taken in silence
	ignore   bool                                                    // settlements are not even taken
	refuse   tubev1.QueueErrorDetail_Reason                          // of extensions
	inquire  chan *tubev1.ConsumeInquiry
	answers  chan *tubev1.ConsumeAnswer
}

type writerKey struct{}

// TestMain gives the examples a server: the one at TEST_TUBE_HTTP, or the fake.
func TestMain(m *testing.M) {
	at := os.Getenv("TEST_TUBE_HTTP")
	if at == "" {
		f := startFake(nil)
		defer f.close()
		at = f.url[0]
	}
	if err := os.Setenv("TUBE_HTTP", at); err != nil {
		panic(err)
	}
	m.Run()
}

func newFake(t *testing.T) *fake {
	f := startFake(t)
	t.Cleanup(f.close)
	return f
}

func (f *fake) close() {
	f.breakStreams()
	for _, c := range f.closes {
		c()
	}
}

// startFake starts one; t may be nil.
func startFake(t testing.TB) *fake {
	f := &fake{t: t, changed: make(chan struct{}), length: 30 * time.Second, sessions: map[int]context.CancelFunc{}, groups: map[string]string{"billing": "orders"},
		inquire: make(chan *tubev1.ConsumeInquiry, 10), answers: make(chan *tubev1.ConsumeAnswer, 10)}
	mux := http.NewServeMux()
	mux.Handle(tubev1connect.NewQueueServiceHandler(f))
	mux.Handle(tubev1connect.NewQueueAdminServiceHandler(f))
	for range 2 {
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			mux.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), writerKey{}, http.NewResponseController(w))))
		}))
		s.Config.Protocols = new(http.Protocols)
		s.Config.Protocols.SetHTTP1(true)
		s.Config.Protocols.SetUnencryptedHTTP2(true)
		s.Start()
		f.url = append(f.url, s.URL)
		f.closes = append(f.closes, s.CloseClientConnections, s.Close)
	}
	return f
}

// change does something and wakes who waits for something.
func (f *fake) change(do func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do()
	close(f.changed)
	f.changed = make(chan struct{})
}

// await waits until the condition holds; what it is called with is locked.
func (f *fake) await(what string, holds func() bool) {
	f.t.Helper()
	deadline := time.NewTimer(soon)
	defer deadline.Stop()
	for {
		f.mu.Lock()
		ok, changed := holds(), f.changed
		f.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-deadline.C:
			f.mu.Lock()
			defer f.mu.Unlock()
			f.t.Fatalf("not within %v: %s; %v", soon, what, f.states())
		}
	}
}

func (f *fake) topic(group string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.groups[group]
}

func (f *fake) states() (out []string) {
	for _, e := range f.entries {
		out = append(out, fmt.Sprintf("%s %v", e.state, e.verdicts))
	}
	return out
}

// put stores n messages whose values are their numbers.
func (f *fake) put(n int) {
	f.change(func() {
		for range n {
			i := len(f.entries)
			f.store("orders", &tubev1.OutgoingMessage{Value: fmt.Append(nil, i), Id: fmt.Sprint("m", i)})
		}
	})
}

func (f *fake) store(topic string, m *tubev1.OutgoingMessage) int {
	f.entries = append(f.entries, &entry{state: "ready", attempt: 1, m: &tubev1.QueueMessage{
		Id: m.Id, Value: m.Value, Key: m.Key, Headers: m.Headers, RawHeaders: m.RawHeaders, Topic: topic, Offset: int64(len(f.entries)), Time: timestamppb.New(time.Unix(1, 0)),
	}})
	return len(f.entries) - 1
}

// hand hands out up to n messages. The caller holds mu.
func (f *fake) hand(group string, n, session int) (out []*tubev1.QueueMessage) {
	leased := 0
	for _, e := range f.entries {
		if e.m.Topic == f.groups[group] && e.state == "ready" && len(out) < n && !e.due.After(time.Now()) {
			f.leases++
			e.state, e.session, e.lease = "leased", session, fmt.Sprintf("l%d", f.leases)
			if f.auto {
				e.state, e.lease = "done", ""
			}
			m := &tubev1.QueueMessage{Id: e.m.Id, Value: e.m.Value, Key: e.m.Key, Headers: e.m.Headers, RawHeaders: e.m.RawHeaders, Topic: e.m.Topic,
				Offset: e.m.Offset, Time: e.m.Time, LeaseId: e.lease, Attempt: e.attempt, LeaseUntil: timestamppb.New(time.Now().Add(f.length))}
			out = append(out, m)
		}
		if e.state == "leased" {
			leased++
		}
	}
	f.most = max(f.most, leased)
	return out
}

// settle does what is said of a lease. The caller holds mu.
func (f *fake) settle(lease, verdict string, then func(*entry)) *tubev1.LeaseResult {
	bad := func(code string, r tubev1.QueueErrorDetail_Reason) *tubev1.LeaseResult {
		return &tubev1.LeaseResult{LeaseId: lease, Error: &tubev1.ItemError{Code: code, Reason: r, Message: strings.ToLower(r.String())}}
	}
	for _, e := range f.entries {
		if e.lease != lease {
			continue
		}
		if verdict == "extend" {
			if f.extends++; f.refuse != 0 {
				return bad("failed_precondition", f.refuse)
			}
			return &tubev1.LeaseResult{LeaseId: lease}
		}
		if e.state == "done" && verdict != "ack" {
			return bad("failed_precondition", tubev1.QueueErrorDetail_ALREADY_DONE)
		}
		e.verdicts = append(e.verdicts, verdict)
		then(e)
		return &tubev1.LeaseResult{LeaseId: lease}
	}
	return bad("failed_precondition", tubev1.QueueErrorDetail_LEASE_EXPIRED)
}

func done(e *entry) { e.state = "done" }
func back(e *entry) { e.state = "ready" }

func (f *fake) nack(n *tubev1.NackEntry) *tubev1.LeaseResult {
	text := "nack " + n.Reason
	if d := n.GetDelay(); d != nil {
		text += " after " + d.AsDuration().Round(time.Second).String()
	}
	if n.Dead {
		return f.settle(n.LeaseId, "dead "+n.Reason, func(e *entry) { e.state = "dead" })
	}
	return f.settle(n.LeaseId, text, func(e *entry) {
		back(e)
		e.attempt++
		e.due = time.Now().Add(n.GetDelay().AsDuration())
	})
}

// breakStreams ends all streams as a dead node does; their leases are void.
func (f *fake) breakStreams() {
	f.change(func() {
		for _, end := range f.sessions {
			end()
		}
		for _, e := range f.entries {
			if e.state == "leased" && e.session != 0 {
				e.state, e.lease = "ready", "gone"
			}
		}
	})
}

func (f *fake) Consume(ctx context.Context, s *connect.BidiStream[tubev1.ConsumeRequest, tubev1.ConsumeResponse]) error {
	first, err := s.Receive()
	if err != nil {
		return err
	}
	if f.topic(first.GetStart().GetGroup()) == "" {
		return refusedBy(connect.CodeNotFound, tubev1.QueueErrorDetail_UNKNOWN_GROUP)
	}
	ctx, end := context.WithCancel(ctx)
	defer end()
	var session int
	credit := first.GetStart().Credit
	f.change(func() { f.last++; session = f.last; f.sessions[session] = end })
	defer f.change(func() { delete(f.sessions, session) })
	var sending sync.Mutex
	send := func(m *tubev1.ConsumeResponse) error { sending.Lock(); defer sending.Unlock(); return s.Send(m) }
	if err := send(&tubev1.ConsumeResponse{Down: &tubev1.ConsumeResponse_Started{Started: &tubev1.ConsumeStarted{ConsumerId: "c", Lease: durationpb.New(f.length)}}}); err != nil {
		return err
	}
	up := make(chan struct{})
	defer func() { // a handler must not read on when it has returned
		_ = ctx.Value(writerKey{}).(*http.ResponseController).SetReadDeadline(time.Unix(1, 0))
		<-up
	}()
	go func() {
		defer close(up)
		for {
			m, err := s.Receive()
			if err != nil {
				return
			}
			if c := m.GetCredit(); c != nil {
				f.change(func() { credit += c.Messages; f.grants = append(f.grants, c.Messages) })
			} else if a := m.GetInquiryAnswer(); a != nil {
				f.answers <- a
			} else if r := f.up(m); r != nil {
				_ = send(&tubev1.ConsumeResponse{Down: &tubev1.ConsumeResponse_Results{Results: &tubev1.ConsumeResults{Requests: []*tubev1.ConsumeResult{r}}}})
			}
		}
	}()
	for {
		f.mu.Lock()
		got, changed := f.hand(first.GetStart().Group, int(credit), session), f.changed
		credit -= int32(len(got))
		f.mu.Unlock()
		if len(got) > 0 {
			f.change(func() {})
			if err := send(&tubev1.ConsumeResponse{Down: &tubev1.ConsumeResponse_Messages{Messages: &tubev1.ConsumeMessages{Messages: got}}}); err != nil {
				return err
			}
		}
		select {
		case <-changed:
		case q := <-f.inquire:
			_ = send(&tubev1.ConsumeResponse{Down: &tubev1.ConsumeResponse_Inquiry{Inquiry: q}})
		case <-up:
			return nil
		case <-ctx.Done():
			return connect.NewError(connect.CodeUnavailable, errors.New("the node is gone"))
		}
	}
}

// up settles what a frame says; nil: no answer.
func (f *fake) up(m *tubev1.ConsumeRequest) (r *tubev1.ConsumeResult) {
	f.change(func() {
		if f.ignore {
			return
		}
		r = &tubev1.ConsumeResult{Seq: m.Seq}
		var all []*tubev1.LeaseResult
		for _, l := range m.GetAcknowledge().GetLeaseIds() {
			all = append(all, f.settle(l, "ack", done))
		}
		for _, l := range m.GetRelease().GetLeaseIds() {
			all = append(all, f.settle(l, "release", func(e *entry) { e.state = "released" }))
		}
		for _, l := range m.GetExtend().GetLeaseIds() {
			all = append(all, f.settle(l, "extend", nil))
		}
		for _, n := range m.GetNack().GetEntries() {
			all = append(all, f.nack(n))
		}
		for _, x := range all {
			if x.Error != nil {
				r.Errors = append(r.Errors, x)
			} else {
				r.Succeeded++
			}
		}
		if f.noAnswer {
			r = nil
		}
	})
	return r
}

func (f *fake) Receive(ctx context.Context, req *connect.Request[tubev1.ReceiveRequest]) (*connect.Response[tubev1.ReceiveResponse], error) {
	if f.topic(req.Msg.Group) == "" {
		return nil, refusedBy(connect.CodeNotFound, tubev1.QueueErrorDetail_UNKNOWN_GROUP)
	}
	deadline := time.NewTimer(req.Msg.Wait.AsDuration())
	defer deadline.Stop()
	for {
		f.mu.Lock()
		got, changed := f.hand(req.Msg.Group, int(req.Msg.MaxMessages), 0), f.changed
		f.mu.Unlock()
		if len(got) > 0 {
			return connect.NewResponse(&tubev1.ReceiveResponse{Messages: got}), nil
		}
		select {
		case <-changed:
		case <-deadline.C:
			return connect.NewResponse(&tubev1.ReceiveResponse{}), nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (f *fake) each(ids []string, verdict string, then func(*entry)) (out []*tubev1.LeaseResult) {
	f.change(func() {
		for _, l := range ids {
			out = append(out, f.settle(l, verdict, then))
		}
	})
	return out
}

func (f *fake) Acknowledge(_ context.Context, req *connect.Request[tubev1.AcknowledgeRequest]) (*connect.Response[tubev1.AcknowledgeResponse], error) {
	return connect.NewResponse(&tubev1.AcknowledgeResponse{Results: f.each(req.Msg.LeaseIds, "ack", done)}), nil
}

func (f *fake) Release(_ context.Context, req *connect.Request[tubev1.ReleaseRequest]) (*connect.Response[tubev1.ReleaseResponse], error) {
	verdict := "release"
	if d := req.Msg.Delay; d != nil {
		verdict += " for " + d.AsDuration().String()
	}
	return connect.NewResponse(&tubev1.ReleaseResponse{Results: f.each(req.Msg.LeaseIds, verdict, func(e *entry) { e.state = "released" })}), nil
}

func (f *fake) Extend(_ context.Context, req *connect.Request[tubev1.ExtendRequest]) (*connect.Response[tubev1.ExtendResponse], error) {
	return connect.NewResponse(&tubev1.ExtendResponse{Results: f.each(req.Msg.LeaseIds, "extend", nil)}), nil
}

func (f *fake) Nack(_ context.Context, req *connect.Request[tubev1.NackRequest]) (*connect.Response[tubev1.NackResponse], error) {
	out := &tubev1.NackResponse{}
	f.change(func() {
		for _, n := range req.Msg.Entries {
			out.Results = append(out.Results, f.nack(n))
		}
	})
	return connect.NewResponse(out), nil
}

func (f *fake) Complete(_ context.Context, req *connect.Request[tubev1.CompleteRequest]) (*connect.Response[tubev1.CompleteResponse], error) {
	out := &tubev1.CompleteResponse{Results: f.each(req.Msg.LeaseIds, "complete", done)}
	for _, s := range req.Msg.Send {
		r, err := f.Send(context.Background(), connect.NewRequest(s))
		if err != nil {
			return nil, err
		}
		out.Sent = append(out.Sent, r.Msg)
	}
	return connect.NewResponse(out), nil
}

func (f *fake) Send(_ context.Context, req *connect.Request[tubev1.SendRequest]) (*connect.Response[tubev1.SendResponse], error) {
	f.mu.Lock()
	f.sends = append(f.sends, req.Msg)
	on := f.onSend
	f.mu.Unlock()
	if on != nil {
		if r, err := on(req.Msg); err != nil || r != nil {
			f.change(func() {})
			return connect.NewResponse(r), err
		}
	}
	if req.Msg.Topic == "nope" {
		return nil, refusedBy(connect.CodeNotFound, tubev1.QueueErrorDetail_UNKNOWN_TOPIC)
	}
	out := &tubev1.SendResponse{}
	f.change(func() {
		for _, m := range req.Msg.Messages {
			i := slices.IndexFunc(f.entries, func(e *entry) bool { return e.m.Id == m.Id && e.m.Topic == req.Msg.Topic })
			r := &tubev1.SendResult{Topic: req.Msg.Topic, Id: m.Id, Duplicate: i >= 0}
			if i < 0 {
				i = f.store(req.Msg.Topic, m)
			}
			r.Offset = int64(i)
			out.Results = append(out.Results, r)
		}
	})
	return connect.NewResponse(out), nil
}

func (f *fake) CreateGroup(_ context.Context, req *connect.Request[tubev1.CreateGroupRequest]) (*connect.Response[tubev1.CreateGroupResponse], error) {
	if f.topic(req.Msg.Group) != "" {
		return nil, refusedBy(connect.CodeAlreadyExists, tubev1.QueueErrorDetail_GROUP_EXISTS)
	}
	f.change(func() { f.groups[req.Msg.Group], f.created = req.Msg.Topic, req.Msg })
	return connect.NewResponse(&tubev1.CreateGroupResponse{}), nil
}

func (f *fake) GetGroup(_ context.Context, req *connect.Request[tubev1.GetGroupRequest]) (*connect.Response[tubev1.GetGroupResponse], error) {
	topic := f.topic(req.Msg.Group)
	if topic == "" {
		return nil, refusedBy(connect.CodeNotFound, tubev1.QueueErrorDetail_UNKNOWN_GROUP)
	}
	return connect.NewResponse(&tubev1.GetGroupResponse{Group: &tubev1.QueueGroup{Group: req.Msg.Group, Topic: topic}}), nil
}

// refusedBy is an error as the server makes it.
func refusedBy(code connect.Code, r tubev1.QueueErrorDetail_Reason) error {
	err := connect.NewError(code, errors.New(strings.ToLower(r.String())))
	d, _ := connect.NewErrorDetail(&tubev1.QueueErrorDetail{Reason: r})
	err.AddDetail(d)
	return err
}

// group is "billing" at the fake.
func (f *fake) group(opts ...QueueOption) *QueueGroup {
	f.t.Helper()
	q, err := Queue("billing", append([]QueueOption{Servers(f.url...)}, opts...)...)
	if err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = q.Close() })
	return q
}

// running runs a handler until stop, which returns what Run did.
func (f *fake) running(h Handler, opts ...QueueOption) (stop func() error) {
	f.t.Helper()
	q := f.group(opts...)
	ctx, cancel := context.WithCancel(f.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- q.Run(ctx, h) }()
	return func() error {
		cancel()
		select {
		case err := <-ended:
			ended <- err
			return err
		case <-time.After(soon):
			f.t.Fatal("Run does not end")
			return nil
		}
	}
}
