package kafka

import (
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tube-mq/tube/internal/record"
)

// acknowledge settles records; each of them is answered with the code.
func (c *shareClient) acknowledge(code int16, acks ...says) *kmsg.ShareAcknowledgeResponse {
	c.d.t.Helper()
	return c.acknowledgeWith(0, code, nil, acks...)
}

func (c *shareClient) acknowledgeWith(top, code int16, change func(*kmsg.ShareAcknowledgeRequest), acks ...says) *kmsg.ShareAcknowledgeResponse {
	c.d.t.Helper()
	req := kmsg.NewPtrShareAcknowledgeRequest()
	group := "g"
	req.GroupID, req.MemberID, req.ShareSessionEpoch = &group, &c.member, c.epoch
	t := kmsg.NewShareAcknowledgeRequestTopic()
	t.TopicID = c.d.topic.ID
	for _, a := range acks {
		rp := kmsg.NewShareAcknowledgeRequestTopicPartition()
		rp.Partition = a.partition
		b := kmsg.NewShareAcknowledgeRequestTopicPartitionAcknowledgementBatch()
		b.FirstOffset, b.LastOffset, b.AcknowledgeTypes = a.first, a.last, a.kinds
		rp.AcknowledgementBatches = append(rp.AcknowledgementBatches, b)
		t.Partitions = append(t.Partitions, rp)
	}
	req.Topics = append(req.Topics, t)
	if change != nil {
		change(req)
	}
	resp := askDoor[*kmsg.ShareAcknowledgeResponse](c.d.t, c.d.Door, c.c, c.v, req)
	if resp.ErrorCode != top {
		c.d.t.Fatalf("code %s, want %s", errorName(resp.ErrorCode), errorName(top))
	}
	if top != 0 {
		return resp
	}
	c.epoch++
	for _, rt := range resp.Topics {
		for _, p := range rt.Partitions {
			if p.ErrorCode != code {
				c.d.t.Fatalf("partition %d: code %s, want %s", p.Partition, errorName(p.ErrorCode), errorName(code))
			}
		}
	}
	return resp
}

// Accept, release, reject and renew, and what each does to the record.
func TestShareAcknowledgements(t *testing.T) {
	d := newShareDoor(t)
	d.f.part(d.topic, 0).add(t, 4)
	a, b := d.client("a", 2), d.client("b", 2)
	a.fetch(0, nil)
	a.acknowledge(0, says{0, 0, 2, []int8{shareAccept, shareRelease, shareReject}})
	wantAcquired(t, b.fetch(0, nil), "0: 1-1 x2") // released: again, counted; 3 is still a's
	if q := d.queue(0); !slices.Equal(q.dead, []record.Offset{2}) {
		t.Errorf("dead letters %v, want the rejected record", q.dead)
	}
	// Renewed, it is a's for as long again; not renewed, it is not.
	d.queue(0).pass(20 * time.Second)
	a.acknowledgeWith(0, 0, func(r *kmsg.ShareAcknowledgeRequest) { r.IsRenewAck = true }, says{0, 3, 3, []int8{shareRenew}})
	d.queue(0).pass(20 * time.Second)
	c := d.client("c", 2)
	wantAcquired(t, c.fetch(0, nil), "0: 1-1 x3") // b's lock ran out, a's did not
	c.acknowledge(0, says{0, 1, 1, []int8{shareAccept}})
	d.queue(0).pass(20 * time.Second)
	// Lost together with others that a had: not counted, but it is handed out alone.
	wantAcquired(t, c.fetch(0, nil), "0: 3-3 x1")
	// Whoever had it once and comes late hears that it is another's.
	a.acknowledge(kerr.InvalidRecordState.Code, says{0, 3, 3, []int8{shareAccept}})
	c.acknowledge(0, says{0, 3, 3, []int8{shareAccept}})
}

