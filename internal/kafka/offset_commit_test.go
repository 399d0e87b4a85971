package kafka

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tube-mq/tube/internal/record"
)

func TestOffsetCommitStoresWhatExists(t *testing.T) {
	eachGroupVersion(t, 8, func(t *testing.T, v int16) {
		d := newGroupDoor(t)
		req := commitReq("g", "", -1, "t", 1, 7, new("note"))
		req.Topics[0].TopicID = d.im.ByName["t"].ID
		add := func(topic string, id record.TopicID, p int32, offset int64, metadata string) {
			more := commitReq("g", "", -1, topic, p, offset, &metadata).Topics[0]
			more.TopicID = id
			req.Topics = append(req.Topics, more)
		}
		add("nowhere", record.TopicID{9}, 0, 1, "")
		add("t", d.im.ByName["t"].ID, 2, 1, "")
		add("u", d.im.ByName["u"].ID, 0, 1, strings.Repeat("x", 4097))
		r := askGroups[*kmsg.OffsetCommitResponse](d, v, req)
		if len(r.Topics) != 4 {
			t.Fatalf("answers %+v", r.Topics)
		}
		unknown := kerr.UnknownTopicOrPartition
		if v >= 10 {
			unknown = kerr.UnknownTopicID
		}
		for i, want := range []*kerr.Error{nil, unknown, kerr.UnknownTopicOrPartition, kerr.OffsetMetadataTooLarge} {
			wantGroupCode(t, r.Topics[i].Partitions[0].ErrorCode, want)
		}
		o, err := d.positionOf("g", "t", 1)
		epoch := int32(-1)
		if v >= 6 {
			epoch = 4
		}
		if err != 0 || o.Offset != 7 || *o.Metadata != "note" || o.LeaderEpoch != epoch {
			t.Fatalf("stored %+v, metadata %q", o, *o.Metadata)
		}
		if o, _ := d.positionOf("g", "u", 0); o.Offset != -1 {
			t.Fatalf("stored a refused one: %+v", o)
		}
	})
}

// positionOf asks as a client does.
func (d *groupDoor) positionOf(name, topic string, p int32) (kmsg.OffsetFetchResponseGroupTopicPartition, int16) {
	d.t.Helper()
	r := askGroups[*kmsg.OffsetFetchResponse](d, 8, fetchReq(name, topic, p))
	if r.Groups[0].ErrorCode != 0 {
		return kmsg.OffsetFetchResponseGroupTopicPartition{}, r.Groups[0].ErrorCode
	}
	return r.Groups[0].Topics[0].Partitions[0], 0
}

func TestOffsetCommitIsForMembers(t *testing.T) {
	d := newGroupDoor(t)
	id, generation := d.member("g")
	code := func(member string, generation int32) int16 {
		r := askGroups[*kmsg.OffsetCommitResponse](d, 9, commitReq("g", member, generation, "t", 0, 3, nil))
		return r.Topics[0].Partitions[0].ErrorCode
	}
	wantGroupCode(t, code(id, generation), nil)
	wantGroupCode(t, code(id, generation+1), kerr.IllegalGeneration)
	wantGroupCode(t, code("nobody", generation), kerr.UnknownMemberID)
	wantGroupCode(t, code("", -1), kerr.UnknownMemberID)
	d.groups.Shard(0).LoseLeadership()
	wantGroupCode(t, code(id, generation), kerr.NotCoordinator)
}
