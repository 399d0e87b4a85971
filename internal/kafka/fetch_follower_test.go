package kafka

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tube-mq/tube/internal/broker"
	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/record"
)

// followedCalls counts what followers answered.
type followedCalls struct {
	noCalls
	mu sync.Mutex
	n  int
}

func (c *followedCalls) Followed(n int) { c.mu.Lock(); c.n += n; c.mu.Unlock() }

// zones makes node 1, the one that is asked, stand in zone z, nodes 2 and 3 in
// zones b and c.
func (f *fetchTest) zones() {
	f.change(func(im *meta.Image) {
		im.Nodes[2] = &meta.Node{ID: 2, Kafka: "two:1", Zone: "b", State: meta.NodeUp}
		im.Nodes[3] = &meta.Node{ID: 3, Kafka: "three:1", Zone: "c", State: meta.NodeUp}
	})
}

// followed makes node 1 a follower of node 2 in all partitions.
func (f *fetchTest) followed() {
	f.zones()
	for n := range f.topic.Partitions {
		f.p(n).set(func(p *fakePartition) { p.follows, p.leader = true, 2 })
	}
}

func rackOf(req *kmsg.FetchRequest, rack string) *kmsg.FetchRequest {
	req.Rack = rack
	return req
}

func onlyPart(t *testing.T, r *kmsg.FetchResponse) kmsg.FetchResponseTopicPartition {
	t.Helper()
	if len(r.Topics) != 1 || len(r.Topics[0].Partitions) != 1 {
		t.Fatalf("answer %+v", r)
	}
	return r.Topics[0].Partitions[0]
}

func TestFetchSendsClientsToTheirZone(t *testing.T) {
	for v := int16(10); v <= 18; v++ {
		for _, c := range []struct {
			name, rack string
			offset     int64
			epoch      int32
			change     func(im *meta.Image)
			followers  []record.NodeID
			want       int32
		}{
			{name: "a follower in its zone", rack: "b", followers: []record.NodeID{2, 3}, epoch: -1, want: 2},
			{name: "with the epoch", rack: "c", followers: []record.NodeID{2, 3}, epoch: 3, want: 3},
			{name: "at the end", rack: "c", offset: 5, followers: []record.NodeID{2, 3}, epoch: 3, want: 3},
			{name: "no rack", followers: []record.NodeID{2, 3}, epoch: -1, want: -1},
			{name: "the leader's own zone", rack: "z", followers: []record.NodeID{2, 3}, epoch: -1, want: -1},
			{name: "nobody in its zone", rack: "d", followers: []record.NodeID{2, 3}, epoch: -1, want: -1},
			{name: "its follower does not keep up", rack: "b", followers: []record.NodeID{3}, epoch: -1, want: -1},
			{name: "another epoch", rack: "b", followers: []record.NodeID{2}, epoch: 2, want: -1},
			{name: "out of range", rack: "b", offset: 6, followers: []record.NodeID{2}, epoch: -1, want: -1},
			{name: "a node that is drained", rack: "b", followers: []record.NodeID{2}, epoch: -1, want: -1, change: func(im *meta.Image) {
				im.Nodes[2] = &meta.Node{ID: 2, Zone: "b", State: meta.NodeUp, Drain: true}
			}},
			{name: "a node that is down", rack: "b", followers: []record.NodeID{2}, epoch: -1, want: -1, change: func(im *meta.Image) {
				im.Nodes[2] = &meta.Node{ID: 2, Zone: "b", State: meta.NodeDown}
			}},
		} {
			f := newFetchTest(t, 1, Config{})
			f.zones()
			if c.change != nil {
				f.change(c.change)
			}
			f.p(0).add(t, 5)
			f.p(0).followers = c.followers
			req := rackOf(fetchOf(f.topic, c.offset), c.rack)
			req.MaxWaitMillis, req.Topics[0].Partitions[0].CurrentLeaderEpoch = 1, c.epoch
			p := onlyPart(t, f.ask(v, req))
			want := c.want
			if v < 11 {
				want = -1
			}
			if p.PreferredReadReplica != want {
				t.Errorf("v%d, %s: sent to node %d, want %d", v, c.name, p.PreferredReadReplica, want)
			}
			if want >= 0 && (len(p.RecordBatches) != 0 || p.ErrorCode != 0 || p.HighWatermark != 5) {
				t.Errorf("v%d, %s: %+v", v, c.name, p)
			}
			if want < 0 && c.offset == 0 && len(p.RecordBatches) == 0 {
				t.Errorf("v%d, %s: not served: %+v", v, c.name, p)
			}
		}
	}
}

func TestFetchSendsAwayAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFetchTest(t, 1, Config{})
		f.zones()
		f.p(0).followers = []record.NodeID{2}
		req := rackOf(fetchOf(f.topic, 0), "b")
		req.MaxWaitMillis, req.MinBytes = 30_000, 1000
		began := time.Now()
		if p := onlyPart(t, f.ask(12, req)); p.PreferredReadReplica != 2 || time.Since(began) != 0 {
			t.Errorf("after %v: %+v", time.Since(began), p)
		}
	})
}

// Whoever comes back was not served there: he is served here for a while, so that
// no two nodes send a client back and forth.
func TestFetchServesWhoCameBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFetchTest(t, 1, Config{})
		f.zones()
		f.p(0).add(t, 5)
		f.p(0).followers = []record.NodeID{2}
		ask := func() kmsg.FetchResponseTopicPartition {
			return onlyPart(t, f.ask(12, rackOf(fetchOf(f.topic, 0), "b")))
		}
		if p := ask(); p.PreferredReadReplica != 2 {
			t.Fatalf("not sent away: %+v", p)
		}
		for range 2 {
			if p := ask(); p.PreferredReadReplica != -1 || len(p.RecordBatches) == 0 {
				t.Fatalf("sent back: %+v", p)
			}
		}
		time.Sleep(awayFor)
		if p := ask(); p.PreferredReadReplica != 2 {
			t.Fatalf("never sent away again: %+v", p)
		}
	})
}

func TestWhoWasSentAwayIsRememberedWithinBounds(t *testing.T) {
	var a sentAway
	now := time.Now()
	for n := range maxAway {
		if !a.may(interestKey{number: record.Partition(n)}, now) {
			t.Fatalf("partition %d", n)
		}
	}
	if a.may(interestKey{name: "t"}, now) || len(a) > maxAway {
		t.Fatalf("%d are remembered", len(a))
	}
	if !a.may(interestKey{name: "t"}, now.Add(awayFor)) || len(a) != 1 {
		t.Fatalf("%d are remembered after a while", len(a))
	}
}

func TestFetchFromAFollowerWaitsUntilItHasCaughtUp(t *testing.T) {
	for _, v := range []int16{11, 13, 18} {
		for _, wait := range []int32{0, 30_000} {
			synctest.Test(t, func(t *testing.T) {
				calls := &followedCalls{}
				f := newFetchTest(t, 1, Config{Calls: calls})
				f.p(0).add(t, 5)
				f.followed()
				req := rackOf(fetchOf(f.topic, 0), "z")
				req.MaxWaitMillis = wait
				began := time.Now()
				go func() {
					time.Sleep(10 * time.Millisecond)
					f.p(0).add(t, 5) // what the leader had
					if n := f.p(0).catchUp(nil); n != 1 {
						t.Errorf("%d questions", n)
					}
				}()
				p := onlyPart(t, f.ask(v, req))
				if p.ErrorCode != 0 || p.HighWatermark != 10 || len(p.RecordBatches) == 0 || p.PreferredReadReplica != -1 || time.Since(began) != 10*time.Millisecond {
					t.Errorf("v%d: after %v: %+v", v, time.Since(began), p)
				}
				if calls.n != 1 {
					t.Errorf("%d answers of followers are counted", calls.n)
				}
			})
		}
	}
}

