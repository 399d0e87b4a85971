package kafka

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestLeaveGroupAnswersEachMember(t *testing.T) {
	eachGroupVersion(t, 13, func(t *testing.T, v int16) {
		d := newGroupDoor(t)
		id, _ := d.member("g")
		req := kmsg.NewPtrLeaveGroupRequest()
		req.Group, req.MemberID = "g", id
		req.Members = []kmsg.LeaveGroupRequestMember{{MemberID: id}, {MemberID: "nobody"}, {InstanceID: new("i")}}
		r := askGroups[*kmsg.LeaveGroupResponse](d, v, req)
		wantGroupCode(t, r.ErrorCode, nil)
		if v >= 3 {
			wantGroupCode(t, r.Members[0].ErrorCode, nil)
			wantGroupCode(t, r.Members[1].ErrorCode, kerr.UnknownMemberID)
			wantGroupCode(t, r.Members[2].ErrorCode, kerr.UnknownMemberID)
			if r.Members[2].InstanceID == nil || *r.Members[2].InstanceID != "i" {
				t.Fatalf("members %+v", r.Members)
			}
			return
		}
		wantGroupCode(t, askGroups[*kmsg.LeaveGroupResponse](d, v, req).ErrorCode, kerr.UnknownMemberID)
	})
}
