package kafka

import (
	"context"
	"encoding/binary"
	"io"
	"log/slog"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tube-mq/tube/internal/broker"
	"github.com/tube-mq/tube/internal/master"
	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/record"
)

// fakeCluster is a node's backend in memory: topics, and partitions that keep
// batches in a slice.
type fakeCluster struct {
	mu         sync.Mutex
	im         *meta.Image
	partitions map[record.TopicPartition]*fakePartition
	createErr  error
	created    []string
}

func newFakeCluster() *fakeCluster {
	return &fakeCluster{
		im: &meta.Image{
			ClusterID: "fake", Controller: 1,
			Topics: map[record.TopicID]*meta.Topic{}, ByName: map[string]*meta.Topic{},
			Nodes: map[record.NodeID]*meta.Node{1: {ID: 1, Kafka: "127.0.0.1:9092", Zone: "z", State: meta.NodeUp}},
		},
		partitions: map[record.TopicPartition]*fakePartition{},
	}
}

func (f *fakeCluster) image() *meta.Image {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.im
}

// change replaces the image, as images never change.
func (f *fakeCluster) change(edit func(im *meta.Image)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	im := *f.im
	im.Topics, im.ByName, im.Nodes = map[record.TopicID]*meta.Topic{}, map[string]*meta.Topic{}, map[record.NodeID]*meta.Node{}
	for k, v := range f.im.Topics {
		im.Topics[k], im.ByName[v.Name] = v, v
	}
	for k, v := range f.im.Nodes {
		im.Nodes[k] = v
	}
	edit(&im)
	f.im = &im
}

func (f *fakeCluster) addTopic(name string, partitions int) *meta.Topic {
	t := &meta.Topic{ID: record.NewTopicID(), Name: name}
	for range partitions {
		t.Partitions = append(t.Partitions, meta.Placement{Leader: 1, Epoch: 3, Replicas: []meta.Replica{{ID: 1, Node: 1}}})
	}
	f.change(func(im *meta.Image) { im.Topics[t.ID], im.ByName[name] = t, t })
	f.mu.Lock()
	defer f.mu.Unlock()
	for p := range partitions {
		f.partitions[record.TopicPartition{Topic: t.ID, Partition: record.Partition(p)}] = newFakePartition()
	}
	return t
}

func (f *fakeCluster) part(t *meta.Topic, p int) *fakePartition {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.partitions[record.TopicPartition{Topic: t.ID, Partition: record.Partition(p)}]
}

func (f *fakeCluster) Partition(t record.TopicID, p record.Partition) (Partition, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if x := f.partitions[record.TopicPartition{Topic: t, Partition: p}]; x != nil {
		return x, nil
	}
	return nil, broker.ErrUnknownPartition
}

func (f *fakeCluster) Leader(t record.TopicID, p record.Partition) (record.NodeID, record.Epoch) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if x := f.partitions[record.TopicPartition{Topic: t, Partition: p}]; x != nil {
		x.mu.Lock()
		defer x.mu.Unlock()
		return x.leader, 3
	}
	return -1, -1
}

func (f *fakeCluster) CreateTopic(_ context.Context, spec master.TopicSpec) (*meta.Topic, error) {
	f.mu.Lock()
	err := f.createErr
	f.created = append(f.created, spec.Name)
	f.mu.Unlock()
	if err != nil {
		return nil, err
	}
	return f.addTopic(spec.Name, 2), nil
}

func (f *fakeCluster) DeleteTopic(context.Context, record.TopicID) error             { return nil }
func (f *fakeCluster) CreatePartitions(context.Context, master.PartitionsSpec) error { return nil }
func (f *fakeCluster) AlterConfig(context.Context, master.ConfigChange) error        { return nil }
func (f *fakeCluster) BrokerSettings() []master.BrokerSetting                        { return nil }
func (f *fakeCluster) ProducerID(context.Context) (record.ProducerID, error)         { return 7, nil }

func (f *fakeCluster) Reassign(_ context.Context, specs []master.ReassignSpec, _ int64, _ bool) ([]master.PartitionMove, []error) {
	return nil, make([]error, len(specs))
}
func (f *fakeCluster) CancelReassign(_ context.Context, names []master.PartitionName) []error {
	return make([]error, len(names))
}
func (f *fakeCluster) ListReassignments(string) []master.Reassignment { return nil }
func (f *fakeCluster) TransferLeaders(_ context.Context, transfers []master.TransferLeader) []error {
	return make([]error, len(transfers))
}

