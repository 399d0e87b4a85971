package rpc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/tube-mq/tube/internal/queue"
	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
	"github.com/tube-mq/tube/proto/tube/v1/tubev1connect"
)

// Limits of the queue services.
const (
	maxQueueBody    = 16 << 20  // of a request; of a stream's frame see maxFrame
	maxFrame        = 1 << 20   // up a stream
	maxQueueMemory  = 256 << 20 // of all requests and answers at one time
	maxWait         = 60 * time.Second
	defaultReceive  = 1 << 20 // bytes of an answer
	maxReceiveBytes = 4 << 20
	// maxWaiting calls of Receive at one time, and maxConsumers streams.
	maxWaiting   = 10_000
	maxConsumers = 10_000
)

// queuePaths is what the paths of the queue services begin with.
const queuePaths = "/tube.v1.Queue"

// queueService implements tube.v1.QueueService.
type queueService struct {
	tubev1connect.UnimplementedQueueServiceHandler // Consume has a handler of its own

	self      Self
	cluster   Cluster
	backend   func() (QueueBackend, error)
	log       *slog.Logger
	stopping  context.Context
	budget    *budget
	waiting   chan struct{} // one for each call of Receive
	consumers chan struct{} // one for each stream
	streams   atomic.Uint64 // counts them, for their names
}

func newQueueService(cfg Config, stopping context.Context, memoryBytes int64) *queueService {
	return &queueService{
		self: cfg.Self, cluster: cfg.Cluster, backend: cfg.Queues, log: cfg.Logger, stopping: stopping,
		budget: newBudget(memoryBytes), waiting: make(chan struct{}, maxWaiting), consumers: make(chan struct{}, maxConsumers),
	}
}

// queueRoutes serves the queue services.
func queueRoutes(mux *http.ServeMux, cfg Config, stopping context.Context) {
	newQueueService(cfg, stopping, maxQueueMemory).routes(mux, cfg)
}

// routes: nothing is compressed, as in the other services.
func (s *queueService) routes(mux *http.ServeMux, cfg Config) {
	options := []connect.HandlerOption{
		connect.WithCompression("gzip", nil, nil), connect.WithReadMaxBytes(maxQueueBody), connect.WithInterceptors(queueRefusals(cfg.Logger)),
		connect.WithCodec(protoCodec{}), connect.WithCodec(jsonCodec{"json"}), connect.WithCodec(jsonCodec{"json; charset=utf-8"}),
		connect.WithConditionalHandlerOptions(func(spec connect.Spec) []connect.HandlerOption {
			if spec.StreamType == connect.StreamTypeBidi {
				return []connect.HandlerOption{connect.WithReadMaxBytes(maxFrame)}
			}
			return nil
		}),
	}
	wrap := func(path string, h http.Handler) {
		mux.Handle(path, http.NewCrossOriginProtection().Handler(bodies(h, s.budget, maxQueueBody)))
	}
	path, h := tubev1connect.NewQueueServiceHandler(s, options...)
	wrap(path, h)
	wrap(tubev1connect.QueueServiceConsumeProcedure, connect.NewBidiStreamHandler(tubev1connect.QueueServiceConsumeProcedure, s.consume, options...))
	path, h = tubev1connect.NewQueueAdminServiceHandler(&queueAdmin{s}, options...)
	wrap(path, h)
}

// queues is what carries calls out, once this node takes part in the cluster.
func (s *queueService) queues() (QueueBackend, error) {
	b, err := s.backend()
	if err != nil {
		d := &tubev1.QueueErrorDetail{Reason: tubev1.QueueErrorDetail_UNAVAILABLE}
		return b, queueError(connect.CodeUnavailable, d, err)
	}
	return b, nil
}

func (s *queueService) Send(ctx context.Context, req *connect.Request[tubev1.SendRequest]) (*connect.Response[tubev1.SendResponse], error) {
	messages, err := sending(req.Msg, "", time.Now())
	if err != nil {
		return nil, err
	}
	q, err := s.queues()
	if err != nil {
		return nil, err
	}
	sent, err := q.Queues.Send(ctx, req.Msg.Topic, messages)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(s.sent(req.Msg.Topic, sent)), nil
}

