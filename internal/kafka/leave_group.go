package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tube-mq/tube/internal/group"
)

// leaveGroup takes members out at once instead of after their session. From v3
// on it names several, each with its own error.
func (d *Door) leaveGroup(ctx context.Context, _ *client, r kmsg.Request) kmsg.Response {
	req := r.(*kmsg.LeaveGroupRequest)
	resp := req.ResponseKind().(*kmsg.LeaveGroupResponse)
	l := &group.LeaveRequest{Group: req.Group}
	if req.Version < 3 {
		l.Members = []group.LeaveMember{{ID: req.MemberID}}
	}
	for _, m := range req.Members {
		l.Members = append(l.Members, group.LeaveMember{ID: m.MemberID, Instance: orEmpty(m.InstanceID)})
	}
	left := d.groups.Members.Leave(ctx, l)
	if resp.ErrorCode = groupCode(left.Err); left.Err != nil {
		return resp
	}
	if req.Version < 3 {
		resp.ErrorCode = groupCode(left.Errs[0])
		return resp
	}
	for i, m := range req.Members {
		rm := kmsg.NewLeaveGroupResponseMember()
		rm.MemberID, rm.InstanceID, rm.ErrorCode = m.MemberID, m.InstanceID, groupCode(left.Errs[i])
		resp.Members = append(resp.Members, rm)
	}
	return resp
}
