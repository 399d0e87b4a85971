package kafka

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tube-mq/tube/internal/broker"
	"github.com/tube-mq/tube/internal/group"
	"github.com/tube-mq/tube/internal/master"
	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/queue"
	"github.com/tube-mq/tube/internal/record"
)

// fakeQueue is a partition's queue group: the real machine on a log that commits at once.
type fakeQueue struct {
	p     *fakePartition
	mu    sync.Mutex
	state *queue.State
	hands *queue.Hands
	desks map[queue.GroupID]*queue.Desk
	now   int64
	// settings of the queue groups that are begun here.
	settings queue.Settings
	dead     []record.Offset
}

func newFakeQueue(p *fakePartition) *fakeQueue {
	s := queue.DefaultSettings()
	s.Backoff = nil
	return &fakeQueue{p: p, state: queue.NewState(), hands: queue.NewHands(), desks: map[queue.GroupID]*queue.Desk{}, now: 1_000_000, settings: s}
}

func (p *fakePartition) Queue() PartitionQueue { return p.queue }

// End and Messages make the partition a queue.Source; only offsets matter.
func (q *fakeQueue) End() record.Offset {
	q.p.mu.Lock()
	defer q.p.mu.Unlock()
	return q.p.end
}

func (q *fakeQueue) Messages(o record.Offset) ([]queue.Message, error) {
	return []queue.Message{{Offset: o, Value: []byte("value"), KeyNull: true}}, nil
}

func (q *fakeQueue) apply(ops ...queue.Op) {
	if _, err := q.state.Apply(queue.AppendCommand(nil, q.now, ops), q.End()); err != nil {
		panic(err)
	}
}

func (q *fakeQueue) desk(id queue.GroupID) *queue.Desk {
	d := q.desks[id]
	if d == nil {
		q.apply(queue.Op{Kind: queue.OpOpen, Group: id})
		d = queue.NewDesk(queue.DeskConfig{Group: id, Settings: q.settings, Read: func(f func(*queue.State)) { f(q.state) }, Source: q, Hands: q.hands, Given: queue.FirstOf(1)}, q.now)
		q.desks[id] = d
	}
	return d
}

// carry commits what the desk wants, and writes its dead letters.
func (q *fakeQueue) carry(d *queue.Desk) {
	for e := d.Effects(); len(e.Ops)+len(e.Dying) > 0; e = d.Effects() {
		for i := range e.Ops {
			q.apply(e.Ops[i])
			d.Committed(q.now, &e.Ops[i])
		}
		q.dead = append(q.dead, e.Dying...)
		d.DeadWritten(e.Dying)
	}
}

// pass has time go by.
func (q *fakeQueue) pass(d time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.now += d.Milliseconds()
	for _, x := range q.desks {
		x.Tick(q.now)
		q.carry(x)
	}
}

func (q *fakeQueue) gone(session string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, x := range q.desks {
		x.SessionGone(q.now, session)
		q.carry(x)
	}
}

func (q *fakeQueue) QueueAcquire(id queue.GroupID, t queue.Taking) ([]queue.Taken, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.p.err != nil {
		return nil, q.p.err
	}
	d := q.desk(id)
	t.Hold = true
	taken, _, err := d.Take(q.now, t)
	q.carry(d)
	slices.SortFunc(taken, func(a, b queue.Taken) int { return cmp.Compare(a.Lease.Offset, b.Lease.Offset) })
	return taken, err
}

func (q *fakeQueue) QueueSettle(_ context.Context, id queue.GroupID, list []queue.Settlement) []error {
	q.mu.Lock()
	defer q.mu.Unlock()
	errs := make([]error, len(list))
	d := q.desk(id)
	for i, s := range list {
		_, errs[i] = d.Settle(q.now, s)
	}
	q.carry(d)
	return errs
}

