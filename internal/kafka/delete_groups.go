package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// deleteGroups removes groups without members, and their positions.
func (d *Door) deleteGroups(ctx context.Context, _ *client, r kmsg.Request) kmsg.Response {
	req := r.(*kmsg.DeleteGroupsRequest)
	resp := req.ResponseKind().(*kmsg.DeleteGroupsResponse)
	for _, name := range req.Groups {
		err := d.groups.Admin.Delete(ctx, name)
		rg := kmsg.NewDeleteGroupsResponseGroup()
		rg.Group, rg.ErrorCode, rg.ErrorMessage = name, groupCode(err), groupMessage(err)
		resp.Groups = append(resp.Groups, rg)
	}
	return resp
}