// Each fetch asks anew: the client may have been at the leader since.
func TestFetchFromAFollowerAsksEachTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFetchTest(t, 1, Config{})
		f.p(0).add(t, 5)
		f.followed()
		for range 3 {
			go func() { synctest.Wait(); f.p(0).catchUp(nil) }()
			if p := onlyPart(t, f.ask(12, rackOf(fetchOf(f.topic, 0), "z"))); p.ErrorCode != 0 {
				t.Fatalf("%+v", p)
			}
		}
		if p := onlyPart(t, f.ask(12, rackOf(fetchOf(f.topic, 0), "z"))); p.ErrorCode == 0 {
			t.Fatalf("served without having caught up: %+v", p)
		}
	})
}

func TestAFollowersSessionAsksForWhatItReadsEachTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFetchTest(t, 1, Config{})
		f.p(0).add(t, 5)
		f.p(0).add(t, 5)
		f.followed()
		req := rackOf(fetchOf(f.topic, 0), "z")
		req.SessionEpoch = 0
		go func() { synctest.Wait(); f.p(0).catchUp(nil) }()
		id := f.ask(13, req).SessionID
		req = rackOf(fetchOf(f.topic, 5), "z")
		req.SessionID, req.SessionEpoch = id, 1
		if p := onlyPart(t, f.ask(13, req)); p.ErrorCode != kerr.NotLeaderForPartition.Code {
			t.Fatalf("served without having caught up: %+v", p)
		}
	})
}

func TestFetchFromAFollowerThatIsBehindNamesTheLeader(t *testing.T) {
	for _, wait := range []int32{0, 30_000} {
		synctest.Test(t, func(t *testing.T) {
			f := newFetchTest(t, 2, Config{})
			f.p(0).add(t, 5)
			f.p(1).add(t, 5)
			f.followed()
			req := rackOf(fetchOf(f.topic, 0, 0), "z")
			req.MaxWaitMillis = wait
			began := time.Now()
			go func() { synctest.Wait(); f.p(1).catchUp(nil) }()
			r := f.ask(16, req)
			if took := time.Since(began); took != followTimeout {
				t.Errorf("after %v", took)
			}
			if p := r.Topics[0].Partitions[0]; p.ErrorCode != kerr.NotLeaderForPartition.Code || p.PreferredReadReplica != 2 || p.CurrentLeader.LeaderID != 2 || len(r.Brokers) != 1 {
				t.Errorf("%+v", p)
			}
			if p := r.Topics[0].Partitions[1]; p.ErrorCode != 0 || len(p.RecordBatches) == 0 {
				t.Errorf("%+v", p)
			}
			if n := f.p(0).catchUp(nil); n != 0 {
				t.Errorf("%d still wait", n)
			}
		})
	}
}

func TestFollowersServeOnlyTheirZone(t *testing.T) {
	for _, c := range []struct {
		name, rack string
		version    int16
		change     func(im *meta.Image)
	}{
		{name: "no rack", version: 12},
		{name: "another zone", rack: "b", version: 12},
		{name: "before v11", rack: "z", version: 10},
		{name: "drained", rack: "z", version: 12, change: func(im *meta.Image) {
			im.Nodes[1] = &meta.Node{ID: 1, Zone: "z", State: meta.NodeUp, Drain: true}
		}},
	} {
		f := newFetchTest(t, 1, Config{})
		f.p(0).add(t, 5)
		f.followed()
		if c.change != nil {
			f.change(c.change)
		}
		req := rackOf(fetchOf(f.topic, 0), c.rack)
		req.MaxWaitMillis = 30_000
		if p := onlyPart(t, f.ask(c.version, req)); p.ErrorCode != kerr.NotLeaderForPartition.Code {
			t.Errorf("%s: %+v", c.name, p)
		}
		if n := f.p(0).catchUp(nil); n != 0 {
			t.Errorf("%s: %d questions", c.name, n)
		}
	}
}

