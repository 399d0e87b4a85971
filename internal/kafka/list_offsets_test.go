package kafka

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tube-mq/tube/internal/broker"
)

func TestListOffsetsFindsByTime(t *testing.T) {
	eachVersion(t, 2, func(t *testing.T, v int16) {
		cl := newFakeCluster()
		d := newTestDoor(t, cl, Config{})
		p := cl.part(cl.addTopic("t", 1), 0)
		p.add(t, 4)
		p.set(func(p *fakePartition) { p.start = 2 })
		ask := func(time int64, epoch int32) kmsg.ListOffsetsResponseTopicPartition {
			req := kmsg.NewPtrListOffsetsRequest()
			rt := kmsg.NewListOffsetsRequestTopic()
			rt.Topic = "t"
			rp := kmsg.NewListOffsetsRequestTopicPartition()
			rp.Timestamp, rp.CurrentLeaderEpoch = time, epoch
			rt.Partitions = append(rt.Partitions, rp)
			req.Topics = append(req.Topics, rt)
			return askDoor[*kmsg.ListOffsetsResponse](t, d, newClient(d), v, req).Topics[0].Partitions[0]
		}
		for _, c := range []struct {
			time, offset, found int64
		}{{timeLatest, 4, -1}, {timeEarliest, 2, -1}, {timeEarliestLocal, 2, -1}, {timeMax, 0, 1000}, {timeLatestTiered, -1, -1}, {timePendingUpload, -1, -1}, {500, 0, 1000}, {1001, -1, -1}} {
			if r := ask(c.time, 3); r.ErrorCode != 0 || r.Offset != c.offset || r.Timestamp != c.found {
				t.Errorf("time %d: %+v", c.time, r)
			}
		}
		if r := ask(-9, -1); r.ErrorCode != kerr.UnsupportedVersion.Code {
			t.Errorf("%+v", r)
		}
		if v >= 4 {
			if r := ask(timeLatest, -1); r.LeaderEpoch != 3 {
				t.Errorf("%+v", r)
			}
			for epoch, want := range map[int32]*kerr.Error{2: kerr.FencedLeaderEpoch, 4: kerr.UnknownLeaderEpoch} {
				if r := ask(timeLatest, epoch); r.ErrorCode != want.Code || r.Offset != -1 {
					t.Errorf("epoch %d: %+v", epoch, r)
				}
			}
		}
	})
}

// A leader that was paused does not know of its successor: it answers for the end
// of a partition only when a majority has said that it still leads.
func TestListOffsetsOfALeaderThatIsNotConfirmed(t *testing.T) {
	cl := newFakeCluster()
	d := newTestDoor(t, cl, Config{})
	p := cl.part(cl.addTopic("t", 1), 0)
	p.add(t, 4)
	p.set(func(p *fakePartition) { p.confirm = broker.ErrNotLeader })
	for time, want := range map[int64]int16{timeLatest: kerr.NotLeaderForPartition.Code, timeMax: kerr.NotLeaderForPartition.Code, 500: kerr.NotLeaderForPartition.Code, timeEarliest: 0} {
		req := kmsg.NewPtrListOffsetsRequest()
		rt := kmsg.NewListOffsetsRequestTopic()
		rt.Topic = "t"
		rp := kmsg.NewListOffsetsRequestTopicPartition()
		rp.Timestamp = time
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
		if r := askDoor[*kmsg.ListOffsetsResponse](t, d, newClient(d), 5, req).Topics[0].Partitions[0]; r.ErrorCode != want {
			t.Errorf("time %d: error %d, want %d", time, r.ErrorCode, want)
		}
	}
	if p.confirms != 3 {
		t.Errorf("%d confirmations, want 3", p.confirms)
	}
}
