package kafka

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestDeleteGroupsAnswersEach(t *testing.T) {
	eachGroupVersion(t, 42, func(t *testing.T, v int16) {
		d := newGroupDoor(t)
		d.member("live")
		d.commit("idle", "t", 0, 1, "")
		req := kmsg.NewPtrDeleteGroupsRequest()
		req.Groups = []string{"live", "idle", "nowhere"}
		r := askGroups[*kmsg.DeleteGroupsResponse](d, v, req)
		for i, want := range []*kerr.Error{kerr.NonEmptyGroup, nil, kerr.GroupIDNotFound} {
			wantGroupCode(t, r.Groups[i].ErrorCode, want)
			if v >= 3 && (r.Groups[i].ErrorMessage == nil) != (want == nil) {
				t.Fatalf("message of %+v", r.Groups[i])
			}
		}
		if o, _ := d.positionOf("idle", "t", 0); o.Offset != -1 {
			t.Fatalf("position of a deleted group: %+v", o)
		}
	})
}