// fakePartition keeps its batches in memory.
type fakePartition struct {
	mu       sync.Mutex
	batches  [][]byte
	start    record.Offset
	end      record.Offset
	leader   record.NodeID
	err      error    // of every call
	held     []func() // answers held back, when hold is set
	hold     bool
	watchers map[broker.Watcher]int
	reads    int
	onWatch  func() // called before a watch begins
	released int    // reads whose Release was called
	given    int    // reads that had a Release
	ahead    []int  // for each call of an Ahead: reads not released then
	confirms int
	confirm  error // of Confirm
	// follows: it does not lead, and serves who has caught up. caught are those who
	// wait for that.
	follows   bool
	caught    []func(error)
	followers []record.NodeID
	queue     *fakeQueue
}

func newFakePartition() *fakePartition {
	p := &fakePartition{leader: 1, watchers: map[broker.Watcher]int{}}
	p.queue = newFakeQueue(p)
	return p
}

func (p *fakePartition) set(change func(*fakePartition)) {
	p.mu.Lock()
	change(p)
	p.mu.Unlock()
	p.wake()
}

func (p *fakePartition) wake() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for w := range p.watchers {
		w.Wake()
	}
}

func (p *fakePartition) Produce(req broker.ProduceRequest, done func(broker.ProduceResult)) {
	h, err := record.Check(req.Batch, record.Limits{})
	p.mu.Lock()
	if err == nil {
		err = p.err
	}
	result := broker.ProduceResult{BaseOffset: -1, LogAppendTimeMillis: -1, LogStart: -1, Err: err}
	if err == nil {
		b := slices.Clone(req.Batch)
		record.PutBaseOffset(b, p.end)
		record.PutLeaderEpoch(b, 3)
		p.batches = append(p.batches, b)
		result.BaseOffset, result.LogStart = p.end, p.start
		p.end += record.Offset(h.Count)
	}
	answer := func() { done(result); p.wake() }
	if p.hold {
		if req.Buf != nil {
			buf := req.Buf.Retain()
			inner := answer
			answer = func() { inner(); buf.Release() }
		}
		p.held = append(p.held, answer)
		p.mu.Unlock()
		return
	}
	p.mu.Unlock()
	answer()
}

// letGo gives n of the held answers, the first ones.
func (p *fakePartition) letGo(n int) {
	p.mu.Lock()
	now := slices.Clone(p.held[:n])
	p.held = slices.Delete(p.held, 0, n)
	p.mu.Unlock()
	for _, answer := range now {
		answer()
	}
}

func (p *fakePartition) bounds() broker.Bounds {
	return broker.Bounds{LogStart: p.start, HighWatermark: p.end, LastStable: p.end, LeaderEpoch: 3}
}

func (p *fakePartition) Read(req broker.ReadRequest) (broker.ReadResult, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reads++
	if p.err != nil {
		return broker.ReadResult{}, p.err
	}
	if p.follows && !req.CaughtUp {
		return broker.ReadResult{}, broker.ErrNotLeader
	}
	if req.Offset < p.start || req.Offset > p.end {
		return broker.ReadResult{}, broker.ErrOutOfRange
	}
	r := broker.ReadResult{Bounds: p.bounds(), Followed: p.follows}
	for _, b := range p.batches {
		h, _ := record.ParseHeader(b)
		if h.NextOffset() <= req.Offset {
			continue
		}
		if r.SizeBytes+len(b) > req.MaxBytes && !(req.MinOne && r.SizeBytes == 0) {
			break
		}
		r.Parts, r.SizeBytes = append(r.Parts, b), r.SizeBytes+len(b)
	}
	if r.SizeBytes > 0 {
		p.given++
		r.Release = func() { p.mu.Lock(); p.released++; p.mu.Unlock() }
		r.Ahead = func() { p.mu.Lock(); p.ahead = append(p.ahead, p.given-p.released); p.mu.Unlock() }
	}
	return r, nil
}

func (p *fakePartition) Bounds() (broker.Bounds, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.bounds(), p.err
}

func (p *fakePartition) Followers() []record.NodeID {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.followers
}

func (p *fakePartition) CatchUp(_ record.Epoch, done func(error)) (stop func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.caught)
	p.caught = append(p.caught, done)
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if n < len(p.caught) {
			p.caught[n] = nil
		}
	}
}

