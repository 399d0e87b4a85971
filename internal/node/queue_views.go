package node

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"connectrpc.com/connect"

	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/queue"
	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/rpc"
	peerv1 "github.com/tube-mq/tube/proto/tube/peer/v1"
	"github.com/tube-mq/tube/proto/tube/peer/v1/peerv1connect"
	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
)

// queueViews gathers what leaders tell of queues. It implements rpc.QueueViews and
// rpc.QueueChanges.
type queueViews struct{ *queues }

// client is what a node answers, this one included.
func (q queueViews) client(id record.NodeID) (peerv1connect.QueuePeerServiceClient, error) {
	if id == q.n.id().Node {
		return queueService{self: id, image: q.n.meta.Image, local: q.local, sessions: q.sessions}, nil
	}
	r, err := q.n.remoteQueues(id)
	return r.client, err
}

// failing is an answer that may be a failure.
type failing interface {
	GetFailure() *peerv1.QueueFailure
}

// askLeader asks the leader of a partition.
func askLeader[Req, Resp any, P interface {
	*Resp
	failing
}](ctx context.Context, q queueViews, tp record.TopicPartition, req *Req,
	call func(peerv1connect.QueuePeerServiceClient) func(context.Context, *connect.Request[Req]) (*connect.Response[Resp], error)) (out P, err error) {
	err = q.courier.Lead(ctx, tp, func(ctx context.Context, id record.NodeID) error {
		c, err := q.client(id)
		if err != nil {
			return fmt.Errorf("%w: node %d, which leads partition %d: %w", queue.ErrUnavailable, id, tp.Partition, err)
		}
		r, err := call(c)(ctx, connect.NewRequest(req))
		if err != nil {
			return remoteQueues{node: id}.failed(err)
		}
		out = P(r.Msg)
		return failureFromPB(out.GetFailure())
	})
	return out, err
}