// sending checks messages to be sent. prefix is the request's name in one around it.
func sending(r *tubev1.SendRequest, prefix string, now time.Time) ([]queue.Outgoing, error) {
	if err := named(r.GetTopic(), prefix+"topic"); err != nil {
		return nil, err
	}
	if err := several(len(r.Messages), prefix+"messages"); err != nil {
		return nil, err
	}
	out := make([]queue.Outgoing, len(r.Messages))
	for i, m := range r.Messages {
		var err error
		if out[i], err = outgoing(m, "", now); err != nil {
			_, err = outgoing(m, fieldAt(prefix+"messages", i), now) // the same, told in full
			return nil, err
		}
	}
	return out, nil
}

func (s *queueService) sent(topic string, sent []queue.Sent) *tubev1.SendResponse {
	out, all := &tubev1.SendResponse{Results: make([]*tubev1.SendResult, len(sent))}, make([]tubev1.SendResult, len(sent))
	for i, x := range sent {
		r := &all[i]
		r.Topic, r.Partition, r.Offset, r.Duplicate = topic, int32(x.Partition), int64(x.Offset), x.Duplicate
		r.Id, r.Error = idOf(x.ID, queue.Place{Partition: x.Partition, Offset: x.Offset}), itemError(s.log, x.Err)
		out.Results[i] = r
	}
	return out
}

func (s *queueService) Receive(ctx context.Context, req *connect.Request[tubev1.ReceiveRequest]) (*connect.Response[tubev1.ReceiveResponse], error) {
	r, err := receiving(req.Msg)
	if err != nil {
		return nil, err
	}
	q, err := s.queues()
	if err != nil {
		return nil, err
	}
	if _, err := s.leaseOf(r.Group, r.Member.ID, "consumer_id"); err != nil {
		return nil, err
	}
	if !enter(s.waiting) {
		return nil, overloaded("%d calls of Receive wait at this node already; ask another one, or use Consume", maxWaiting)
	}
	defer leaveSlot(s.waiting)
	r.Member = s.caller(r.Member.ID, req.Peer().Addr)
	deadlines(ctx, time.Now().Add(r.Wait+writeTimeout))
	ctx, cancel := s.untilStop(ctx)
	defer cancel()
	if err := s.budget.wait(ctx); err != nil {
		return nil, err
	}
	got, err := q.Queues.Receive(ctx, r)
	if err != nil {
		return nil, s.stopped(err)
	}
	n := sizeOf(got)
	s.budget.charge(n)
	defer s.budget.release(n)
	return connect.NewResponse(&tubev1.ReceiveResponse{Messages: toMessages(got)}), nil
}

// receiving checks what is asked for; of the member it knows the id only.
func receiving(m *tubev1.ReceiveRequest) (r queue.Receiving, err error) {
	r.Group, r.Member.ID = m.Group, m.ConsumerId
	if err := named(m.Group, "group"); err != nil {
		return r, err
	}
	if err := consumerID(m.ConsumerId); err != nil {
		return r, err
	}
	if r.Max, err = counted(m.MaxMessages, "max_messages", queue.MaxMessages, 1); err != nil {
		return r, err
	}
	if r.MaxBytes, err = counted(m.MaxBytes, "max_bytes", maxReceiveBytes, defaultReceive); err != nil {
		return r, err
	}
	r.Wait, err = durationOf(m.Wait, "wait", 0, maxWait, 0)
	return r, err
}

func consumerID(id string) error {
	if len(id) > queue.MaxIDBytes {
		return badField("consumer_id", "%d bytes long, %d are allowed", len(id), queue.MaxIDBytes)
	}
	return nil
}

// caller is who receives without a stream: he cannot be asked, and his leases are his
// for as long as they last.
func (s *queueService) caller(id, addr string) queue.Member {
	if id == "" {
		id = addr
	}
	return queue.Member{ID: id, Session: fmt.Sprintf("receive/%d/%s", s.self.Node, id), Node: s.self.Node, Address: addr}
}

// untilStop is ctx until the server stops.
func (s *queueService) untilStop(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(s.stopping, cancel)
	return ctx, func() { stop(); cancel() }
}

