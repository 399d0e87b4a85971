package node

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"connectrpc.com/connect"

	"github.com/tube-mq/tube/internal/broker"
	"github.com/tube-mq/tube/internal/courier"
	"github.com/tube-mq/tube/internal/filter"
	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/queue"
	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/rpc"
	"github.com/tube-mq/tube/proto/tube/peer/v1/peerv1connect"
)

// queues puts the parts of the queues together: what this node leads, the way to the
// others, and the consumers' streams that end here.
type queues struct {
	n        *Node
	local    *localQueues
	courier  *courier.Courier
	sessions *sessions
	handler  http.Handler // for other nodes
}

func (n *Node) startQueues() {
	q := &queues{n: n, local: newLocalQueues(n.broker), sessions: newSessions()}
	q.courier = courier.New(courier.Config{
		Self: n.id().Node, Image: n.meta.Image, Node: q.at,
		Leader: func(tp record.TopicPartition) record.NodeID {
			node, _ := n.partitions().Leader(tp.Topic, tp.Partition)
			return node
		},
		Nodes: func() (ids []record.NodeID) {
			for _, b := range n.meta.Image().Brokers() {
				ids = append(ids, b.ID)
			}
			return ids
		},
	})
	_, q.handler = peerv1connect.NewQueuePeerServiceHandler(queueService{self: n.id().Node, image: n.meta.Image, local: q.local, sessions: q.sessions},
		connect.WithReadMaxBytes(maxPeerMessageBytes), connect.WithCompression("gzip", nil, nil))
	n.queues.Store(q)
}

// queueBackend is what the HTTP door's queue services call.
func (n *Node) queueBackend() (rpc.QueueBackend, error) {
	q := n.queues.Load()
	if q == nil || !n.ready.Load() {
		return rpc.QueueBackend{}, errStarting
	}
	return rpc.QueueBackend{Queues: queueCalls{q}, Groups: queueGroups{n.master, q}, Views: queueViews{q}, Changes: queueViews{q}}, nil
}

// queueCalls implements rpc.Queues.
type queueCalls struct{ *queues }

// Send implements rpc.Queues.
func (q queueCalls) Send(ctx context.Context, topic string, ms []queue.Outgoing) ([]queue.Sent, error) {
	return q.courier.Send(ctx, topic, ms)
}

// Receive implements rpc.Queues.
func (q queueCalls) Receive(ctx context.Context, r queue.Receiving) ([]queue.Delivery, error) {
	return q.courier.Receive(ctx, r)
}

// Settle implements rpc.Queues.
func (q queueCalls) Settle(ctx context.Context, group string, s []queue.Settlement) ([]error, error) {
	return q.courier.Settle(ctx, group, s)
}

// queueHooks are given to the broker before there are queues.
func (n *Node) queueHooks() broker.QueueHooks {
	return broker.QueueHooks{DeadLetters: deadLetters{n}, Ask: n.askConsumer, Lost: n.queueLost, Retention: n.queueAtRisk, CarryOut: n.completeLeft}
}

// at is the way to a node's part of the queues.
func (q *queues) at(id record.NodeID) (courier.Node, error) {
	if id == q.n.id().Node {
		return q.local, nil
	}
	return q.n.remoteQueues(id)
}

func (n *Node) remoteQueues(id record.NodeID) (remoteQueues, error) {
	url, c, err := n.peers.transport.Client(id)
	if err != nil {
		return remoteQueues{}, err
	}
	return remoteQueues{id, peerv1connect.NewQueuePeerServiceClient(c, url, connect.WithReadMaxBytes(maxPeerMessageBytes))}, nil
}

// OpenSession implements rpc.Queues.
func (q queueCalls) OpenSession(_ string, m queue.Member, inquire func(context.Context, []queue.Lease) []queue.Answer) (closed func()) {
	q.sessions.open(m.Session, inquire)
	return func() {
		q.sessions.close(m.Session)
		q.courier.SessionGone(m.Session)
	}
}

