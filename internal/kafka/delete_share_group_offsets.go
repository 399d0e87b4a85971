package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tube-mq/tube/internal/group"
	"github.com/tube-mq/tube/internal/meta"
)

// deleteShareGroupOffsets has a group without members forget topics: it begins with them
// anew when it reads them again.
func (d *Door) deleteShareGroupOffsets(ctx context.Context, _ *client, r kmsg.Request) kmsg.Response {
	req := r.(*kmsg.DeleteShareGroupOffsetsRequest)
	resp := req.ResponseKind().(*kmsg.DeleteShareGroupOffsetsResponse)
	ctx, cancel := adminContext(ctx, 0)
	defer cancel()
	err := d.emptyShare(req.GroupID)
	if err == nil && len(d.image().ShareQueues(req.GroupID)) == 0 {
		err = group.ErrGroupNotFound
	}
	if err != nil {
		resp.ErrorCode, resp.ErrorMessage = shareCode(err)
		return resp
	}
	for _, rt := range req.Topics {
		out := kmsg.NewDeleteShareGroupOffsetsResponseTopic()
		out.Topic = rt.Topic
		err := error(wireError{kerr.UnknownTopicOrPartition.Code})
		if t := d.image().Topic(rt.Topic); t != nil {
			out.TopicID = t.ID
			if err = nil; d.image().ShareQueue(req.GroupID, t.ID) != nil {
				err = d.dropShareQueue(ctx, d.image().ShareQueue(req.GroupID, t.ID))
			}
		}
		out.ErrorCode, out.ErrorMessage = shareCode(err)
		resp.Topics = append(resp.Topics, out)
	}
	return resp
}

// dropShareQueue deletes a queue group that was made for a share group, and no other.
func (d *Door) dropShareQueue(ctx context.Context, g *meta.QueueGroup) error {
	if g.Share == "" {
		return refuse(kerr.InvalidRequest, "queue group %s was not made by share consumers; delete it with tube queue delete, or through the queue API", g.Name)
	}
	return d.shares.Admin.Delete(ctx, g)
}
