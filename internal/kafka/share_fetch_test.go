package kafka

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tube-mq/tube/internal/broker"
	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/queue"
	"github.com/tube-mq/tube/internal/record"
)

// fetch asks for records of both partitions; the answer's code is checked.
func (c *shareClient) fetch(code int16, change func(*kmsg.ShareFetchRequest), acks ...says) *kmsg.ShareFetchResponse {
	c.d.t.Helper()
	req := kmsg.NewPtrShareFetchRequest()
	group := "g"
	req.GroupID, req.MemberID, req.ShareSessionEpoch = &group, &c.member, c.epoch
	req.MaxBytes, req.MaxRecords, req.BatchSize, req.ShareAcquireMode = 1<<20, 100, 100, 1
	t := kmsg.NewShareFetchRequestTopic()
	t.TopicID = c.d.topic.ID
	for p := range int32(2) {
		rp := kmsg.NewShareFetchRequestTopicPartition()
		rp.Partition = p
		for _, a := range acks {
			if a.partition == p {
				b := kmsg.NewShareFetchRequestTopicPartitionAcknowledgementBatch()
				b.FirstOffset, b.LastOffset, b.AcknowledgeTypes = a.first, a.last, a.kinds
				rp.AcknowledgementBatches = append(rp.AcknowledgementBatches, b)
			}
		}
		if c.epoch == 0 || len(rp.AcknowledgementBatches) > 0 {
			t.Partitions = append(t.Partitions, rp)
		}
	}
	if len(t.Partitions) > 0 {
		req.Topics = append(req.Topics, t)
	}
	if change != nil {
		change(req)
	}
	resp := askDoor[*kmsg.ShareFetchResponse](c.d.t, c.d.Door, c.c, c.v, req)
	if resp.ErrorCode != code {
		c.d.t.Fatalf("code %s, want %s", errorName(resp.ErrorCode), errorName(code))
	}
	if code == 0 {
		c.epoch++
	}
	return resp
}

// Members get what nobody else has, in whole batches, with the offsets that are theirs.
func TestShareFetchGivesEachRecordToOneMember(t *testing.T) {
	eachVersion(t, 78, func(t *testing.T, v int16) {
		d := newShareDoor(t)
		batch := d.f.part(d.topic, 0).add(t, 10)
		d.f.part(d.topic, 1).add(t, 3)
		a, b := d.client("a", v), d.client("b", v)
		few := func(r *kmsg.ShareFetchRequest) { r.MaxRecords = 4; r.ShareAcquireMode = 1 }
		if v < 2 { // without a mode clients get the whole batch
			few = nil
		}
		first := a.fetch(0, few)
		second := b.fetch(0, nil)
		if v < 2 {
			wantAcquired(t, first, "0: 0-9 x1", "1: 0-2 x1")
			wantAcquired(t, second)
			return
		}
		// Which partition comes first is not said; whichever: nothing twice, all of it.
		all := append(acquired(first), acquired(second)...)
		slices.Sort(all)
		if !slices.Equal(all, []string{"0: 0-3 x1", "0: 4-9 x1", "1: 0-2 x1"}) && !slices.Equal(all, []string{"0: 0-0 x1", "0: 1-9 x1", "1: 0-2 x1"}) {
			t.Fatalf("acquired %q", all)
		}
		for _, p := range first.Topics[0].Partitions {
			if p.Partition == 0 && len(p.Records) != len(batch) {
				t.Errorf("%d bytes of records, the batch has %d", len(p.Records), len(batch))
			}
		}
		if first.AcquisitionLockTimeoutMillis != 30_000 {
			t.Errorf("lock of %d ms", first.AcquisitionLockTimeoutMillis)
		}
	})
}

