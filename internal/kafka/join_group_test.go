package kafka

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestJoinGroupMakesALeaderOfTheFirst(t *testing.T) {
	eachGroupVersion(t, 11, func(t *testing.T, v int16) {
		d := newGroupDoor(t)
		r := askGroups[*kmsg.JoinGroupResponse](d, v, joinReq("g", "", nil))
		if v >= 4 {
			wantGroupCode(t, r.ErrorCode, kerr.MemberIDRequired)
			if r.MemberID == "" {
				t.Fatal("no id to come back with")
			}
			r = askGroups[*kmsg.JoinGroupResponse](d, v, joinReq("g", r.MemberID, nil))
		}
		wantGroupCode(t, r.ErrorCode, nil)
		if r.Generation != 1 || r.LeaderID != r.MemberID || *r.Protocol != "range" || len(r.Members) != 1 {
			t.Fatalf("joined %+v", r)
		}
		if string(r.Members[0].ProtocolMetadata) != string(consumerMetadata("t")) {
			t.Fatalf("metadata %q", r.Members[0].ProtocolMetadata)
		}
		if v >= 7 && *r.ProtocolType != "consumer" {
			t.Fatalf("protocol type %v", *r.ProtocolType)
		}
	})
}

func TestJoinGroupOfARestartedStaticLeader(t *testing.T) {
	for v := int16(5); v <= 9; v++ {
		d := newGroupDoor(t)
		first := askGroups[*kmsg.JoinGroupResponse](d, v, joinReq("g", "", new("i")))
		s := kmsg.NewPtrSyncGroupRequest()
		s.Group, s.Generation, s.MemberID = "g", first.Generation, first.MemberID
		wantGroupCode(t, askGroups[*kmsg.SyncGroupResponse](d, 3, s).ErrorCode, nil)
		again := askGroups[*kmsg.JoinGroupResponse](d, v, joinReq("g", "", new("i")))
		wantGroupCode(t, again.ErrorCode, nil)
		if again.Generation != first.Generation || again.MemberID == first.MemberID {
			t.Fatalf("v%d: %+v", v, again)
		}
		if skips := v >= 9; again.SkipAssignment != skips || (again.LeaderID == again.MemberID) != skips {
			t.Fatalf("v%d: leader %q of %q, skips %t", v, again.LeaderID, again.MemberID, again.SkipAssignment)
		}
	}
}

func TestJoinGroupRefusals(t *testing.T) {
	d := newGroupDoor(t)
	short := joinReq("g", "", nil)
	short.SessionTimeoutMillis = 5
	wantGroupCode(t, askGroups[*kmsg.JoinGroupResponse](d, 9, short).ErrorCode, kerr.InvalidSessionTimeout)
	wantGroupCode(t, askGroups[*kmsg.JoinGroupResponse](d, 9, joinReq("", "", nil)).ErrorCode, kerr.InvalidGroupID)
	wantGroupCode(t, askGroups[*kmsg.JoinGroupResponse](d, 9, joinReq("g", "nobody", nil)).ErrorCode, kerr.UnknownMemberID)
	none := joinReq("g", "", nil)
	none.Protocols = nil
	wantGroupCode(t, askGroups[*kmsg.JoinGroupResponse](d, 9, none).ErrorCode, kerr.InconsistentGroupProtocol)
	d.groups.Shard(0).LoseLeadership()
	wantGroupCode(t, askGroups[*kmsg.JoinGroupResponse](d, 9, joinReq("g", "", nil)).ErrorCode, kerr.NotCoordinator)
}

func TestJoinGroupKeepsNothingOfTheRequestsBytes(t *testing.T) {
	d := newGroupDoor(t)
	req := joinReq("g", "", nil)
	req.Version = 3
	frame := req.AppendTo(nil)
	got := kmsg.NewPtrJoinGroupRequest()
	got.Version = 3
	if err := got.UnsafeReadFrom(frame); err != nil { // strings and bytes alias the frame
		t.Fatal(err)
	}
	r := d.joinGroup(t.Context(), &client{}, got).(*kmsg.JoinGroupResponse)
	wantGroupCode(t, r.ErrorCode, nil)
	clear(frame)
	s := kmsg.NewPtrSyncGroupRequest()
	s.Group, s.Generation, s.MemberID = "g", r.Generation, r.MemberID
	wantGroupCode(t, askGroups[*kmsg.SyncGroupResponse](d, 3, s).ErrorCode, nil)
	g := d.Door.groups.Admin.Describe(t.Context(), "g")
	if g.ProtocolType != "consumer" || g.Protocol != "range" || string(g.Members[0].Metadata) != string(consumerMetadata("t")) {
		t.Fatalf("the group changed with the buffer: %+v", g)
	}
}
