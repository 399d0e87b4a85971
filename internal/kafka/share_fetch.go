package kafka

import (
	"cmp"
	"context"
	"errors"
	"net"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tube-mq/tube/internal/broker"
	"github.com/tube-mq/tube/internal/queue"
	"github.com/tube-mq/tube/internal/record"
)

// shareFetch gives a member of a share group records that nobody else has, and settles
// those that it says something of. Records come in whole batches as they are stored,
// with the offsets that are the member's; it waits for a first one up to max_wait.
func (d *Door) shareFetch(ctx context.Context, cl *client, r kmsg.Request) kmsg.Response {
	req := r.(*kmsg.ShareFetchRequest)
	f := &shareFetching{req: req, resp: req.ResponseKind().(*kmsg.ShareFetchResponse), out: map[sharePart]*kmsg.ShareFetchResponseTopicPartition{}}
	if err := f.open(ctx, d, cl); err != nil {
		f.resp.ErrorCode, f.resp.ErrorMessage = shareCode(err)
		d.cfg.Calls.Error("ShareFetch", errorName(f.resp.ErrorCode))
		return f.resp
	}
	defer f.session.answered()
	f.acknowledge(ctx, f.acks)
	for _, a := range f.acks {
		p := f.part(a.part)
		p.AcknowledgeErrorCode, p.AcknowledgeErrorMessage = shareCode(a.err)
	}
	switch {
	case f.epoch == epochNone:
		f.letGo(ctx, f.session)
	case !f.renews:
		f.run(ctx)
	}
	return f.finish()
}

// shareFetching is one ShareFetch under way.
type shareFetching struct {
	*shareCall
	req  *kmsg.ShareFetchRequest
	resp *kmsg.ShareFetchResponse
	acks []*shareAcks

	order   []sharePart
	out     map[sharePart]*kmsg.ShareFetchResponseTopicPartition
	records int
	bytes   int
	failed  bool // some partition has an error: there is nothing to wait for
}

func (f *shareFetching) open(ctx context.Context, d *Door, cl *client) error {
	c, err := d.newShareCall(f.req.GroupID, f.req.MemberID, f.req.ShareSessionEpoch)
	if err != nil {
		return err
	}
	f.shareCall = c
	c.renews = f.req.Version >= 2 && f.req.IsRenewAck
	cl.shareGone = d.shares.Queues.SessionGone
	for _, t := range f.req.Topics {
		for _, p := range t.Partitions {
			if len(p.AcknowledgementBatches) == 0 {
				continue
			}
			a := &shareAcks{part: sharePart{t.TopicID, record.Partition(p.Partition)}}
			for _, b := range p.AcknowledgementBatches {
				a.batches = append(a.batches, shareAckBatch{b.FirstOffset, b.LastOffset, b.AcknowledgeTypes})
			}
			f.acks = append(f.acks, a)
		}
	}
	switch {
	case c.epoch == epochBegin && len(f.acks) > 0:
		return refuse(kerr.InvalidRequest, "acknowledgements with share session epoch 0: the session has given nothing yet")
	case c.renews && (f.req.MaxBytes != 0 || f.req.MinBytes != 0 || f.req.MaxRecords != 0 || f.req.MaxWaitMillis != 0):
		return refuse(kerr.InvalidRequest, "a request with renewals fetches nothing: its limits have to be 0")
	}
	old, err := c.open(cl)
	if err != nil {
		return err
	}
	if old != nil {
		c.letGo(ctx, old) // the member does not know of it any more
	}
	if c.epoch == epochNone {
		return nil
	}
	return c.session.change(f.req.Topics, f.req.ForgottenTopicsData)
}

// part is a partition's place in the answer.
func (f *shareFetching) part(p sharePart) *kmsg.ShareFetchResponseTopicPartition {
	if out := f.out[p]; out != nil {
		return out
	}
	out := kmsg.NewShareFetchResponseTopicPartition()
	out.Partition = int32(p.number)
	out.CurrentLeader.LeaderID, out.CurrentLeader.LeaderEpoch = -1, -1
	f.out[p] = &out
	f.order = append(f.order, p)
	return &out
}