// progress asks all nodes that lead partitions of a group's topic. Partitions that
// nobody answers for are nil.
func (q queueViews) progress(ctx context.Context, g *meta.QueueGroup, t *meta.Topic) ([]*tubev1.QueueProgress, []*tubev1.QueueCause) {
	by, _ := q.courier.Led(t)
	out := make([]*tubev1.QueueProgress, len(t.Partitions))
	var causes []*tubev1.QueueCause
	var mu sync.Mutex
	var wg sync.WaitGroup
	for id := range by {
		wg.Go(func() {
			c, err := q.client(id)
			if err != nil {
				return
			}
			ctx, cancel := context.WithTimeout(ctx, askTimeout)
			defer cancel()
			r, err := c.QueueProgress(ctx, connect.NewRequest(&peerv1.QueueProgressRequest{Group: uint64(g.ID), Topic: g.Topic[:]}))
			if err != nil || r.Msg.GetFailure().GetKind() != 0 {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			for _, p := range r.Msg.GetPartitions() {
				if n := int(p.GetPartition()); n >= 0 && n < len(out) {
					out[n] = p
				}
			}
			causes = append(causes, r.Msg.GetCauses()...)
		})
	}
	wg.Wait()
	return out, causes
}

// Progress implements rpc.QueueViews.
func (q queueViews) Progress(ctx context.Context, group string) ([]*tubev1.QueueProgress, error) {
	g, t, err := q.courier.Group(group)
	if err != nil {
		return nil, err
	}
	out, _ := q.progress(ctx, g, t)
	for i := range out {
		if out[i] == nil {
			leader, _ := q.n.partitions().Leader(t.ID, record.Partition(i))
			out[i] = &tubev1.QueueProgress{Partition: int32(i), Leader: int32(leader)}
		}
	}
	return out, nil
}

// urgency is the order in which causes are told; what is not here comes last.
var urgency = []tubev1.QueueCause_Kind{
	tubev1.QueueCause_PAUSED, tubev1.QueueCause_NO_LEADER, tubev1.QueueCause_DEAD_LETTER_STUCK, tubev1.QueueCause_KEY_PARKED,
	tubev1.QueueCause_NO_CONSUMER, tubev1.QueueCause_NO_CREDIT, tubev1.QueueCause_IN_FLIGHT_LIMIT, tubev1.QueueCause_SUSPECTS,
	tubev1.QueueCause_KEY_BLOCKED, tubev1.QueueCause_ALL_LEASED, tubev1.QueueCause_RATE, tubev1.QueueCause_BACKING_OFF,
	tubev1.QueueCause_DELAYED, tubev1.QueueCause_FILTERED, tubev1.QueueCause_MOVING, tubev1.QueueCause_NOTHING_NEW, tubev1.QueueCause_RETENTION,
}

// Explain implements rpc.QueueViews: one cause of a kind, with the number of
// partitions and messages that it is for.
func (q queueViews) Explain(ctx context.Context, group string) ([]*tubev1.QueueCause, error) {
	g, t, err := q.courier.Group(group)
	if err != nil {
		return nil, err
	}
	partitions, causes := q.progress(ctx, g, t)
	for i, p := range partitions {
		if p == nil {
			causes = append(causes, &tubev1.QueueCause{Kind: tubev1.QueueCause_NO_LEADER, Partition: int32(i), Offset: -1,
				Text: fmt.Sprintf("partition %d has no leader that answers: tube cluster health says why", i)})
		}
	}
	if len(causes) == 0 { // of a broadcast group, which has a state for each consumer
		causes = append(causes, &tubev1.QueueCause{Kind: tubev1.QueueCause_NO_CONSUMER, Partition: -1, Offset: -1,
			Text: "no consumer has come yet: from when it does, each has everything that is sent"})
	}
	of := map[tubev1.QueueCause_Kind]*tubev1.QueueCause{}
	count := map[tubev1.QueueCause_Kind]int{}
	for _, c := range causes {
		count[c.GetKind()]++
		if first := of[c.GetKind()]; first != nil {
			first.Messages += c.GetMessages()
			continue
		}
		of[c.GetKind()] = c
	}
	var out []*tubev1.QueueCause
	for _, kind := range urgency {
		c := of[kind]
		if c == nil {
			continue
		}
		if n := count[kind]; n > 1 {
			c.Text = fmt.Sprintf("%s (partition %d, and %d more)", c.GetText(), c.GetPartition(), n-1)
			if n == len(t.Partitions) {
				c.Partition = -1
			}
		}
		out = append(out, c)
	}
	return out, nil
}

// token says where a listing goes on: partition and offset.
func token(p record.Partition, o int64) string {
	return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%d %d", p, o))
}

func parseToken(s string, partitions int) (record.Partition, int64, error) {
	if s == "" {
		return 0, 0, nil
	}
	b, err := base64.RawURLEncoding.DecodeString(s)
	p, o, _ := strings.Cut(string(b), " ")
	n, err1 := strconv.Atoi(p)
	at, err2 := strconv.ParseInt(o, 10, 64)
	if err != nil || err1 != nil || err2 != nil || n < 0 || n >= partitions || at < 0 {
		return 0, 0, fmt.Errorf("%w: page_token is none that was given", queue.ErrInvalidSetting)
	}
	return record.Partition(n), at, nil
}

// pages walks through a topic's partitions from a token on, until take says that it
// has enough. It answers the token to go on with; "" at the end.
func (q queueViews) pages(ctx context.Context, t *meta.Topic, from string, req *peerv1.QueueListRequest, limit int, take func(record.Partition, *peerv1.QueueListResponse) (taken int)) (string, error) {
	p, at, err := parseToken(from, len(t.Partitions))
	if err != nil {
		return "", err
	}
	for ; int(p) < len(t.Partitions); p, at = p+1, 0 {
		for at >= 0 {
			tp := record.TopicPartition{Topic: t.ID, Partition: p}
			req.Of, req.From, req.Max = queuePartitionToPB(tp), at, int32(limit)
			r, err := askLeader(ctx, q, tp, req, func(c peerv1connect.QueuePeerServiceClient) func(context.Context, *connect.Request[peerv1.QueueListRequest]) (*connect.Response[peerv1.QueueListResponse], error) {
				return c.QueueList
			})
			if err != nil {
				return "", err
			}
			limit -= take(p, r)
			at = r.GetNext()
			if limit <= 0 {
				switch {
				case at >= 0:
					return token(p, at), nil
				case int(p)+1 < len(t.Partitions):
					return token(p+1, 0), nil
				}
				return "", nil
			}
		}
	}
	return "", nil
}

// ListPending implements rpc.QueueViews.
func (q queueViews) ListPending(ctx context.Context, group, state string, p rpc.Page) (*tubev1.ListPendingResponse, error) {
	g, t, err := q.courier.Group(group)
	if err != nil {
		return nil, err
	}
	out := &tubev1.ListPendingResponse{}
	req := &peerv1.QueueListRequest{What: peerv1.QueueListRequest_PENDING, Group: uint64(g.ID), State: state}
	out.NextPageToken, err = q.pages(ctx, t, p.Token, req, p.Limit, func(_ record.Partition, r *peerv1.QueueListResponse) int {
		out.Messages = append(out.Messages, r.GetPending()...)
		return len(r.GetPending())
	})
	return out, err
}

// topic finds a topic by name.
func (q queueViews) topic(name string) (*meta.Topic, error) {
	if t := q.n.meta.Image().Topic(name); t != nil {
		return t, nil
	}
	return nil, fmt.Errorf("%w: %q", meta.ErrUnknownTopic, name)
}

// ListDelayed implements rpc.QueueViews.
func (q queueViews) ListDelayed(ctx context.Context, topic string, p rpc.Page) (*tubev1.ListDelayedResponse, error) {
	t, err := q.topic(topic)
	if err != nil {
		return nil, err
	}
	out := &tubev1.ListDelayedResponse{}
	total := map[record.Partition]int64{}
	out.NextPageToken, err = q.pages(ctx, t, p.Token, &peerv1.QueueListRequest{What: peerv1.QueueListRequest_DELAYED}, p.Limit, func(p record.Partition, r *peerv1.QueueListResponse) int {
		out.Messages = append(out.Messages, r.GetDelayed()...)
		total[p] = r.GetTotal()
		return len(r.GetDelayed())
	})
	if err == nil && p.Token == "" {
		out.Total = q.delayedInAll(ctx, t, total)
	}
	return out, err
}

// delayedInAll adds up how many messages wait in a topic's partitions, of which some
// are known. Those that do not answer are left out.
func (q queueViews) delayedInAll(ctx context.Context, t *meta.Topic, known map[record.Partition]int64) (total int64) {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for _, n := range known {
		total += n
	}
	for i := range t.Partitions {
		if _, ok := known[record.Partition(i)]; ok {
			continue
		}
		tp := record.TopicPartition{Topic: t.ID, Partition: record.Partition(i)}
		wg.Go(func() {
			req := &peerv1.QueueListRequest{Of: queuePartitionToPB(tp), What: peerv1.QueueListRequest_DELAYED, Max: 1}
			r, err := askLeader(ctx, q, tp, req, func(c peerv1connect.QueuePeerServiceClient) func(context.Context, *connect.Request[peerv1.QueueListRequest]) (*connect.Response[peerv1.QueueListResponse], error) {
				return c.QueueList
			})
			if err == nil {
				mu.Lock()
				total += r.GetTotal()
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return total
}

// TraceMessage implements rpc.QueueViews.
func (q queueViews) TraceMessage(ctx context.Context, topic string, m queue.Ref) (*tubev1.TraceMessageResponse, error) {
	t, err := q.topic(topic)
	if err != nil {
		return nil, err
	}
	var r *peerv1.QueueTraceResponse
	ask := func(at queue.Place, id string) error {
		tp := record.TopicPartition{Topic: t.ID, Partition: at.Partition}
		var err error
		r, err = askLeader(ctx, q, tp, &peerv1.QueueTraceRequest{Of: queuePartitionToPB(tp), Offset: int64(at.Offset), Id: id}, func(c peerv1connect.QueuePeerServiceClient) func(context.Context, *connect.Request[peerv1.QueueTraceRequest]) (*connect.Response[peerv1.QueueTraceResponse], error) {
			return c.QueueTrace
		})
		return err
	}
	err = q.find(t, m, ask)
	if err != nil {
		return nil, err
	}
	out := r.GetTrace()
	out.Topic = t.Name
	for _, replica := range t.Partitions[out.GetPartition()].Replicas {
		out.Nodes = append(out.Nodes, int32(replica.Node))
	}
	for _, g := range out.Groups {
		if g.State == "dead" {
			q.traceDead(ctx, out, g)
		}
	}
	return out, nil
}

// traceLooks is how many of a group's dead letters a trace looks through.
const traceLooks = 10_000

// traceDead tells of the dead letter that a message became, if it is listed.
func (q queueViews) traceDead(ctx context.Context, tr *tubev1.TraceMessageResponse, g *tubev1.GroupTrace) {
	d, err := q.dead(g.Group, "")
	if err != nil {
		return // the group, or what keeps account of its dead letters, was deleted
	}
	looked := 0
	_, _ = q.walk(ctx, d, "", func(m *deadMessage) (bool, error) {
		looked++
		if m.dead[headerDeadTopic] != tr.Topic || m.number(headerDeadPartition) != int64(tr.Partition) || m.number(headerDeadOffset) != tr.Offset {
			return looked >= traceLooks, nil
		}
		attempts := attemptsOf([]byte(m.dead[headerDeadAttempts]))
		g.DeadLetter = fmt.Sprintf("%d/%d", m.partition, m.m.GetOffset())
		g.Attempts, g.LastReason = int32(len(attempts)), m.dead[headerDeadReason]
		g.Text = "is among the dead letters, in topic " + d.topic.Name
		return true, nil
	})
}

// find calls ask with the place that a reference names, or with one partition after
// the other until one has the id. Last the id is taken for a place: such are the ids
// of messages that were given none.
func (q queueViews) find(t *meta.Topic, m queue.Ref, ask func(at queue.Place, id string) error) error {
	if m.ID == "" {
		if m.Partition < 0 || int(m.Partition) >= len(t.Partitions) {
			return fmt.Errorf("%w: topic %s has partitions 0 to %d", queue.ErrUnknownMessage, t.Name, len(t.Partitions)-1)
		}
		return ask(m.Place, "")
	}
	if at, ok := queue.ParsePlace(m.ID); ok && int(at.Partition) < len(t.Partitions) && t.Config.DedupeWindow == 0 {
		if err := ask(at, ""); err == nil {
			return nil // ids like this one are rarely anything else; the search takes long
		}
	}
	for i := range t.Partitions {
		if err := ask(queue.Place{Partition: record.Partition(i)}, m.ID); !errors.Is(err, queue.ErrUnknownMessage) {
			return err
		}
	}
	return fmt.Errorf("%w: topic %s has none of id %q", queue.ErrUnknownMessage, t.Name, m.ID)
}