// Ranges break where deliveries differ, and where the client's batch size is reached.
func TestShareFetchRangesAreOfOneDeliveryCount(t *testing.T) {
	d := newShareDoor(t)
	d.f.part(d.topic, 0).add(t, 10)
	a := d.client("a", 2)
	a.fetch(0, nil)
	a.acknowledge(0, says{0, 3, 4, []int8{shareRelease}})
	a.acknowledge(0, says{0, 0, 2, []int8{shareRelease, shareAccept, shareRelease}})
	wantAcquired(t, a.fetch(0, nil), "0: 0-0 x2", "0: 2-4 x2")

	d = newShareDoor(t)
	d.f.part(d.topic, 0).add(t, 10)
	wantAcquired(t, d.client("a", 2).fetch(0, func(r *kmsg.ShareFetchRequest) { r.ShareAcquireMode, r.BatchSize = 0, 4 }), "0: 0-3 x1", "0: 4-7 x1", "0: 8-9 x1")
}

// Without a strict limit a client gets the rest of the batch that it is sent anyway.
func TestShareFetchAlignsToBatches(t *testing.T) {
	d := newShareDoor(t)
	d.f.part(d.topic, 0).add(t, 10)
	d.f.part(d.topic, 0).add(t, 10)
	limit := func(mode int8) func(*kmsg.ShareFetchRequest) {
		return func(r *kmsg.ShareFetchRequest) { r.MaxRecords, r.BatchSize, r.ShareAcquireMode = 3, 0, mode }
	}
	wantAcquired(t, d.client("a", 2).fetch(0, limit(0)), "0: 0-9 x1")
	wantAcquired(t, d.client("b", 2).fetch(0, limit(1)), "0: 10-12 x1")
}

// What does not fit the client's bytes is not the client's.
func TestShareFetchGivesBackWhatDoesNotFit(t *testing.T) {
	d := newShareDoor(t)
	p := d.f.part(d.topic, 0)
	size := len(p.add(t, 5))
	p.add(t, 5)
	a, b := d.client("a", 2), d.client("b", 2)
	wantAcquired(t, a.fetch(0, func(r *kmsg.ShareFetchRequest) { r.MaxBytes = int32(size) + 10 }), "0: 0-4 x1")
	wantAcquired(t, b.fetch(0, nil), "0: 5-9 x1")
}

// Of a group that acknowledges by itself what does not fit is not lost: it is
// acknowledged when a client has it, no sooner.
func TestShareFetchAcknowledgesOnlyWhatItSends(t *testing.T) {
	d := newShareDoor(t)
	p := d.f.part(d.topic, 0)
	p.queue.settings.AutoAck = true
	settings := queue.DefaultSettings()
	settings.AutoAck, settings.DeadLetter = true, "g.dead-letter"
	for _, command := range [][]byte{
		meta.DeleteQueueGroup(time.UnixMilli(0), d.f.image().QueueGroup("g").ID), meta.CreateQueueGroup(time.UnixMilli(0), "g", d.topic.ID, settings),
	} {
		if err := d.shares.command(command); err != nil {
			t.Fatal(err)
		}
	}
	size := len(p.add(t, 5))
	p.add(t, 5)
	a, b := d.client("a", 2), d.client("b", 2)
	wantAcquired(t, a.fetch(0, func(r *kmsg.ShareFetchRequest) { r.MaxBytes = int32(size) + 10 }), "0: 0-4 x1")
	wantAcquired(t, b.fetch(0, nil), "0: 5-9 x1")
	// What was sent is done with: it does not come again, whatever becomes of the clients.
	p.queue.pass(time.Hour)
	wantAcquired(t, d.client("c", 2).fetch(0, nil))
}