// stopped says so if an error is because the server stops.
func (s *queueService) stopped(err error) error {
	if s.stopping.Err() != nil && errors.Is(err, context.Canceled) {
		d := &tubev1.QueueErrorDetail{Reason: tubev1.QueueErrorDetail_UNAVAILABLE}
		return queueError(connect.CodeUnavailable, d, errors.New("the node stops; go on at another one"))
	}
	return err
}

func (s *queueService) Acknowledge(ctx context.Context, req *connect.Request[tubev1.AcknowledgeRequest]) (*connect.Response[tubev1.AcknowledgeResponse], error) {
	rs, err := s.settleAll(ctx, req.Msg.Group, req.Msg.LeaseIds, queue.Settlement{Verdict: queue.Acknowledge})
	return connect.NewResponse(&tubev1.AcknowledgeResponse{Results: rs}), err
}

func (s *queueService) Release(ctx context.Context, req *connect.Request[tubev1.ReleaseRequest]) (*connect.Response[tubev1.ReleaseResponse], error) {
	delay, err := delayOf(req.Msg.Delay, "delay")
	if err != nil {
		return nil, err
	}
	rs, err := s.settleAll(ctx, req.Msg.Group, req.Msg.LeaseIds, queue.Settlement{Verdict: queue.Release, Delay: delay})
	return connect.NewResponse(&tubev1.ReleaseResponse{Results: rs}), err
}

func (s *queueService) Extend(ctx context.Context, req *connect.Request[tubev1.ExtendRequest]) (*connect.Response[tubev1.ExtendResponse], error) {
	d, err := extension(req.Msg.Duration)
	if err != nil {
		return nil, err
	}
	rs, err := s.settleAll(ctx, req.Msg.Group, req.Msg.LeaseIds, queue.Settlement{Verdict: queue.Extend, Delay: d})
	return connect.NewResponse(&tubev1.ExtendResponse{Results: rs}), err
}

// extension is how long from now on; 0: as long as the group's lease.
func extension(d *durationpb.Duration) (time.Duration, error) {
	return durationOf(d, "duration", time.Millisecond, queue.MaxHandlingTime, 0)
}

func (s *queueService) Nack(ctx context.Context, req *connect.Request[tubev1.NackRequest]) (*connect.Response[tubev1.NackResponse], error) {
	ids, set, err := nacks(req.Msg.Entries, "entries")
	if err != nil {
		return nil, err
	}
	rs, err := s.settle(ctx, req.Msg.Group, ids, set)
	return connect.NewResponse(&tubev1.NackResponse{Results: rs}), err
}

// nacks checks the entries of a nack; the leases are not read yet.
func nacks(entries []*tubev1.NackEntry, field string) (ids []string, set []queue.Settlement, err error) {
	if err := several(len(entries), field); err != nil {
		return nil, nil, err
	}
	now := time.Now()
	ids, set = make([]string, len(entries)), make([]queue.Settlement, len(entries))
	for i, e := range entries {
		if set[i], err = nackOf(e, fieldAt(field, i), now); err != nil {
			return nil, nil, err
		}
		ids[i] = e.LeaseId
	}
	return ids, set, nil
}

// settleAll says the same of all leases.
func (s *queueService) settleAll(ctx context.Context, group string, ids []string, same queue.Settlement) ([]*tubev1.LeaseResult, error) {
	if err := several(len(ids), "lease_ids"); err != nil {
		return nil, err
	}
	return s.settle(ctx, group, ids, repeat(same, len(ids)))
}

func repeat(s queue.Settlement, n int) []queue.Settlement {
	out := make([]queue.Settlement, n)
	for i := range out {
		out[i] = s
	}
	return out
}

// settle reads the leases, has the backend settle those that are leases, and answers
// all of them.
func (s *queueService) settle(ctx context.Context, group string, ids []string, set []queue.Settlement) ([]*tubev1.LeaseResult, error) {
	if err := named(group, "group"); err != nil {
		return nil, err
	}
	q, err := s.queues()
	if err != nil {
		return nil, err
	}
	errs, err := settleIDs(ctx, q.Queues, group, ids, set)
	if err != nil {
		return nil, err
	}
	return s.results(ids, errs), nil
}