// catchUp answers those who wait for a follower, and says how many did.
func (p *fakePartition) catchUp(err error) int {
	p.mu.Lock()
	waiting := p.caught
	p.caught = nil
	p.mu.Unlock()
	n := 0
	for _, done := range waiting {
		if done != nil {
			done(err)
			n++
		}
	}
	return n
}

func (p *fakePartition) Watch(w broker.Watcher) func() {
	if p.onWatch != nil {
		p.onWatch()
	}
	p.mu.Lock()
	p.watchers[w]++
	p.mu.Unlock()
	return func() {
		p.mu.Lock()
		if p.watchers[w]--; p.watchers[w] == 0 {
			delete(p.watchers, w)
		}
		p.mu.Unlock()
	}
}

func (p *fakePartition) watched() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.watchers)
}

func (p *fakePartition) Lookup() PartitionLookup { return p }

func (p *fakePartition) Confirm(context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.confirms++
	return p.confirm
}

func (p *fakePartition) OffsetForTime(t int64) (broker.TimedOffset, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, b := range p.batches {
		if h, _ := record.ParseHeader(b); h.MaxTimestamp >= t {
			return broker.TimedOffset{Offset: h.BaseOffset, TimestampMillis: h.MaxTimestamp, LeaderEpoch: 3}, nil
		}
	}
	return broker.TimedOffset{Offset: -1, TimestampMillis: -1, LeaderEpoch: -1}, p.err
}

func (p *fakePartition) OffsetForMaxTime() (broker.TimedOffset, error) { return p.OffsetForTime(0) }

func (p *fakePartition) EndOfEpoch(e record.Epoch) (record.Epoch, record.Offset, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if e < 3 {
		return -1, -1, p.err
	}
	return 3, p.end, p.err
}

func (p *fakePartition) DeleteRecords(_ context.Context, before record.Offset) (record.Offset, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if before == -1 {
		before = p.end
	}
	if before > p.end {
		return -1, broker.ErrOutOfRange
	}
	p.start = max(p.start, before)
	return p.start, p.err
}

func (p *fakePartition) Producers() ([]broker.ProducerState, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return []broker.ProducerState{{ID: 5, Epoch: 1, LastSequence: 9, LastTimestampMillis: 10, TxnStart: -1}}, p.err
}

func (p *fakePartition) SizeBytes() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := 0
	for _, b := range p.batches {
		n += len(b)
	}
	return int64(n)
}

// add stores a batch of n records as if it had been produced.
func (p *fakePartition) add(t testing.TB, n int) []byte {
	t.Helper()
	b := batchOf(t, n, "value")
	p.Produce(broker.ProduceRequest{Batch: b, LeaderEpoch: -1}, func(r broker.ProduceResult) {
		if r.Err != nil {
			t.Error(r.Err)
		}
	})
	return b
}

func batchOf(t testing.TB, n int, value string) []byte {
	t.Helper()
	var rs []record.Record
	for i := range n {
		rs = append(rs, record.Record{Offset: record.Offset(i), Timestamp: 1000, Value: []byte(value)})
	}
	b, err := record.Encode(record.BatchOptions{}, rs)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// newTestDoor makes a door to a fake cluster, not listening.
func newTestDoor(t testing.TB, f *fakeCluster, cfg Config) *Door {
	t.Helper()
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.NewTextHandler(io.Discard, nil))
	}
	cfg.Node = 1
	d, err := New(cfg, Backend{Topics: f, Placement: f, Leaders: f, Partitions: f, Image: f.image})
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// askDoor calls a handler through the bytes of its version, both ways.
func askDoor[R kmsg.Response](t testing.TB, d *Door, c *client, version int16, req kmsg.Request) R {
	t.Helper()
	req.SetVersion(version)
	row := d.table[req.Key()]
	if row == nil || version < row.min || version > row.max {
		t.Fatalf("%s v%d is not advertised", kmsg.NameForKey(req.Key()), version)
	}
	got := kmsg.RequestForKey(req.Key())
	got.SetVersion(version)
	if err := got.ReadFrom(req.AppendTo(nil)); err != nil {
		t.Fatal(err)
	}
	resp := row.handle(d, d.ctx, c, got)
	back := kmsg.ResponseForKey(req.Key())
	back.SetVersion(version)
	if err := back.ReadFrom(resp.AppendTo(nil)); err != nil {
		t.Fatalf("response v%d: %v", version, err)
	}
	if ch, ok := resp.(chunked); ok {
		ch.release()
	}
	return back.(R)
}

