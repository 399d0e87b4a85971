package kafka

import (
	"context"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Types of groups: whose members assign among themselves, and whose coordinator does.
const (
	classicGroup  = "classic"
	consumerGroup = "consumer"
)

// listGroups names the groups that this node coordinates; v4 filters by state,
// v5 by type. What a filter names need not exist.
func (d *Door) listGroups(_ context.Context, _ *client, r kmsg.Request) kmsg.Response {
	req := r.(*kmsg.ListGroupsRequest)
	resp := req.ResponseKind().(*kmsg.ListGroupsResponse)
	for _, g := range d.groups.Admin.List() {
		kind := classicGroup
		if g.ByCoordinator {
			kind = consumerGroup
		}
		if !passesFilter(req.TypesFilter, kind) || !passesFilter(req.StatesFilter, string(g.Phase)) {
			continue
		}
		rg := kmsg.NewListGroupsResponseGroup()
		rg.Group, rg.ProtocolType, rg.GroupState, rg.GroupType = g.Group, g.ProtocolType, string(g.Phase), kind
		resp.Groups = append(resp.Groups, rg)
	}
	return resp
}

// passesFilter reports whether a filter lets a value through; an empty one lets all.
func passesFilter(filter []string, value string) bool {
	return len(filter) == 0 || slices.ContainsFunc(filter, func(f string) bool { return strings.EqualFold(f, value) })
}
