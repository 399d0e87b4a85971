package kafka

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/queue"
	"github.com/tube-mq/tube/internal/record"
)

// What a member says of a record that it has.
const (
	shareGap     = 0 // there is no such record
	shareAccept  = 1 // done
	shareRelease = 2 // to be delivered again; the delivery counts
	shareReject  = 3 // never again: to the dead letters
	shareRenew   = 4 // it needs more time (KIP-1222)
)

// shareAcks is what a request says of one partition's records.
type shareAcks struct {
	part    sharePart
	batches []shareAckBatch
	err     error // what became of it
}

// shareAckBatch says something of the records from first to last: one kind for all, or
// one for each.
type shareAckBatch struct {
	first, last int64
	kinds       []int8
}

// acknowledge carries out what a member says of records, and waits until that is
// committed. Of a partition everything is done or, if something of it is not possible,
// nothing; but for what comes to light only while it is done.
func (c *shareCall) acknowledge(ctx context.Context, acks []*shareAcks) {
	each := make(chan struct{}, len(acks))
	running := 0
	for _, a := range acks {
		list, err := c.settlements(a)
		if err != nil || len(list) == 0 {
			a.err = err
			continue
		}
		running++
		go func() {
			a.err = c.settle(ctx, a.part, list)
			each <- struct{}{}
		}()
	}
	for range running {
		<-each
	}
}

// settlements looks up the leases of what is acknowledged.
func (c *shareCall) settlements(a *shareAcks) ([]queue.Settlement, error) {
	var list []queue.Settlement
	seen := map[record.Offset]bool{}
	for _, b := range a.batches {
		if n := int64(len(b.kinds)); n != 1 && n != b.last-b.first+1 {
			return nil, refuse(kerr.InvalidRequest, "%d acknowledge types for offsets %d to %d; there can be one for all or one for each", n, b.first, b.last)
		}
		leases, ok := c.session.leases(a.part, record.Offset(b.first), record.Offset(b.last))
		if !ok {
			return nil, refuse(kerr.InvalidRecordState, "the member does not have all records from offset %d to %d (any more)", b.first, b.last)
		}
		for i, l := range leases {
			kind := b.kinds[0]
			if len(b.kinds) > 1 {
				kind = b.kinds[i]
			}
			s, err := c.settlement(l, kind)
			if err != nil {
				return nil, err
			}
			if seen[l.Offset] {
				return nil, refuse(kerr.InvalidRequest, "offset %d is acknowledged twice", l.Offset)
			}
			seen[l.Offset] = true
			list = append(list, s)
		}
	}
	return list, nil
}

// settlement is what a queue group is told. A release counts as a delivery, as share
// consumers expect: a record that is released again and again is dead in the end.
func (c *shareCall) settlement(l queue.Lease, kind int8) (queue.Settlement, error) {
	s := queue.Settlement{Lease: l, Delay: -1}
	switch kind {
	case shareGap, shareAccept:
		s.Verdict = queue.Acknowledge
	case shareRelease:
		s.Verdict, s.Reason = queue.Nack, "released by the consumer"
	case shareReject:
		s.Verdict, s.Reason = queue.Dead, "rejected by the consumer"
	case shareRenew:
		if !c.renews {
			return s, refuse(kerr.InvalidRequest, "a renewal in a request that does not announce any")
		}
		if !c.door.image().GroupConfig(c.group).ShareRenew {
			return s, refuse(kerr.InvalidRecordState, "share.renew.acknowledge.enable of the group is false")
		}
		s.Verdict, s.Delay = queue.Extend, 0
	default:
		return s, refuse(kerr.InvalidRequest, "unknown acknowledge type %d; there are 0 to 4", kind)
	}
	return s, nil
}

// queueOf finds the queue group of a topic, and the partition.
func (c *shareCall) queueOf(p sharePart) (*meta.QueueGroup, PartitionQueue, error) {
	t, unknown := groupTopic(c.door.image(), true, p.topic, "")
	if code := checkPartition(t, unknown, int32(p.number)); code != 0 {
		return nil, nil, wireError{code}
	}
	partition, err := c.door.partitions.Partition(p.topic, p.number)
	if err != nil {
		return nil, nil, err
	}
	return c.door.image().ShareQueue(c.group, p.topic), partition.Queue(), nil
}

// settle tells the partition's leader, which is this node.
func (c *shareCall) settle(ctx context.Context, p sharePart, list []queue.Settlement) error {
	g, q, err := c.queueOf(p)
	if err != nil {
		return err
	}
	if g == nil {
		return queue.ErrUnknownGroup // deleted
	}
	var first error
	for i, err := range q.QueueSettle(ctx, g.ID, list) {
		kept := time.Duration(0)
		if list[i].Verdict == queue.Extend {
			kept = g.Settings.Lease
		}
		switch code, _ := shareCode(err); code {
		case 0, kerr.InvalidRecordState.Code:
			c.session.settled(p, list[i].Lease, kept)
		}
		if first == nil {
			first = err
		}
	}
	return first
}

// letGo hands back, uncounted, what the member of a session that is over still has.
func (c *shareCall) letGo(ctx context.Context, s *shareSession) {
	for p, leases := range s.left() {
		c.release(ctx, p, leases)
	}
}

// release hands records back, uncounted. Should it fail, their leases run out.
func (c *shareCall) release(ctx context.Context, p sharePart, leases []queue.Lease) {
	g, q, err := c.queueOf(p)
	if err != nil || g == nil || len(leases) == 0 {
		return
	}
	list := make([]queue.Settlement, len(leases))
	for i, l := range leases {
		list[i] = queue.Settlement{Lease: l, Verdict: queue.Release}
	}
	q.QueueSettle(ctx, g.ID, list)
}