func TestShareSessionEpochs(t *testing.T) {
	eachVersion(t, 78, func(t *testing.T, v int16) {
		d := newShareDoor(t)
		d.f.part(d.topic, 0).add(t, 4)
		a := d.client("a", v)
		a.epoch = 3
		a.fetch(kerr.ShareSessionNotFound.Code, nil)
		a.epoch = 0
		a.acknowledgeWith(kerr.InvalidShareSessionEpoch.Code, 0, nil, says{0, 0, 0, []int8{shareAccept}})
		a.fetch(kerr.InvalidRequest.Code, nil, says{0, 0, 0, []int8{shareAccept}})
		wantAcquired(t, a.fetch(0, nil), "0: 0-3 x1")
		a.epoch = 5
		a.fetch(kerr.InvalidShareSessionEpoch.Code, nil)
		a.acknowledgeWith(kerr.InvalidShareSessionEpoch.Code, 0, nil, says{0, 0, 0, []int8{shareAccept}})
		// The two count together.
		a.epoch = 1
		a.acknowledge(0, says{0, 0, 0, []int8{shareAccept}})
		wantAcquired(t, a.fetch(0, nil, says{0, 1, 1, []int8{shareAccept}}))
		if a.epoch != 3 {
			t.Fatalf("epoch %d", a.epoch)
		}
		// One that begins anew has nothing; what it had is there for everybody, uncounted.
		a.epoch = 0
		wantAcquired(t, a.fetch(0, nil), "0: 2-3 x1")
		// The end hands back what was not settled, uncounted.
		a.epoch = -1
		a.acknowledge(0, says{0, 2, 2, []int8{shareAccept}})
		b := d.client("b", v)
		wantAcquired(t, b.fetch(0, nil), "0: 3-3 x1")
		a.epoch = 1
		a.fetch(kerr.ShareSessionNotFound.Code, nil)
	})
}

// A session has what was added and not forgotten.
func TestShareSessionForgetsPartitions(t *testing.T) {
	d := newShareDoor(t)
	a := d.client("a", 2)
	a.fetch(0, nil)
	d.f.part(d.topic, 0).add(t, 1)
	d.f.part(d.topic, 1).add(t, 1)
	wantAcquired(t, a.fetch(0, func(r *kmsg.ShareFetchRequest) {
		f := kmsg.NewShareFetchRequestForgottenTopicsData()
		f.TopicID, f.Partitions = d.topic.ID, []int32{0}
		r.ForgottenTopicsData = append(r.ForgottenTopicsData, f)
	}), "1: 0-0 x1")
	wantAcquired(t, a.fetch(0, nil))
}

func TestShareSessionsAreLimited(t *testing.T) {
	d := newShareDoor(t)
	d.cfg.MaxShareSessions = 1
	a, b := d.client("a", 2), d.client("b", 2)
	a.fetch(0, nil)
	b.fetch(kerr.ShareSessionLimitReached.Code, nil)
	a.epoch = 0
	a.fetch(0, nil) // its own may always begin anew
	a.epoch = -1
	a.fetch(0, nil)
	b.fetch(0, nil)
}

// A connection that ends soon after its member's last word gives what the member had to
// others; one that was idle for long may only have been closed to be opened again.
func TestShareSessionEndsWithItsConnection(t *testing.T) {
	for _, idle := range []bool{false, true} {
		t.Run(fmt.Sprint("idle ", idle), func(t *testing.T) {
			d := newShareDoor(t)
			d.f.part(d.topic, 0).add(t, 1)
			a := d.client("a", 2)
			a.fetch(0, nil)
			if idle {
				a.c.shares[0].last = time.Now().Add(-quickEnd)
			}
			d.shareSessions.disconnected(a.c)
			want := []string{"0: 0-0 x2"} // lost alone: counted
			if idle {
				want = nil
			}
			wantAcquired(t, d.client("b", 2).fetch(0, nil), want...)
			if idle {
				d.queue(0).pass(time.Minute)
				wantAcquired(t, d.client("c", 2).fetch(0, nil), "0: 0-0 x2")
			}
			a.fetch(kerr.ShareSessionNotFound.Code, nil)
		})
	}
}

