package kafka

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tube-mq/tube/internal/group"
	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/queue"
	"github.com/tube-mq/tube/internal/record"
)

// alterShareGroupOffsets has a group without members go on elsewhere: what lies behind
// the offset is delivered, again or not, what lies before is done. A topic that the
// group has not begun with begins.
func (d *Door) alterShareGroupOffsets(ctx context.Context, _ *client, r kmsg.Request) kmsg.Response {
	req := r.(*kmsg.AlterShareGroupOffsetsRequest)
	resp := req.ResponseKind().(*kmsg.AlterShareGroupOffsetsResponse)
	ctx, cancel := adminContext(ctx, 0)
	defer cancel()
	if err := d.emptyShare(req.GroupID); err != nil {
		resp.ErrorCode, resp.ErrorMessage = shareCode(err)
		return resp
	}
	for _, rt := range req.Topics {
		out := kmsg.NewAlterShareGroupOffsetsResponseTopic()
		out.Topic = rt.Topic
		t := d.image().Topic(rt.Topic)
		var g *meta.QueueGroup
		var err error
		if t != nil {
			out.TopicID = t.ID
			g, err = d.shares.Queues.Queue(ctx, req.GroupID, t.ID)
		}
		for _, rp := range rt.Partitions {
			p := kmsg.NewAlterShareGroupOffsetsResponseTopicPartition()
			p.Partition = rp.Partition
			e := err
			if code := checkPartition(t, kerr.UnknownTopicOrPartition.Code, rp.Partition); code != 0 {
				e = wireError{code}
			}
			if e == nil && rp.StartOffset < 0 {
				e = refuse(kerr.InvalidRequest, "start offset %d", rp.StartOffset)
			}
			if e == nil {
				e = d.shares.Admin.Seek(ctx, g, queue.Place{Partition: record.Partition(rp.Partition), Offset: record.Offset(rp.StartOffset)})
			}
			p.ErrorCode, p.ErrorMessage = shareCode(e)
			out.Partitions = append(out.Partitions, p)
		}
		resp.Topics = append(resp.Topics, out)
	}
	return resp
}

// emptyShare refuses what must not be done to a group that has members. The request
// has to come to the group's coordinator, who knows them.
func (d *Door) emptyShare(name string) error {
	switch m := d.groups.Admin.DescribeShare(name); {
	case errors.Is(m.Err, group.ErrGroupNotFound):
		return nil
	case m.Err != nil:
		return m.Err
	}
	return group.ErrNonEmpty
}
