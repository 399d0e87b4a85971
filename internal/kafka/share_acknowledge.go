package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tube-mq/tube/internal/record"
)

// shareAcknowledge settles records that ShareFetch has given to the member. With epoch
// −1 it ends the member's session on this node, which hands back the rest.
func (d *Door) shareAcknowledge(ctx context.Context, cl *client, r kmsg.Request) kmsg.Response {
	req := r.(*kmsg.ShareAcknowledgeRequest)
	resp := req.ResponseKind().(*kmsg.ShareAcknowledgeResponse)
	c, err := d.newShareCall(req.GroupID, req.MemberID, req.ShareSessionEpoch)
	if err == nil && c.epoch == epochBegin {
		err = refuse(kerr.InvalidShareSessionEpoch, "a share session begins with a ShareFetch")
	}
	if err == nil {
		c.renews = req.Version >= 2 && req.IsRenewAck
		_, err = c.open(cl)
	}
	if err != nil {
		resp.ErrorCode, resp.ErrorMessage = shareCode(err)
		d.cfg.Calls.Error("ShareAcknowledge", errorName(resp.ErrorCode))
		return resp
	}
	defer c.session.answered()
	var acks []*shareAcks
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			a := &shareAcks{part: sharePart{t.TopicID, record.Partition(p.Partition)}}
			for _, b := range p.AcknowledgementBatches {
				a.batches = append(a.batches, shareAckBatch{b.FirstOffset, b.LastOffset, b.AcknowledgeTypes})
			}
			acks = append(acks, a)
		}
	}
	c.acknowledge(ctx, acks)
	if c.epoch == epochNone {
		c.letGo(ctx, c.session)
	}
	resp.AcquisitionLockTimeoutMillis = c.lockMillis()
	leaders := map[int32]bool{}
	at := map[record.TopicID]int{}
	for _, a := range acks {
		n, ok := at[a.part.topic]
		if !ok {
			n = len(resp.Topics)
			at[a.part.topic] = n
			t := kmsg.NewShareAcknowledgeResponseTopic()
			t.TopicID = a.part.topic
			resp.Topics = append(resp.Topics, t)
		}
		p := kmsg.NewShareAcknowledgeResponseTopicPartition()
		p.Partition = int32(a.part.number)
		p.ErrorCode, p.ErrorMessage = shareCode(a.err)
		p.CurrentLeader.LeaderID, p.CurrentLeader.LeaderEpoch = c.leader(a.part, p.ErrorCode, leaders)
		resp.Topics[n].Partitions = append(resp.Topics[n].Partitions, p)
	}
	for _, e := range d.endpoints(leaders) {
		n := kmsg.NewShareAcknowledgeResponseNodeEndpoint()
		n.NodeID, n.Host, n.Port, n.Rack = e.node, e.host, e.port, e.rack
		resp.NodeEndpoints = append(resp.NodeEndpoints, n)
	}
	return resp
}

// leader is where to look for a partition that this node does not lead; −1, −1 else. It
// is noted in leaders.
func (c *shareCall) leader(p sharePart, code int16, leaders map[int32]bool) (node, epoch int32) {
	if code != kerr.NotLeaderForPartition.Code && code != kerr.FencedLeaderEpoch.Code {
		return -1, -1
	}
	n, e := c.door.partitions.Leader(p.topic, p.number)
	if n < 0 {
		return -1, -1
	}
	leaders[int32(n)] = true
	return int32(n), int32(e)
}

// lockMillis is for how long the member has what it is given: the shortest of the
// queue groups that it reads through.
func (c *shareCall) lockMillis() int32 {
	im := c.door.image()
	lock := im.GroupConfig(c.group).ShareLock
	for i, g := range im.ShareQueues(c.group) {
		if i == 0 || g.Settings.Lease < lock {
			lock = g.Settings.Lease
		}
	}
	return int32(lock.Milliseconds())
}
