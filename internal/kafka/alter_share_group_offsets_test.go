package kafka

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func (d *shareDoor) alterOffsets(offsets ...int64) *kmsg.AlterShareGroupOffsetsResponse {
	d.t.Helper()
	req := kmsg.NewPtrAlterShareGroupOffsetsRequest()
	req.GroupID = "g"
	t := kmsg.NewAlterShareGroupOffsetsRequestTopic()
	t.Topic = "t"
	for i, o := range offsets {
		p := kmsg.NewAlterShareGroupOffsetsRequestTopicPartition()
		p.Partition, p.StartOffset = int32(i), o
		t.Partitions = append(t.Partitions, p)
	}
	req.Topics = append(req.Topics, t)
	return askDoor[*kmsg.AlterShareGroupOffsetsResponse](d.t, d.Door, newClient(d.Door), 0, req)
}

// A group without members goes on where it is told to.
func TestAlterShareGroupOffsets(t *testing.T) {
	d := newShareDoor(t)
	d.f.part(d.topic, 0).add(t, 10)
	a := d.client("a", 2)
	a.fetch(0, nil)
	a.acknowledge(0, says{0, 0, 9, []int8{shareAccept}})
	d.beat("a", 0, nil, "t")
	wantGroupCode(t, d.alterOffsets(0).ErrorCode, kerr.NonEmptyGroup)
	d.beat("a", -1, nil)
	r := d.alterOffsets(7, -3, 0)
	wantGroupCode(t, r.ErrorCode, nil)
	for i, want := range []*kerr.Error{nil, kerr.InvalidRequest, kerr.UnknownTopicOrPartition} {
		wantGroupCode(t, r.Topics[0].Partitions[i].ErrorCode, want)
	}
	wantAcquired(t, a.fetch(0, nil), "0: 7-9 x1")
}
