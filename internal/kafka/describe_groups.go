package kafka

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tube-mq/tube/internal/group"
)

// Operations on a group, as bits of the protocol's authorized_operations.
const groupOperations = 1<<3 /* read */ | 1<<6 /* delete */ | 1<<8 /* describe */

// describeGroups shows groups and their members. Before v6 a group that does not
// exist is no error but a Dead group.
func (d *Door) describeGroups(ctx context.Context, _ *client, r kmsg.Request) kmsg.Response {
	req := r.(*kmsg.DescribeGroupsRequest)
	resp := req.ResponseKind().(*kmsg.DescribeGroupsResponse)
	for _, name := range req.Groups {
		g := d.groups.Admin.Describe(ctx, name)
		rg := kmsg.NewDescribeGroupsResponseGroup()
		rg.Group, rg.State, rg.ProtocolType, rg.Protocol = name, string(g.Phase), g.ProtocolType, g.Protocol
		if g.Err != nil && (req.Version >= 6 || !errors.Is(g.Err, group.ErrGroupNotFound)) {
			rg.ErrorCode, rg.ErrorMessage = groupCode(g.Err), groupMessage(g.Err)
		}
		if g.Err != nil && !errors.Is(g.Err, group.ErrGroupNotFound) {
			rg.State = "" // not known here
		}
		if req.IncludeAuthorizedOperations && g.Err == nil {
			rg.AuthorizedOperations = groupOperations
		}
		for _, m := range g.Members {
			rm := kmsg.NewDescribeGroupsResponseGroupMember()
			rm.MemberID, rm.InstanceID, rm.ClientID, rm.ClientHost = m.ID, orNull(m.Instance), m.ClientID, m.ClientHost
			rm.ProtocolMetadata, rm.MemberAssignment = m.Metadata, m.Assignment
			rg.Members = append(rg.Members, rm)
		}
		resp.Groups = append(resp.Groups, rg)
	}
	return resp
}