func (q *fakeQueue) QueueBatches(list []record.Offset, maxBytes int) (out []byte, n int, err error) {
	q.p.mu.Lock()
	defer q.p.mu.Unlock()
	for _, b := range q.p.batches {
		h, _ := record.ParseHeader(b)
		if n == len(list) || list[n] > h.LastOffset() {
			continue
		}
		if len(out) > 0 && len(out)+len(b) > maxBytes {
			break
		}
		out = append(out, b...)
		for n < len(list) && list[n] <= h.LastOffset() {
			n++
		}
	}
	return out, n, nil
}

func (q *fakeQueue) QueueBatchEnd(o record.Offset) (record.Offset, error) {
	q.p.mu.Lock()
	defer q.p.mu.Unlock()
	for _, b := range q.p.batches {
		if h, _ := record.ParseHeader(b); o <= h.LastOffset() {
			return h.NextOffset(), nil
		}
	}
	return 0, queue.ErrGone
}

// fakeShares is the metadata's part: it makes queue groups in the image.
type fakeShares struct {
	f     *fakeCluster
	m     *meta.Machine
	index record.Index
}

func (s *fakeShares) Queue(_ context.Context, share string, topic record.TopicID) (*meta.QueueGroup, error) {
	if g := s.f.image().ShareQueue(share, topic); g != nil {
		return g, nil
	}
	return nil, queue.ErrUnavailable
}
func (s *fakeShares) Begun(context.Context, *meta.QueueGroup) error  { return nil }
func (s *fakeShares) Waiter(of []broker.QueueOf) *broker.QueueWaiter { return &broker.QueueWaiter{} }
func (s *fakeShares) SessionGone(session string) {
	for _, p := range s.f.partitions {
		p.queue.gone(session)
	}
}
func (s *fakeShares) Progress(_ context.Context, g *meta.QueueGroup) ([]ShareProgress, error) {
	var out []ShareProgress
	for i := range s.f.image().Topics[g.Topic].Partitions {
		q := s.f.partitions[record.TopicPartition{Topic: g.Topic, Partition: record.Partition(i)}].queue
		q.mu.Lock()
		q.desk(g.ID)
		c, ok := q.state.Counts(g.ID, "", q.End())
		q.mu.Unlock()
		out = append(out, ShareProgress{ok, c.Floor, c.Backlog})
	}
	return out, nil
}
func (s *fakeShares) Seek(_ context.Context, g *meta.QueueGroup, to queue.Place) error {
	q := s.f.partitions[record.TopicPartition{Topic: g.Topic, Partition: to.Partition}].queue
	q.mu.Lock()
	defer q.mu.Unlock()
	op := queue.Op{Kind: queue.OpSeek, Group: g.ID, Offset: to.Offset}
	d := q.desk(g.ID)
	q.apply(op)
	d.Committed(q.now, &op)
	return nil
}
func (s *fakeShares) command(b []byte) error {
	s.index++
	r := s.m.Apply(s.index, b)
	s.f.mu.Lock()
	s.f.im = s.m.Image()
	s.f.mu.Unlock()
	return r.Err
}
func (s *fakeShares) Delete(_ context.Context, g *meta.QueueGroup) error {
	return s.command(meta.DeleteQueueGroup(time.UnixMilli(0), g.ID))
}
func (s *fakeShares) AlterConfig(_ context.Context, share string, c master.ConfigChange) error {
	if c.ValidateOnly {
		_, err := meta.ResolveGroupConfig(c.Set)
		return err
	}
	return s.command(meta.AlterGroupConfig(time.UnixMilli(0), share, c.Replace, c.Set, c.Remove))
}

// shareDoor is a door to one topic t of two partitions with the share group g, on the
// real machines.
type shareDoor struct {
	*Door
	t      *testing.T
	f      *fakeCluster
	shares *fakeShares
	groups *master.Groups
	topic  *meta.Topic
}

