package kafka

import (
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestShareGroupDescribe(t *testing.T) {
	d := newShareDoor(t)
	describe := func() []kmsg.ShareGroupDescribeResponseGroup {
		req := kmsg.NewPtrShareGroupDescribeRequest()
		req.GroupIDs = []string{"g", "nobody"}
		return askDoor[*kmsg.ShareGroupDescribeResponse](t, d.Door, newClient(d.Door), 1, req).Groups
	}
	got := describe()
	wantGroupCode(t, got[0].ErrorCode, nil) // it has read something
	wantGroupCode(t, got[1].ErrorCode, kerr.GroupIDNotFound)
	if got[0].GroupState != "Empty" || len(got[0].Members) != 0 {
		t.Fatalf("%+v", got[0])
	}
	d.beat("a", 0, nil, "t")
	d.beat("b", 0, nil, "t")
	g := describe()[0]
	if g.GroupState != "Stable" || g.GroupEpoch != 2 || g.AssignmentEpoch != 2 || len(g.Members) != 2 {
		t.Fatalf("%+v", g)
	}
	var all []int32
	for _, m := range g.Members {
		if !slices.Equal(m.SubscribedTopicNames, []string{"t"}) || m.ClientHost == "" {
			t.Errorf("%+v", m)
		}
		for _, tp := range m.Assignment.TopicPartitions {
			all = append(all, tp.Partitions...)
		}
	}
	if slices.Sort(all); !slices.Equal(all, []int32{0, 1}) {
		t.Errorf("partitions %v", all)
	}
}

// Share groups are listed with their kind, also those that have nobody.
func TestShareGroupsAreListed(t *testing.T) {
	d := newShareDoor(t)
	list := func(types ...string) []kmsg.ListGroupsResponseGroup {
		req := kmsg.NewPtrListGroupsRequest()
		req.TypesFilter = types
		return askDoor[*kmsg.ListGroupsResponse](t, d.Door, newClient(d.Door), 5, req).Groups
	}
	if got := list("share"); len(got) != 1 || got[0].Group != "g" || got[0].GroupType != "share" || got[0].GroupState != "Empty" {
		t.Fatalf("%+v", got)
	}
	d.beat("a", 0, nil, "t")
	if got := list(); len(got) != 1 || got[0].GroupType != "share" || got[0].GroupState != "Stable" {
		t.Fatalf("%+v", got)
	}
	if got := list("classic"); len(got) != 0 {
		t.Fatalf("%+v", got)
	}
}

// A share group is deleted once it has no members, with what it has read; a queue group
// that was made by hand is not its to delete.
func TestShareGroupIsDeleted(t *testing.T) {
	d := newShareDoor(t)
	del := func() int16 {
		req := kmsg.NewPtrDeleteGroupsRequest()
		req.Groups = []string{"g"}
		return askDoor[*kmsg.DeleteGroupsResponse](t, d.Door, newClient(d.Door), 2, req).Groups[0].ErrorCode
	}
	d.beat("a", 0, nil, "t")
	wantGroupCode(t, del(), kerr.NonEmptyGroup)
	d.beat("a", -1, nil)
	wantGroupCode(t, del(), nil)
	if d.f.image().ShareQueue("g", d.topic.ID) != nil {
		t.Error("the queue group is there still")
	}
	wantGroupCode(t, del(), kerr.GroupIDNotFound)
}