// inquiryTime is how long a consumer may think; the desk waits as long.
const inquiryTime = 2 * time.Second

// askConsumer puts a desk's question to a consumer, at whichever node its stream ends.
func (n *Node) askConsumer(_ queue.GroupID, ask queue.Ask, answer func(queue.Lease, queue.Answer)) {
	n.background.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), inquiryTime)
		defer cancel()
		for i, a := range n.inquire(ctx, ask) {
			answer(ask.Leases[i], a)
		}
	})
}

func (n *Node) inquire(ctx context.Context, ask queue.Ask) []queue.Answer {
	q := n.queues.Load()
	if ask.Member.Node == n.id().Node && q != nil {
		return q.sessions.inquire(ctx, ask.Member.Session, ask.Leases)
	}
	r, err := n.remoteQueues(ask.Member.Node)
	if err != nil {
		return make([]queue.Answer, len(ask.Leases))
	}
	return r.inquire(ctx, ask.Member.Session, ask.Leases)
}

// queueLost counts what retention took before a group was done with it.
func (n *Node) queueLost(l broker.QueueLost) { n.lostMessages.Add(l.Count) }

// queueTopics tells the broker which queue groups its topics have, when that changed.
type queueTopics struct {
	told map[record.TopicID]toldQueues
}

// toldQueues is what the broker was told of a topic last.
type toldQueues struct {
	topic   *meta.Topic
	groups  []*meta.QueueGroup
	filters map[queue.GroupID]compiledFilter
}

type compiledFilter struct {
	text   string
	filter queue.Filter
}

// tell is called with every image that was carried out, one after the other. A topic
// that is as it was, groups included, is left alone: a cluster may have thousands.
func (t *queueTopics) tell(im *meta.Image, b *broker.Broker) error {
	var errs []error
	next := make(map[record.TopicID]toldQueues, len(im.Topics))
	for id, topic := range im.Topics {
		last, groups := t.told[id], im.QueueGroupsOf(id)
		if last.topic == topic && slices.Equal(last.groups, groups) {
			next[id] = last
			continue
		}
		now := toldQueues{topic, groups, map[queue.GroupID]compiledFilter{}}
		spec := broker.QueueTopic{ID: id, Name: topic.Name, Partitions: len(topic.Partitions), LastID: im.LastQueueGroup}
		for _, g := range groups {
			c, ok := last.filters[g.ID]
			if !ok || c.text != g.Settings.Filter {
				f, err := compile(topic, g)
				if err != nil {
					errs = append(errs, err)
				}
				c = compiledFilter{g.Settings.Filter, f}
			}
			now.filters[g.ID] = c
			spec.Groups = append(spec.Groups, broker.QueueGroup{ID: g.ID, Name: g.Name, Settings: g.Settings, Filter: c.filter})
		}
		b.SetQueueGroups(spec)
		next[id] = now
	}
	t.told = next
	return errors.Join(errs...)
}

// compile makes a group's filter. One that was accepted once and does not compile any
// more, as another version wrote it, wants nothing and says so with each message.
func compile(topic *meta.Topic, g *meta.QueueGroup) (queue.Filter, error) {
	if g.Settings.Filter == "" {
		return nil, nil
	}
	f, err := filter.Compile(g.Settings.Filter)
	if err != nil {
		err = fmt.Errorf("queue group %s: %w", g.Name, err)
		return func(*queue.Message) (bool, error) { return false, err }, err
	}
	name := topic.Name
	return func(m *queue.Message) (bool, error) {
		return f.Match(&filter.Message{
			Key: m.Key, TimestampMillis: m.TimestampMillis, Size: m.SizeBytes(), Topic: name, Partition: int32(m.Partition), Offset: int64(m.Offset),
			Headers: func() map[string]string {
				out := make(map[string]string, len(m.Headers))
				for _, h := range m.Headers {
					out[h.Key] = string(h.Value)
				}
				return out
			},
		})
	}, nil
}