func eachVersion(t *testing.T, key int16, f func(t *testing.T, v int16)) {
	eachGroupVersion(t, key, f)
}

func newClient(d *Door) *client { return &client{host: "127.0.0.1", sessions: sessions{door: d}} }

// pipeListener hands out ends of pipes, so that a door runs in a bubble of synctest.
type pipeListener struct {
	conns chan net.Conn
	once  sync.Once
	done  chan struct{}
}

func newPipeListener() *pipeListener {
	return &pipeListener{conns: make(chan net.Conn), done: make(chan struct{})}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	select {
	case c := <-l.conns:
		return c, nil
	case <-l.done:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error   { l.once.Do(func() { close(l.done) }); return nil }
func (l *pipeListener) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 1} }

func (l *pipeListener) dial() net.Conn {
	a, b := net.Pipe()
	l.conns <- b
	return a
}

// rawClient speaks frames.
type rawClient struct {
	t           testing.TB
	nc          net.Conn
	correlation int32
}

// frameOf encodes a request frame.
func frameOf(version int16, correlation int32, req kmsg.Request) []byte {
	req.SetVersion(version)
	f := kmsg.NewRequestFormatter(kmsg.FormatterClientID("raw"))
	return f.AppendRequest(nil, req, correlation)
}

func (c *rawClient) send(version int16, req kmsg.Request) int32 {
	c.t.Helper()
	c.correlation++
	if _, err := c.nc.Write(frameOf(version, c.correlation, req)); err != nil {
		c.t.Fatal(err)
	}
	return c.correlation
}

// receive reads one response frame: its correlation id and what follows.
func (c *rawClient) receive() (int32, []byte, error) {
	var head [8]byte
	if _, err := io.ReadFull(c.nc, head[:]); err != nil {
		return 0, nil, err
	}
	b := make([]byte, int(binary.BigEndian.Uint32(head[:]))-4)
	_, err := io.ReadFull(c.nc, b)
	return int32(binary.BigEndian.Uint32(head[4:])), b, err
}

// get reads the response to req.
func (c *rawClient) get(req kmsg.Request) kmsg.Response {
	c.t.Helper()
	id, b, err := c.receive()
	if err != nil {
		c.t.Fatalf("no answer to %s: %v", kmsg.NameForKey(req.Key()), err)
	}
	if id != c.correlation {
		c.t.Fatalf("answer %d to request %d", id, c.correlation)
	}
	resp := req.ResponseKind()
	if resp.IsFlexible() && resp.Key() != keyApiVersions {
		b = b[1:]
	}
	if err := resp.ReadFrom(b); err != nil {
		c.t.Fatal(err)
	}
	return resp
}

func (c *rawClient) ask(version int16, req kmsg.Request) kmsg.Response {
	c.t.Helper()
	c.send(version, req)
	return c.get(req)
}

// ended waits for the other side to close the connection.
func (c *rawClient) ended() bool {
	_ = c.nc.SetReadDeadline(time.Now().Add(time.Hour)) // a bubble's hour
	_, err := c.nc.Read(make([]byte, 1))
	return err != nil
}

func produceReq(topic string, id record.TopicID, acks int16, batches ...[]byte) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = acks, 1000
	t := kmsg.NewProduceRequestTopic()
	t.Topic, t.TopicID = topic, id
	for n, b := range batches {
		p := kmsg.NewProduceRequestTopicPartition()
		p.Partition, p.Records = int32(n), b
		t.Partitions = append(t.Partitions, p)
	}
	req.Topics = append(req.Topics, t)
	return req
}

// fetchOf asks for partitions 0.. of a topic from the offsets given.
func fetchOf(t *meta.Topic, offsets ...int64) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.SessionEpoch = 0, 1, 1<<20, -1
	rt := kmsg.NewFetchRequestTopic()
	rt.Topic, rt.TopicID = t.Name, t.ID
	for n, o := range offsets {
		p := kmsg.NewFetchRequestTopicPartition()
		p.Partition, p.FetchOffset, p.PartitionMaxBytes, p.CurrentLeaderEpoch = int32(n), o, 1<<20, -1
		rt.Partitions = append(rt.Partitions, p)
	}
	if len(offsets) > 0 {
		req.Topics = append(req.Topics, rt)
	}
	return req
}
