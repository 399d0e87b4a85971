package kafka

import (
	"context"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tube-mq/tube/internal/group"
)

// Types of groups: whose members assign among themselves, whose coordinator does, and
// who share partitions.
const (
	classicGroup  = "classic"
	consumerGroup = "consumer"
	shareGroup    = "share"
)

// listGroups names the groups that this node coordinates; v4 filters by state,
// v5 by type. What a filter names need not exist.
func (d *Door) listGroups(_ context.Context, _ *client, r kmsg.Request) kmsg.Response {
	req := r.(*kmsg.ListGroupsRequest)
	resp := req.ResponseKind().(*kmsg.ListGroupsResponse)
	for _, g := range d.listed() {
		kind := classicGroup
		switch {
		case g.Share:
			kind = shareGroup
		case g.ByCoordinator:
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

// listed are the groups that this node coordinates, by name: also share groups that
// have nobody just now, which metadata knows.
func (d *Door) listed() []group.Listing {
	all := d.groups.Admin.List()
	has := map[string]bool{}
	for _, g := range all {
		has[g.Group] = has[g.Group] || g.Share
	}
	for _, name := range d.image().ShareGroups() {
		node, err := d.groups.Members.Coordinator(name)
		if !has[name] && err == nil && node == d.cfg.Node {
			all = append(all, group.Listing{Group: name, ProtocolType: group.ShareProtocol, Phase: group.Empty, Share: true})
		}
	}
	slices.SortStableFunc(all, func(a, b group.Listing) int { return strings.Compare(a.Group, b.Group) })
	return all
}

// passesFilter reports whether a filter lets a value through; an empty one lets all.
func passesFilter(filter []string, value string) bool {
	return len(filter) == 0 || slices.ContainsFunc(filter, func(f string) bool { return strings.EqualFold(f, value) })
}