// run looks at all partitions of the session and waits for a first record.
func (f *shareFetching) run(ctx context.Context) {
	d := f.door
	parts := f.session.fetched()
	w := d.shares.Queues.Waiter(f.queues(ctx, parts))
	defer w.Close()
	wait := min(time.Duration(f.req.MaxWaitMillis)*time.Millisecond, d.cfg.MaxFetchWait)
	timer := time.NewTimer(max(wait, 0))
	defer timer.Stop()
	for {
		w.Looking()
		f.pass(ctx, parts)
		w.Looked()
		if f.records > 0 || f.failed || wait <= 0 || len(parts) == 0 || len(f.acks) > 0 {
			// Who acknowledges wants to hear of it, and fetches again.
			return
		}
		select {
		case <-w.Woken():
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// queues are those of the partitions' topics. Those that are not there yet are made;
// what becomes of the others is told by fetch.
func (f *shareFetching) queues(ctx context.Context, parts []sharePart) (out []broker.QueueOf) {
	seen := map[record.TopicID]bool{}
	ctx, cancel := context.WithTimeout(ctx, beginShareWait)
	defer cancel()
	for _, p := range parts {
		if seen[p.topic] || f.door.image().Topics[p.topic] == nil {
			continue
		}
		seen[p.topic] = true
		g, err := f.door.shares.Queues.Queue(ctx, f.group, p.topic)
		if err != nil {
			f.door.cfg.Logger.Warn("a share group cannot begin with a topic; its members try again", "group", f.group, "topic", p.topic, "err", err)
			continue
		}
		out = append(out, broker.QueueOf{Topic: p.topic, Group: g.ID})
	}
	return out
}

// pass asks each partition for what there is.
func (f *shareFetching) pass(ctx context.Context, parts []sharePart) {
	// What is not used is given back at once, the rest when the answer is written.
	grant := f.door.budgets.fetchShare(min(int(max(f.req.MaxBytes, 1)), f.door.cfg.MaxFetchBytes))
	defer func() { f.door.budgets.returnFetchShare(grant - f.bytes) }()
	for _, p := range parts {
		if f.records >= f.maxRecords() || f.bytes >= grant {
			return
		}
		if err := f.fetch(ctx, p, grant-f.bytes); err != nil {
			out := f.part(p)
			out.ErrorCode, out.ErrorMessage = shareCode(err)
			f.failed = true
			if out.ErrorCode == kerr.UnknownServerError.Code {
				f.door.cfg.Logger.Error("a share consumer could not be given records", "group", f.group, "topic", p.topic, "partition", p.number, "err", err)
			}
			f.door.cfg.Calls.Error("ShareFetch", errorName(out.ErrorCode))
		}
	}
}

func (f *shareFetching) maxRecords() int {
	if f.req.MaxRecords <= 0 {
		return 500 // as clients ask for
	}
	return int(f.req.MaxRecords)
}

// fetch takes records of one partition, and reads their batches.
func (f *shareFetching) fetch(ctx context.Context, p sharePart, room int) error {
	g, q, err := f.queueOf(p)
	if err != nil {
		return err
	}
	if g == nil {
		return nil // it is being made, or was deleted
	}
	taking := queue.Taking{
		Member: queue.Member{ID: f.member, Session: f.session.name, Node: f.door.cfg.Node, Address: f.session.host},
		Max:    f.maxRecords() - f.records, MaxBytes: room,
	}
	taken, err := q.QueueAcquire(g.ID, taking)
	switch {
	case errors.Is(err, queue.ErrUnknownGroup):
		return nil // it has not begun here yet
	case err != nil || len(taken) == 0:
		return err
	}
	if f.req.ShareAcquireMode == 0 {
		taken = f.align(q, g.ID, taking, taken)
	}
	offsets := make([]record.Offset, len(taken))
	for i := range taken {
		offsets[i] = taken[i].Lease.Offset
	}
	batches, n, err := q.QueueBatches(offsets, room)
	if n < len(taken) {
		// No room for them, or they cannot be read.
		var rest []queue.Lease
		for _, t := range taken[n:] {
			rest = append(rest, t.Lease)
		}
		f.release(ctx, p, rest)
		taken = taken[:n]
	}
	if n > 0 && g.Settings.AutoAck {
		if err := f.trust(ctx, q, g.ID, taken); err != nil {
			return err
		}
	}
	if n == 0 {
		return err
	}
	f.session.give(p, taken, g.Settings.Lease, g.Settings.MaxInFlight)
	out := f.part(p)
	out.Records, out.AcquiredRecords = batches, f.ranges(taken)
	f.records += len(taken)
	f.bytes += len(batches)
	return nil
}

// trust acknowledges what is handed on of a group that acknowledges by itself: only
// that, and before the client has it. What is not acknowledged comes again.
func (f *shareFetching) trust(ctx context.Context, q PartitionQueue, id queue.GroupID, taken []queue.Taken) error {
	list := make([]queue.Settlement, len(taken))
	for i := range taken {
		list[i] = queue.Settlement{Lease: taken[i].Lease, Verdict: queue.Acknowledge}
	}
	return cmp.Or(q.QueueSettle(ctx, id, list)...)
}

// align takes the rest of the last batch as well, if the client does not insist on its
// limit: it is sent anyway.
func (f *shareFetching) align(q PartitionQueue, id queue.GroupID, t queue.Taking, taken []queue.Taken) []queue.Taken {
	last := taken[len(taken)-1]
	end, err := q.QueueBatchEnd(last.Lease.Offset)
	if err != nil || last.Alone || len(taken) < t.Max || end <= last.Lease.Offset+1 {
		return taken
	}
	t.Max = int(end - last.Lease.Offset - 1)
	more, err := q.QueueAcquire(id, t)
	if err != nil || len(more) == 0 {
		return taken
	}
	taken = append(taken, more...)
	slices.SortFunc(taken, func(a, b queue.Taken) int { return int(a.Lease.Offset - b.Lease.Offset) })
	return taken
}

// ranges are runs of records that were delivered as often, of at most the size that the
// client finds handy.
func (f *shareFetching) ranges(taken []queue.Taken) (out []kmsg.ShareFetchResponseTopicPartitionAcquiredRecord) {
	most := int64(f.req.BatchSize)
	if most <= 0 || f.req.ShareAcquireMode != 0 {
		most = int64(len(taken))
	}
	for i := range taken {
		l := &taken[i].Lease
		count := int16(min(l.Attempt, 1<<15-1))
		if n := len(out); n > 0 {
			r := &out[n-1]
			if r.LastOffset+1 == int64(l.Offset) && r.DeliveryCount == count && r.LastOffset-r.FirstOffset+1 < most {
				r.LastOffset++
				continue
			}
		}
		r := kmsg.NewShareFetchResponseTopicPartitionAcquiredRecord()
		r.FirstOffset, r.LastOffset, r.DeliveryCount = int64(l.Offset), int64(l.Offset), count
		out = append(out, r)
	}
	return out
}

// finish makes the answer of what there is.
func (f *shareFetching) finish() kmsg.Response {
	f.resp.AcquisitionLockTimeoutMillis = f.lockMillis()
	leaders := map[int32]bool{}
	at := map[record.TopicID]int{}
	for _, p := range f.order {
		n, ok := at[p.topic]
		if !ok {
			n = len(f.resp.Topics)
			at[p.topic] = n
			t := kmsg.NewShareFetchResponseTopic()
			t.TopicID = p.topic
			f.resp.Topics = append(f.resp.Topics, t)
		}
		out := f.out[p]
		code := out.ErrorCode
		if code == 0 {
			code = out.AcknowledgeErrorCode
		}
		out.CurrentLeader.LeaderID, out.CurrentLeader.LeaderEpoch = f.leader(p, code, leaders)
		f.resp.Topics[n].Partitions = append(f.resp.Topics[n].Partitions, *out)
	}
	for _, e := range f.door.endpoints(leaders) {
		n := kmsg.NewShareFetchResponseNodeEndpoint()
		n.NodeID, n.Host, n.Port, n.Rack = e.node, e.host, e.port, e.rack
		f.resp.NodeEndpoints = append(f.resp.NodeEndpoints, n)
	}
	f.door.cfg.Calls.Fetched(f.bytes)
	bytes, d := f.bytes, f.door
	return &shareFetchResponse{f.resp, func() { d.budgets.returnFetchShare(bytes) }}
}

// shareFetchResponse gives its memory back when it is written.
type shareFetchResponse struct {
	*kmsg.ShareFetchResponse
	given func()
}

func (r *shareFetchResponse) chunks() (net.Buffers, int) {
	b := r.AppendTo(nil)
	return net.Buffers{b}, len(b)
}

func (r *shareFetchResponse) release() { r.given() }
