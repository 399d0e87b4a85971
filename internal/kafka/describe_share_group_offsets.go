package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/record"
)

// How far a share group is its queue groups know, in the partitions: the start offset
// is the floor below which everything is done, the lag what is not done.

// describeShareGroupOffsets tells how far share groups are; without topics, with all
// that they have read.
func (d *Door) describeShareGroupOffsets(ctx context.Context, _ *client, r kmsg.Request) kmsg.Response {
	req := r.(*kmsg.DescribeShareGroupOffsetsRequest)
	resp := req.ResponseKind().(*kmsg.DescribeShareGroupOffsetsResponse)
	for i := range req.Groups {
		rg := kmsg.NewDescribeShareGroupOffsetsResponseGroup()
		rg.GroupID = req.Groups[i].GroupID
		if err := d.shareOffsets(ctx, &req.Groups[i], &rg); err != nil {
			rg.ErrorCode, rg.ErrorMessage = shareCode(err)
		}
		resp.Groups = append(resp.Groups, rg)
	}
	return resp
}

func (d *Door) shareOffsets(ctx context.Context, asked *kmsg.DescribeShareGroupOffsetsRequestGroup, out *kmsg.DescribeShareGroupOffsetsResponseGroup) error {
	im := d.image()
	all := im.ShareQueues(asked.GroupID)
	if len(all) == 0 {
		if m := d.groups.Admin.DescribeShare(asked.GroupID); m.Err != nil {
			return m.Err
		}
	}
	if asked.Topics == nil {
		for _, g := range all {
			t := im.Topics[g.Topic]
			if t == nil {
				continue
			}
			numbers := make([]int32, len(t.Partitions))
			for i := range numbers {
				numbers[i] = int32(i)
			}
			out.Topics = append(out.Topics, d.shareTopicOffsets(ctx, im, asked.GroupID, t.Name, numbers))
		}
		return nil
	}
	for _, t := range asked.Topics {
		out.Topics = append(out.Topics, d.shareTopicOffsets(ctx, im, asked.GroupID, t.Topic, t.Partitions))
	}
	return nil
}

// shareTopicOffsets tells of partitions of one topic; −1 where the group has not begun.
func (d *Door) shareTopicOffsets(ctx context.Context, im *meta.Image, share, topic string, partitions []int32) kmsg.DescribeShareGroupOffsetsResponseGroupTopic {
	out := kmsg.NewDescribeShareGroupOffsetsResponseGroupTopic()
	out.Topic = topic
	t := im.Topic(topic)
	var progress []ShareProgress
	var err error
	if t != nil {
		out.TopicID = t.ID
		if g := im.ShareQueue(share, t.ID); g != nil {
			progress, err = d.shares.Admin.Progress(ctx, g)
		}
	}
	for _, p := range partitions {
		rp := kmsg.NewDescribeShareGroupOffsetsResponseGroupTopicPartition()
		rp.Partition, rp.StartOffset, rp.LeaderEpoch, rp.Lag = p, -1, 0, -1
		switch code := checkPartition(t, kerr.UnknownTopicOrPartition.Code, p); {
		case code != 0:
			rp.ErrorCode, rp.ErrorMessage = shareCode(wireError{code})
		case err != nil:
			rp.ErrorCode, rp.ErrorMessage = shareCode(err)
		case progress == nil: // it has not begun with the topic
		case !progress[p].Known:
			rp.ErrorCode, rp.ErrorMessage = kerr.LeaderNotAvailable.Code, &kerr.LeaderNotAvailable.Description
		default:
			_, epoch := d.partitions.Leader(t.ID, record.Partition(p))
			rp.StartOffset, rp.LeaderEpoch, rp.Lag = int64(progress[p].Floor), max(int32(epoch), 0), progress[p].Backlog
		}
		out.Partitions = append(out.Partitions, rp)
	}
	return out
}
