package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tube-mq/tube/internal/group"
)

// heartbeat keeps a member in its group, and tells it when to join again.
func (d *Door) heartbeat(ctx context.Context, _ *client, r kmsg.Request) kmsg.Response {
	req := r.(*kmsg.HeartbeatRequest)
	resp := req.ResponseKind().(*kmsg.HeartbeatResponse)
	resp.ErrorCode = groupCode(d.groups.Members.Heartbeat(ctx, &group.HeartbeatRequest{
		Group: req.Group, Generation: req.Generation, MemberID: req.MemberID, Instance: orEmpty(req.InstanceID),
	}))
	return resp
}