// A session that began anew on another connection does not end with the old one.
func TestShareSessionMovesBetweenConnections(t *testing.T) {
	d := newShareDoor(t)
	a := d.client("a", 2)
	a.fetch(0, nil)
	old := a.c
	a.c, a.epoch = newClient(d.Door), 0
	a.fetch(0, nil)
	d.shareSessions.disconnected(old)
	a.fetch(0, nil)
}

func TestShareFetchTellsWhatIsWrongWithPartitions(t *testing.T) {
	d := newShareDoor(t)
	d.f.part(d.topic, 0).add(t, 1)
	d.f.part(d.topic, 1).set(func(p *fakePartition) { p.err, p.leader = broker.ErrNotLeader, 2 })
	r := d.client("a", 2).fetch(0, func(r *kmsg.ShareFetchRequest) {
		u := kmsg.NewShareFetchRequestTopic()
		u.TopicID = record.NewTopicID()
		u.Partitions = []kmsg.ShareFetchRequestTopicPartition{kmsg.NewShareFetchRequestTopicPartition()}
		r.Topics = append(r.Topics, u)
	})
	wantAcquired(t, r, "0: 0-0 x1")
	codes := map[string]int32{}
	for _, rt := range r.Topics {
		for _, p := range rt.Partitions {
			codes[errorName(p.ErrorCode)] = p.CurrentLeader.LeaderID
		}
	}
	if len(codes) != 3 || codes["NONE"] != -1 || codes["UNKNOWN_TOPIC_ID"] != -1 || codes["NOT_LEADER_FOR_PARTITION"] != 2 {
		t.Errorf("codes and leaders %v", codes)
	}
}

// A group that was deleted is not settled with, and not read through.
func TestShareGroupThatIsGone(t *testing.T) {
	d := newShareDoor(t)
	d.f.part(d.topic, 0).add(t, 1)
	a := d.client("a", 2)
	a.fetch(0, nil)
	if err := d.shares.Delete(t.Context(), d.f.image().ShareQueue("g", d.topic.ID)); err != nil {
		t.Fatal(err)
	}
	a.acknowledge(kerr.GroupIDNotFound.Code, says{0, 0, 0, []int8{shareAccept}})
	wantAcquired(t, a.fetch(0, nil))
}

// Records that a member never settles, and others got meanwhile, are forgotten.
func TestShareSessionIsBounded(t *testing.T) {
	s := &shareSession{held: map[sharePart]map[record.Offset]heldRecord{}}
	p := sharePart{}
	for o := record.Offset(0); o < 1000; o++ {
		s.give(p, []queue.Taken{{Lease: queue.Lease{Offset: o}}}, -time.Second, 10)
	}
	if n := len(s.held[p]); n > 21 {
		t.Errorf("%d records held", n)
	}
}

// The memory that answers take is given back when they are written, and no sooner.
func TestShareFetchGivesBackItsMemory(t *testing.T) {
	d := newShareDoor(t)
	d.f.part(d.topic, 0).add(t, 100)
	free := d.budgets.fetched.Load()
	a := d.client("a", 2)
	for range 3 {
		a.fetch(0, func(r *kmsg.ShareFetchRequest) { r.MaxRecords = 10 })
	}
	a.fetch(0, func(r *kmsg.ShareFetchRequest) { r.MaxBytes = 1 }) // the first batch comes all the same
	if got := d.budgets.fetched.Load(); got != free {
		t.Errorf("%d bytes are free, there were %d", got, free)
	}
	req := kmsg.NewPtrShareFetchRequest()
	group := "g"
	req.GroupID, req.MemberID, req.ShareSessionEpoch, req.MaxBytes, req.Version = &group, &a.member, a.epoch, 1<<20, 2
	resp := d.shareFetch(t.Context(), a.c, req).(chunked)
	if d.budgets.fetched.Load() == free {
		t.Error("records that are not written yet take no memory")
	}
	resp.release()
	if got := d.budgets.fetched.Load(); got != free {
		t.Errorf("%d bytes are free after it, there were %d", got, free)
	}
}
