package kafka

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// What the APIs of groups answer about one whose partitions the coordinator assigns.

func TestOnlyTheMembersEpochCommits(t *testing.T) {
	eachGroupVersion(t, 8, func(t *testing.T, v int16) {
		d := newGroupDoor(t)
		d.consumer("g", "m", "t")
		commit := func(member string, epoch int32) int16 {
			req := commitReq("g", member, epoch, "t", 1, 7, new("note"))
			req.Topics[0].TopicID = d.im.ByName["t"].ID
			return askGroups[*kmsg.OffsetCommitResponse](d, v, req).Topics[0].Partitions[0].ErrorCode
		}
		if v < 9 { // no member of such a group speaks so old a version
			wantGroupCode(t, commit("m", 1), kerr.UnsupportedVersion)
			return
		}
		wantGroupCode(t, commit("m", 1), nil)
		wantGroupCode(t, commit("m", 0), kerr.StaleMemberEpoch)
		wantGroupCode(t, commit("m", 2), kerr.StaleMemberEpoch)
		wantGroupCode(t, commit("x", 1), kerr.UnknownMemberID)
		wantGroupCode(t, commit("", -1), kerr.UnknownMemberID)
	})
}

func TestOnlyTheMembersEpochFetches(t *testing.T) {
	for v := int16(9); v <= 10; v++ {
		d := newGroupDoor(t)
		d.consumer("g", "m", "t")
		fetch := func(member *string, epoch int32) int16 {
			req := fetchReq("g", "t", 1)
			req.Groups[0].MemberID, req.Groups[0].MemberEpoch = member, epoch
			req.Groups[0].Topics[0].TopicID = d.im.ByName["t"].ID
			return askGroups[*kmsg.OffsetFetchResponse](d, v, req).Groups[0].ErrorCode
		}
		wantGroupCode(t, fetch(new("m"), 1), nil)
		wantGroupCode(t, fetch(nil, -1), nil)
		wantGroupCode(t, fetch(new("m"), 2), kerr.StaleMemberEpoch)
		wantGroupCode(t, fetch(new("x"), 1), kerr.UnknownMemberID)
	}
}

func TestDescribeGroupsDoesNotKnowGroupsOfConsumers(t *testing.T) {
	eachGroupVersion(t, 15, func(t *testing.T, v int16) {
		d := newGroupDoor(t)
		d.consumer("g", "m", "t")
		req := kmsg.NewPtrDescribeGroupsRequest()
		req.Groups = []string{"g"}
		g := askGroups[*kmsg.DescribeGroupsResponse](d, v, req).Groups[0]
		if g.State != "Dead" || len(g.Members) != 0 {
			t.Fatalf("group %+v", g)
		}
		if v < 6 {
			wantGroupCode(t, g.ErrorCode, nil)
			return
		}
		wantGroupCode(t, g.ErrorCode, kerr.GroupIDNotFound)
		if g.ErrorMessage == nil || *g.ErrorMessage == "" {
			t.Error("no message")
		}
	})
}

func TestListGroupsTellsTheTypes(t *testing.T) {
	d := newGroupDoor(t)
	d.consumer("new", "m", "t")
	d.member("old")
	list := func(states, types []string) []kmsg.ListGroupsResponseGroup {
		req := kmsg.NewPtrListGroupsRequest()
		req.StatesFilter, req.TypesFilter = states, types
		return askGroups[*kmsg.ListGroupsResponse](d, 5, req).Groups
	}
	if all := list(nil, nil); len(all) != 2 || all[0].GroupType != "consumer" || all[0].ProtocolType != "consumer" || all[1].GroupType != "classic" {
		t.Fatalf("all: %+v", all)
	}
	if l := list(nil, []string{"Consumer"}); len(l) != 1 || l[0].Group != "new" || l[0].GroupState != "Stable" {
		t.Fatalf("consumers: %+v", l)
	}
	if l := list([]string{"reconciling"}, nil); len(l) != 0 {
		t.Fatalf("reconciling: %+v", l)
	}
	d.consumer("new", "m2", "t") // it waits for what m has
	if l := list([]string{"reconciling"}, nil); len(l) != 1 || l[0].Group != "new" {
		t.Fatalf("reconciling: %+v", l)
	}
}

func TestAGroupOfConsumersIsDeletedWhenItIsEmpty(t *testing.T) {
	d := newGroupDoor(t)
	d.consumer("g", "m", "t")
	del := kmsg.NewPtrDeleteGroupsRequest()
	del.Groups = []string{"g"}
	wantGroupCode(t, askGroups[*kmsg.DeleteGroupsResponse](d, 2, del).Groups[0].ErrorCode, kerr.NonEmptyGroup)
	offsets := kmsg.NewPtrOffsetDeleteRequest()
	offsets.Group = "g"
	offsets.Topics = []kmsg.OffsetDeleteRequestTopic{
		{Topic: "t", Partitions: []kmsg.OffsetDeleteRequestTopicPartition{{Partition: 0}}},
		{Topic: "u", Partitions: []kmsg.OffsetDeleteRequestTopicPartition{{Partition: 0}}},
	}
	r := askGroups[*kmsg.OffsetDeleteResponse](d, 0, offsets)
	wantGroupCode(t, r.Topics[0].Partitions[0].ErrorCode, kerr.GroupSubscribedToTopic)
	wantGroupCode(t, r.Topics[1].Partitions[0].ErrorCode, nil)
	bye := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	bye.Group, bye.MemberID, bye.MemberEpoch = "g", "m", -1
	wantGroupCode(t, askGroups[*kmsg.ConsumerGroupHeartbeatResponse](d, 1, bye).ErrorCode, nil)
	wantGroupCode(t, askGroups[*kmsg.DeleteGroupsResponse](d, 2, del).Groups[0].ErrorCode, nil)
	wantGroupCode(t, askGroups[*kmsg.DeleteGroupsResponse](d, 2, del).Groups[0].ErrorCode, kerr.GroupIDNotFound)
}