// A delivery that was lost and went to nobody yet may still be accepted.
func TestShareAcceptAfterTheLockCountsIfNobodyHasIt(t *testing.T) {
	d := newShareDoor(t)
	d.f.part(d.topic, 0).add(t, 1)
	a := d.client("a", 2)
	a.fetch(0, nil)
	d.queue(0).pass(time.Minute)
	a.acknowledge(0, says{0, 0, 0, []int8{shareAccept}})
	wantAcquired(t, d.client("b", 2).fetch(0, nil))
}

// What a client says that cannot be is refused, and nothing of the partition changes.
func TestShareAcknowledgementsThatCannotBe(t *testing.T) {
	eachVersion(t, 79, func(t *testing.T, v int16) {
		for _, c := range []struct {
			name string
			says says
			code *kerr.Error
		}{
			{"not the member's", says{0, 0, 9, []int8{shareAccept}}, kerr.InvalidRecordState},
			{"in part not the member's", says{0, 2, 4, []int8{shareAccept}}, kerr.InvalidRecordState},
			{"another partition's", says{1, 0, 0, []int8{shareAccept}}, kerr.InvalidRecordState},
			{"absurdly many", says{0, 0, 1 << 62, []int8{shareAccept}}, kerr.InvalidRecordState},
			{"inverted", says{0, 3, 1, []int8{shareAccept}}, kerr.InvalidRecordState},
			{"negative", says{0, -1, 1, []int8{shareAccept}}, kerr.InvalidRecordState},
			{"no kind", says{0, 0, 1, nil}, kerr.InvalidRequest},
			{"kinds for others", says{0, 0, 2, []int8{shareAccept, shareAccept}}, kerr.InvalidRequest},
			{"unknown kind", says{0, 0, 1, []int8{shareAccept, 9}}, kerr.InvalidRequest},
			{"renewal out of the blue", says{0, 0, 1, []int8{shareAccept, shareRenew}}, kerr.InvalidRequest},
		} {
			t.Run(c.name, func(t *testing.T) {
				d := newShareDoor(t)
				d.f.part(d.topic, 0).add(t, 4)
				a := d.client("a", v)
				a.fetch(0, nil)
				d.f.part(d.topic, 0).add(t, 4)
				a.acknowledge(c.code.Code, c.says)
				a.epoch = -1
				a.acknowledge(0)
				wantAcquired(t, d.client("b", v).fetch(0, nil), "0: 0-7 x1")
			})
		}
	})
}

// Renewals are a setting, and come alone.
func TestShareRenewals(t *testing.T) {
	d := newShareDoor(t)
	d.f.part(d.topic, 0).add(t, 1)
	a := d.client("a", 2)
	a.fetch(0, nil)
	renew := func(r *kmsg.ShareFetchRequest) { r.IsRenewAck = true }
	a.fetch(kerr.InvalidRequest.Code, renew, says{0, 0, 0, []int8{shareRenew}})
	nothing := func(r *kmsg.ShareFetchRequest) { r.IsRenewAck, r.MaxBytes, r.MaxRecords = true, 0, 0 }
	d.f.part(d.topic, 0).add(t, 1)
	wantAcquired(t, a.fetch(0, nothing, says{0, 0, 0, []int8{shareRenew}}))
	d.mustAlter("g", "share.renew.acknowledge.enable", "false")
	a.acknowledgeWith(0, kerr.InvalidRecordState.Code, func(r *kmsg.ShareAcknowledgeRequest) { r.IsRenewAck = true }, says{0, 0, 0, []int8{shareRenew}})
}

// A record of which two things are said is neither.
func TestShareAcknowledgesARecordOnce(t *testing.T) {
	d := newShareDoor(t)
	d.f.part(d.topic, 0).add(t, 4)
	a := d.client("a", 2)
	a.fetch(0, nil)
	a.acknowledgeWith(0, kerr.InvalidRequest.Code, func(r *kmsg.ShareAcknowledgeRequest) {
		p := &r.Topics[0].Partitions[0]
		b := p.AcknowledgementBatches[0]
		b.AcknowledgeTypes = []int8{shareReject}
		p.AcknowledgementBatches = append(p.AcknowledgementBatches, b)
	}, says{0, 1, 1, []int8{shareAccept}})
	a.acknowledge(0, says{0, 0, 3, []int8{shareAccept}})
}