func TestAFollowersErrorsSendClientsToTheLeader(t *testing.T) {
	for err, code := range map[error]*kerr.Error{
		broker.ErrFencedEpoch: kerr.FencedLeaderEpoch, broker.ErrUnknownEpoch: kerr.UnknownLeaderEpoch, broker.ErrNotLeader: kerr.NotLeaderForPartition,
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFetchTest(t, 1, Config{})
			f.followed()
			go func() { synctest.Wait(); f.p(0).catchUp(err) }()
			if p := onlyPart(t, f.ask(12, rackOf(fetchOf(f.topic, 0), "z"))); p.ErrorCode != code.Code || p.PreferredReadReplica != 2 {
				t.Errorf("%v: %+v", err, p)
			}
		})
	}
	synctest.Test(t, func(t *testing.T) {
		f := newFetchTest(t, 1, Config{})
		f.followed()
		go func() { synctest.Wait(); f.p(0).catchUp(nil) }()
		if p := onlyPart(t, f.ask(12, rackOf(fetchOf(f.topic, 9), "z"))); p.ErrorCode != kerr.OffsetOutOfRange.Code || p.PreferredReadReplica != 2 {
			t.Errorf("out of range: %+v", p)
		}
	})
}

func TestAFollowersFetchIsWoken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFetchTest(t, 1, Config{})
		f.followed()
		req := rackOf(fetchOf(f.topic, 0), "z")
		req.MaxWaitMillis = 30_000
		began := time.Now()
		go func() {
			synctest.Wait()
			f.p(0).catchUp(nil)
			time.Sleep(time.Second)
			f.p(0).add(t, 5)
		}()
		if p := onlyPart(t, f.ask(12, req)); p.HighWatermark != 5 || time.Since(began) != time.Second {
			t.Errorf("after %v: %+v", time.Since(began), p)
		}
	})
}

// In a session a follower is asked only for what has news.
func TestAnIdleSessionAsksNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFetchTest(t, 3, Config{})
		f.followed()
		answer := func() {
			synctest.Wait()
			for n := range 3 {
				f.p(n).catchUp(nil)
			}
		}
		begin := rackOf(fetchOf(f.topic, 0, 0, 0), "z")
		begin.SessionEpoch = 0
		go answer()
		r := f.ask(13, begin)
		if r.SessionID == 0 || r.Topics[0].Partitions[0].ErrorCode != 0 {
			t.Fatalf("%+v", r)
		}
		poll := func(epoch int32) *kmsg.FetchResponse {
			req := rackOf(fetchOf(f.topic), "z")
			req.SessionID, req.SessionEpoch, req.MaxWaitMillis = r.SessionID, epoch, 500
			return f.ask(13, req)
		}
		if r := poll(1); len(r.Topics) != 0 {
			t.Fatalf("%+v", r)
		}
		for n := range 3 {
			if k := f.p(n).catchUp(nil); k != 0 {
				t.Errorf("an idle poll asks %d questions of partition %d", k, n)
			}
		}
		f.p(1).add(t, 5)
		go answer()
		if got := sizes(poll(2)); len(got) != 1 || got[1] == 0 {
			t.Fatalf("%v", got)
		}
	})
}

func TestAStoppingNodeAnswersWhoWaitsForAFollower(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFetchTest(t, 1, Config{})
		f.followed()
		req := rackOf(fetchOf(f.topic, 0), "z")
		req.MaxWaitMillis = 30_000
		go func() { synctest.Wait(); f.d.cancel() }()
		if p := onlyPart(t, f.ask(12, req)); p.ErrorCode != kerr.NotLeaderForPartition.Code {
			t.Errorf("%+v", p)
		}
	})
}