// settleIDs reads the leases into set and settles those that are leases: an error or nil
// for each.
func settleIDs(ctx context.Context, q Queues, group string, ids []string, set []queue.Settlement) (errs []error, err error) {
	errs, all := make([]error, len(ids)), true
	for i, id := range ids {
		set[i].Lease, errs[i] = queue.ParseLease(id)
		all = all && errs[i] == nil
	}
	if !all {
		return errs, settleGood(ctx, q, group, set, errs)
	}
	answers, err := q.Settle(ctx, group, set)
	if err == nil && len(answers) != len(set) {
		err = fmt.Errorf("%d leases of group %s have %d answers", len(set), group, len(answers))
	}
	if err != nil {
		return errs, err
	}
	return answers, nil
}

// settleGood settles the leases that have no error yet, and puts theirs into errs.
func settleGood(ctx context.Context, q Queues, group string, set []queue.Settlement, errs []error) error {
	good := make([]queue.Settlement, 0, len(set))
	for i := range set {
		if errs[i] == nil {
			good = append(good, set[i])
		}
	}
	if len(good) == 0 {
		return nil
	}
	answers, err := q.Settle(ctx, group, good)
	if err != nil {
		return err
	}
	if len(answers) != len(good) {
		return fmt.Errorf("%d leases of group %s have %d answers", len(good), group, len(answers))
	}
	for i, n := 0, 0; i < len(errs); i++ {
		if errs[i] == nil {
			errs[i] = answers[n]
			n++
		}
	}
	return nil
}

func (s *queueService) results(ids []string, errs []error) []*tubev1.LeaseResult {
	out := make([]*tubev1.LeaseResult, len(ids))
	for i, id := range ids {
		out[i] = &tubev1.LeaseResult{LeaseId: id, Error: itemError(s.log, errs[i])}
	}
	return out
}

func (s *queueService) Complete(ctx context.Context, req *connect.Request[tubev1.CompleteRequest]) (*connect.Response[tubev1.CompleteResponse], error) {
	m := req.Msg
	if err := named(m.Group, "group"); err != nil {
		return nil, err
	}
	if err := several(len(m.LeaseIds), "lease_ids"); err != nil {
		return nil, err
	}
	send, err := completing(m.Send, time.Now())
	if err != nil {
		return nil, err
	}
	q, err := s.queues()
	if err != nil {
		return nil, err
	}
	read, errs, all := leases(m.LeaseIds)
	out := &tubev1.CompleteResponse{}
	if !all { // nothing is done
		out.Results = s.results(m.LeaseIds, errs)
		return connect.NewResponse(out), nil
	}
	done, err := q.Queues.Complete(ctx, m.Group, read, send)
	if err != nil {
		return nil, err
	}
	if len(done.Leases) != len(read) {
		return nil, fmt.Errorf("%d leases of group %s have %d answers", len(read), m.Group, len(done.Leases))
	}
	out.Results = s.results(m.LeaseIds, done.Leases)
	for i, sent := range done.Sent {
		out.Sent = append(out.Sent, s.sent(send[i].Topic, sent))
	}
	return connect.NewResponse(out), nil
}

func completing(rs []*tubev1.SendRequest, now time.Time) ([]queue.TopicMessages, error) {
	var out []queue.TopicMessages
	total := 0
	for i, r := range rs {
		messages, err := sending(r, fieldAt("send", i)+".", now)
		if err != nil {
			return nil, err
		}
		if total += len(messages); total > queue.MaxMessages {
			return nil, refusedFor(tubev1.QueueErrorDetail_TOO_MANY, "send", "more than %d messages", queue.MaxMessages)
		}
		out = append(out, queue.TopicMessages{Topic: r.Topic, Messages: messages})
	}
	return out, nil
}

// enter takes a slot, if there is one.
func enter(slots chan struct{}) bool {
	select {
	case slots <- struct{}{}:
		return true
	default:
		return false
	}
}

func leaveSlot(slots chan struct{}) { <-slots }

func overloaded(format string, args ...any) error {
	d := &tubev1.QueueErrorDetail{Reason: tubev1.QueueErrorDetail_OVERLOADED}
	return queueError(connect.CodeResourceExhausted, d, fmt.Errorf(format, args...))
}
