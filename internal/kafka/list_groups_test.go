package kafka

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestListGroupsFilters(t *testing.T) {
	eachGroupVersion(t, 16, func(t *testing.T, v int16) {
		d := newGroupDoor(t)
		d.member("live")
		d.commit("idle", "t", 0, 1, "")
		list := func(states, types []string) []kmsg.ListGroupsResponseGroup {
			req := kmsg.NewPtrListGroupsRequest()
			req.StatesFilter, req.TypesFilter = states, types
			r := askGroups[*kmsg.ListGroupsResponse](d, v, req)
			wantGroupCode(t, r.ErrorCode, nil)
			return r.Groups
		}
		all := list(nil, nil)
		if len(all) != 2 || all[0].Group != "idle" || all[1].Group != "live" || all[1].ProtocolType != "consumer" {
			t.Fatalf("groups %+v", all)
		}
		if v >= 4 {
			if stable := list([]string{"stable", "NoSuchState"}, nil); len(stable) != 1 || stable[0].GroupState != "Stable" {
				t.Fatalf("stable %+v", stable)
			}
		}
		if v >= 5 {
			if all[0].GroupType != "classic" || len(list(nil, []string{"Classic"})) != 2 || len(list(nil, []string{"share"})) != 0 {
				t.Fatalf("types of %+v", all)
			}
		}
	})
}
