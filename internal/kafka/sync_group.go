package kafka

import (
	"bytes"
	"context"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tube-mq/tube/internal/group"
)

// syncGroup waits until the leader has brought the assignment and it is committed.
func (d *Door) syncGroup(ctx context.Context, _ *client, r kmsg.Request) kmsg.Response {
	req := r.(*kmsg.SyncGroupRequest)
	resp := req.ResponseKind().(*kmsg.SyncGroupResponse)
	s := &group.SyncRequest{
		Group: req.Group, Generation: req.Generation, MemberID: req.MemberID, Instance: orEmpty(req.InstanceID),
		ProtocolType: orEmpty(req.ProtocolType), Protocol: orEmpty(req.Protocol),
		Assignments: make(map[string][]byte, len(req.GroupAssignment)),
	}
	for _, a := range req.GroupAssignment {
		s.Assignments[strings.Clone(a.MemberID)] = bytes.Clone(a.MemberAssignment)
	}
	a := d.groups.Members.Sync(ctx, s)
	resp.ErrorCode = groupCode(a.Err)
	if a.Err == nil {
		resp.ProtocolType, resp.Protocol, resp.MemberAssignment = &a.ProtocolType, &a.Protocol, a.Assignment
	}
	return resp
}
