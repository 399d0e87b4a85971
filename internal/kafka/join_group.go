package kafka

import (
	"bytes"
	"context"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tube-mq/tube/internal/group"
)

// joinGroup waits until the group's next generation is committed.
func (d *Door) joinGroup(ctx context.Context, c *client, r kmsg.Request) kmsg.Response {
	req := r.(*kmsg.JoinGroupRequest)
	resp := req.ResponseKind().(*kmsg.JoinGroupResponse)
	j := d.groups.Members.Join(ctx, joinRequest(c, req))
	resp.ErrorCode = groupCode(j.Err)
	resp.Generation, resp.LeaderID, resp.MemberID = j.Generation, j.Leader, j.MemberID
	if j.Err != nil {
		return resp
	}
	resp.ProtocolType, resp.Protocol, resp.SkipAssignment = &j.ProtocolType, &j.Protocol, j.SkipAssignment
	for _, m := range j.Members {
		rm := kmsg.NewJoinGroupResponseMember()
		rm.MemberID, rm.InstanceID, rm.ProtocolMetadata = m.ID, orNull(m.Instance), m.Metadata
		resp.Members = append(resp.Members, rm)
	}
	return resp
}

// joinRequest copies everything: the group keeps it, the request's bytes are
// used again.
func joinRequest(c *client, req *kmsg.JoinGroupRequest) *group.JoinRequest {
	id, host := identity(c)
	j := &group.JoinRequest{
		Group: strings.Clone(req.Group), MemberID: strings.Clone(req.MemberID), Instance: strings.Clone(orEmpty(req.InstanceID)),
		ClientID: strings.Clone(id), ClientHost: host,
		NeedsKnownID: req.Version >= 4, CanSkipAssignment: req.Version >= 9,
		Session:      time.Duration(req.SessionTimeoutMillis) * time.Millisecond,
		Rebalance:    time.Duration(req.RebalanceTimeoutMillis) * time.Millisecond,
		ProtocolType: strings.Clone(req.ProtocolType),
	}
	for _, p := range req.Protocols {
		j.Protocols = append(j.Protocols, group.Protocol{Name: strings.Clone(p.Name), Metadata: bytes.Clone(p.Metadata)})
	}
	return j
}

// identity is how the client names itself and where it comes from.
func identity(c *client) (id, host string) { return c.id, c.host }
