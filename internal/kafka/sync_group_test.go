package kafka

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestSyncGroupHandsOutTheAssignment(t *testing.T) {
	eachGroupVersion(t, 14, func(t *testing.T, v int16) {
		d := newGroupDoor(t)
		j := askGroups[*kmsg.JoinGroupResponse](d, 3, joinReq("g", "", nil))
		s := kmsg.NewPtrSyncGroupRequest()
		s.Group, s.Generation, s.MemberID = "g", j.Generation, j.MemberID
		s.ProtocolType, s.Protocol = new("consumer"), new("range")
		s.GroupAssignment = []kmsg.SyncGroupRequestGroupAssignment{{MemberID: j.MemberID, MemberAssignment: []byte("all")}}
		r := askGroups[*kmsg.SyncGroupResponse](d, v, s)
		wantGroupCode(t, r.ErrorCode, nil)
		if string(r.MemberAssignment) != "all" || v >= 5 && *r.Protocol != "range" {
			t.Fatalf("assigned %+v", r)
		}
		s.Generation = 9
		wantGroupCode(t, askGroups[*kmsg.SyncGroupResponse](d, v, s).ErrorCode, kerr.IllegalGeneration)
		if v >= 5 {
			s.Generation, s.Protocol = j.Generation, new("sticky")
			wantGroupCode(t, askGroups[*kmsg.SyncGroupResponse](d, v, s).ErrorCode, kerr.InconsistentGroupProtocol)
		}
	})
}
