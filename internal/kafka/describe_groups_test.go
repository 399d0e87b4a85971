package kafka

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestDescribeGroupsShowsMembers(t *testing.T) {
	eachGroupVersion(t, 15, func(t *testing.T, v int16) {
		d := newGroupDoor(t)
		id, _ := d.member("g")
		d.commit("idle", "t", 0, 1, "")
		req := kmsg.NewPtrDescribeGroupsRequest()
		req.Groups, req.IncludeAuthorizedOperations = []string{"g", "idle", "nowhere"}, true
		r := askGroups[*kmsg.DescribeGroupsResponse](d, v, req)
		g, idle, nowhere := r.Groups[0], r.Groups[1], r.Groups[2]
		if g.State != "Stable" || g.ProtocolType != "consumer" || g.Protocol != "range" || len(g.Members) != 1 {
			t.Fatalf("group %+v", g)
		}
		m := g.Members[0]
		if m.MemberID != id || string(m.MemberAssignment) != "mine" || string(m.ProtocolMetadata) != string(consumerMetadata("t")) {
			t.Fatalf("member %+v", m)
		}
		if v >= 3 && g.AuthorizedOperations != groupOperations {
			t.Fatalf("operations %b", g.AuthorizedOperations)
		}
		if idle.State != "Empty" || idle.ErrorCode != 0 {
			t.Fatalf("idle %+v", idle)
		}
		if nowhere.State != "Dead" {
			t.Fatalf("nowhere %+v", nowhere)
		}
		if v < 6 {
			wantGroupCode(t, nowhere.ErrorCode, nil)
		} else {
			wantGroupCode(t, nowhere.ErrorCode, kerr.GroupIDNotFound)
		}
		d.groups.Shard(0).LoseLeadership()
		wantGroupCode(t, askGroups[*kmsg.DescribeGroupsResponse](d, v, req).Groups[0].ErrorCode, kerr.NotCoordinator)
	})
}
