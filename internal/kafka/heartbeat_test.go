package kafka

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestHeartbeatAnswersMembersOnly(t *testing.T) {
	eachGroupVersion(t, 12, func(t *testing.T, v int16) {
		d := newGroupDoor(t)
		req := kmsg.NewPtrHeartbeatRequest()
		req.Group = "g"
		req.MemberID, req.Generation = d.member("g")
		wantGroupCode(t, askGroups[*kmsg.HeartbeatResponse](d, v, req).ErrorCode, nil)
		req.Generation++
		wantGroupCode(t, askGroups[*kmsg.HeartbeatResponse](d, v, req).ErrorCode, kerr.IllegalGeneration)
		req.MemberID = "nobody"
		wantGroupCode(t, askGroups[*kmsg.HeartbeatResponse](d, v, req).ErrorCode, kerr.UnknownMemberID)
	})
}
