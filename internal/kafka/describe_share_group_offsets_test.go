package kafka

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func (d *shareDoor) offsets(v int16, group string, partitions ...int32) kmsg.DescribeShareGroupOffsetsResponseGroup {
	d.t.Helper()
	req := kmsg.NewPtrDescribeShareGroupOffsetsRequest()
	g := kmsg.NewDescribeShareGroupOffsetsRequestGroup()
	g.GroupID = group
	if len(partitions) > 0 {
		t := kmsg.NewDescribeShareGroupOffsetsRequestGroupTopic()
		t.Topic, t.Partitions = "t", partitions
		g.Topics = append(g.Topics, t)
	}
	req.Groups = append(req.Groups, g)
	return askDoor[*kmsg.DescribeShareGroupOffsetsResponse](d.t, d.Door, newClient(d.Door), v, req).Groups[0]
}

func TestDescribeShareGroupOffsets(t *testing.T) {
	eachVersion(t, 90, func(t *testing.T, v int16) {
		d := newShareDoor(t)
		d.f.part(d.topic, 0).add(t, 10)
		a := d.client("a", 2)
		a.fetch(0, nil)
		a.acknowledge(0, says{0, 0, 3, []int8{shareAccept}}, says{0, 6, 6, []int8{shareAccept}})
		g := d.offsets(v, "g")
		wantGroupCode(t, g.ErrorCode, nil)
		if len(g.Topics) != 1 || g.Topics[0].Topic != "t" || g.Topics[0].TopicID != d.topic.ID || len(g.Topics[0].Partitions) != 2 {
			t.Fatalf("%+v", g)
		}
		p := g.Topics[0].Partitions
		if p[0].StartOffset != 4 || p[1].StartOffset != 0 || p[0].LeaderEpoch != 3 || v >= 1 && (p[0].Lag != 5 || p[1].Lag != 0) {
			t.Errorf("%+v", p)
		}
		some := d.offsets(v, "g", 0, 7).Topics[0].Partitions
		if some[0].StartOffset != 4 || some[1].ErrorCode != kerr.UnknownTopicOrPartition.Code {
			t.Errorf("%+v", some)
		}
		wantGroupCode(t, d.offsets(v, "nobody").ErrorCode, kerr.GroupIDNotFound)
	})
}