func newShareDoor(t *testing.T) *shareDoor {
	t.Helper()
	f := newFakeCluster()
	s := &fakeShares{f: f, m: meta.New()}
	now := time.UnixMilli(0)
	must := func(command []byte) {
		if err := s.command(command); err != nil {
			t.Fatal(err)
		}
	}
	must(meta.Bootstrap(now, "c", meta.Founder{Node: 1, Replica: 1}))
	for id := record.NodeID(1); id <= 2; id++ {
		must(meta.RegisterNode(now, meta.Node{ID: id, Incarnation: "i", Kafka: "127.0.0.1:9092", Roles: []string{meta.RoleMaster, meta.RoleBroker}}))
	}
	for _, x := range []struct {
		name string
		n    int
	}{{"t", 2}, {"g.dead-letter", 1}} {
		id := record.NewTopicID()
		must(meta.CreateTopic(now, id, x.name, slices.Repeat([][]record.NodeID{{1}}, x.n), nil))
		for p := range x.n {
			f.partitions[record.TopicPartition{Topic: id, Partition: record.Partition(p)}] = newFakePartition()
		}
	}
	topic := f.image().Topic("t")
	config, _ := meta.ResolveGroupConfig(nil)
	must(meta.CreateShareQueue(now, "g", topic.ID, config, "g.dead-letter"))
	gd := newGroupDoor(t)
	gd.groups.SetTopics(group.NewTopics(1, []*group.Topic{{ID: topic.ID, Name: "t", Partitions: 2}}))
	d, err := New(Config{Node: 1}, Backend{
		Topics: f, Placement: f, Leaders: f, Partitions: f, Image: f.image, Shares: Shares{s, s},
		Groups: Groups{Members: gd.groups, Offsets: gd.groups.Offsets(), Admin: gd.groups.Admin()},
	})
	if err != nil {
		t.Fatal(err)
	}
	return &shareDoor{Door: d, t: t, f: f, shares: s, groups: gd.groups, topic: topic}
}

func (d *shareDoor) queue(p int) *fakeQueue { return d.f.part(d.topic, p).queue }

// shareClient is one member, as its client counts.
type shareClient struct {
	d      *shareDoor
	c      *client
	member string
	epoch  int32
	v      int16
}

func (d *shareDoor) client(member string, v int16) *shareClient {
	return &shareClient{d: d, c: newClient(d.Door), member: member, v: v}
}

// says is what a client says of offsets of a partition.
type says struct {
	partition   int32
	first, last int64
	kinds       []int8
}

// acquired says what a response gives, as "partition: first-last x count".
func acquired(r *kmsg.ShareFetchResponse) (out []string) {
	for _, t := range r.Topics {
		for _, p := range t.Partitions {
			for _, a := range p.AcquiredRecords {
				out = append(out, fmt.Sprintf("%d: %d-%d x%d", p.Partition, a.FirstOffset, a.LastOffset, a.DeliveryCount))
			}
		}
	}
	slices.Sort(out)
	return out
}

func wantAcquired(t *testing.T, r *kmsg.ShareFetchResponse, want ...string) {
	t.Helper()
	if got := acquired(r); !slices.Equal(got, want) {
		t.Fatalf("acquired %q, want %q", got, want)
	}
}

// mustAlter changes settings of a group.
func (d *shareDoor) mustAlter(group string, settings ...string) {
	d.t.Helper()
	if code := d.alter(group, settings...); code != 0 {
		d.t.Fatalf("settings of group %s: %s", group, errorName(code))
	}
}

func (d *shareDoor) alter(group string, settings ...string) int16 {
	d.t.Helper()
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeGroupConfig, group
	for i := 0; i < len(settings); i += 2 {
		c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		c.Name, c.Value = settings[i], &settings[i+1]
		r.Configs = append(r.Configs, c)
	}
	req.Resources = append(req.Resources, r)
	return askDoor[*kmsg.IncrementalAlterConfigsResponse](d.t, d.Door, newClient(d.Door), 1, req).Resources[0].ErrorCode
}
