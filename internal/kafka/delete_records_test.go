package kafka

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestDeleteRecordsMovesTheLogStart(t *testing.T) {
	eachVersion(t, 21, func(t *testing.T, v int16) {
		cl := newFakeCluster()
		d := newTestDoor(t, cl, Config{})
		cl.part(cl.addTopic("t", 1), 0).add(t, 10)
		for _, c := range []struct {
			topic       string
			before, low int64
			code        *kerr.Error
		}{
			{"t", 4, 4, nil}, {"t", 2, 4, nil}, {"t", 11, -1, kerr.OffsetOutOfRange}, {"t", -2, -1, kerr.OffsetOutOfRange},
			{"t", -1, 10, nil}, {"u", 1, -1, kerr.UnknownTopicOrPartition},
		} {
			req := kmsg.NewPtrDeleteRecordsRequest()
			rt := kmsg.NewDeleteRecordsRequestTopic()
			rt.Topic = c.topic
			rp := kmsg.NewDeleteRecordsRequestTopicPartition()
			rp.Offset = c.before
			rt.Partitions = append(rt.Partitions, rp)
			req.Topics = append(req.Topics, rt)
			r := askDoor[*kmsg.DeleteRecordsResponse](t, d, newClient(d), v, req).Topics[0].Partitions[0]
			wantGroupCode(t, r.ErrorCode, c.code)
			if r.LowWatermark != c.low {
				t.Errorf("before %d: low watermark %d, want %d", c.before, r.LowWatermark, c.low)
			}
		}
	})
}
