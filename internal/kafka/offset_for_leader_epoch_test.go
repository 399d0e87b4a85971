package kafka

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestOffsetForLeaderEpoch(t *testing.T) {
	eachVersion(t, 23, func(t *testing.T, v int16) {
		cl := newFakeCluster()
		d := newTestDoor(t, cl, Config{})
		cl.part(cl.addTopic("t", 1), 0).add(t, 4)
		for _, c := range []struct {
			partition, current, epoch int32
			wantEpoch                 int32
			wantEnd                   int64
			code                      *kerr.Error
		}{
			{0, -1, 3, 3, 4, nil}, {0, 3, 9, 3, 4, nil}, {0, -1, 1, -1, -1, nil},
			{0, 2, 3, -1, -1, kerr.FencedLeaderEpoch}, {0, 4, 3, -1, -1, kerr.UnknownLeaderEpoch}, {7, -1, 3, -1, -1, kerr.UnknownTopicOrPartition},
		} {
			req := kmsg.NewPtrOffsetForLeaderEpochRequest()
			rt := kmsg.NewOffsetForLeaderEpochRequestTopic()
			rt.Topic = "t"
			rp := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
			rp.Partition, rp.CurrentLeaderEpoch, rp.LeaderEpoch = c.partition, c.current, c.epoch
			rt.Partitions = append(rt.Partitions, rp)
			req.Topics = append(req.Topics, rt)
			r := askDoor[*kmsg.OffsetForLeaderEpochResponse](t, d, newClient(d), v, req).Topics[0].Partitions[0]
			wantGroupCode(t, r.ErrorCode, c.code)
			if r.LeaderEpoch != c.wantEpoch || r.EndOffset != c.wantEnd || r.Partition != c.partition {
				t.Errorf("%+v, want %+v", r, c)
			}
		}
	})
}
