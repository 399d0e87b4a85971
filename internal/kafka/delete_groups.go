package kafka

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tube-mq/tube/internal/group"
)

// deleteGroups removes groups without members, and their positions: of share groups,
// the queue groups that were made for them.
func (d *Door) deleteGroups(ctx context.Context, _ *client, r kmsg.Request) kmsg.Response {
	req := r.(*kmsg.DeleteGroupsRequest)
	resp := req.ResponseKind().(*kmsg.DeleteGroupsResponse)
	for _, name := range req.Groups {
		err := d.deleteGroup(ctx, name)
		rg := kmsg.NewDeleteGroupsResponseGroup()
		rg.Group = name
		if rg.ErrorCode, rg.ErrorMessage = groupCode(err), groupMessage(err); err != nil && d.isShareGroup(name) {
			rg.ErrorCode, rg.ErrorMessage = shareCode(err)
		}
		resp.Groups = append(resp.Groups, rg)
	}
	return resp
}

func (d *Door) deleteGroup(ctx context.Context, name string) error {
	if err := d.emptyShare(name); err != nil {
		return err
	}
	err := d.groups.Admin.Delete(ctx, name)
	if !d.isShareGroup(name) || err != nil && !errors.Is(err, group.ErrGroupNotFound) {
		return err
	}
	for _, g := range d.image().ShareQueues(name) {
		if g.Share == "" {
			continue // made by hand; it is not the share group's to delete
		}
		if err := d.shares.Admin.Delete(ctx, g); err != nil {
			return err
		}
	}
	return nil
}
