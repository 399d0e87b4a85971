package kafka

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tube-mq/tube/internal/broker"
	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/record"
)

// Produce is advertised from v0, as librdkafka sends uncompressed in silence to
// a broker that begins later (KAFKA-18659), but is answered from here on.
const minProduceVersion = 3

// produce hands each batch to its partition as it came and answers when the last
// one is decided. acks=1 is treated as all; acks=0 gets no answer, and like in
// Kafka an error then closes the connection, as the client would not know else.
func (d *Door) produce(_ *client, r kmsg.Request, frame *record.Buffer, answer func(outcome)) {
	req := r.(*kmsg.ProduceRequest)
	p := &producing{door: d, req: req, resp: req.ResponseKind().(*kmsg.ProduceResponse), answer: answer}
	p.layOut()
	// One more than there are parts, so that nobody answers before all began.
	p.left.Store(1)
	if code := p.refusal(); code != nil {
		p.failAll(code)
	} else {
		p.start(frame)
	}
	p.over()
}

// producing is a produce request under way. Each part writes to its own place in
// resp, which nobody reads before left is 0.
type producing struct {
	door   *Door
	req    *kmsg.ProduceRequest
	resp   *kmsg.ProduceResponse
	answer func(outcome)
	left   atomic.Int32
}

// layOut makes a place in the response for every part, in the request's order.
func (p *producing) layOut() {
	p.resp.Topics = make([]kmsg.ProduceResponseTopic, len(p.req.Topics))
	for i := range p.req.Topics {
		rt, t := &p.req.Topics[i], &p.resp.Topics[i]
		t.Default()
		t.Topic, t.TopicID = rt.Topic, rt.TopicID
		t.Partitions = make([]kmsg.ProduceResponseTopicPartition, len(rt.Partitions))
		for j := range rt.Partitions {
			t.Partitions[j].Default()
			t.Partitions[j].Partition = rt.Partitions[j].Partition
			t.Partitions[j].BaseOffset, t.Partitions[j].LogAppendTime, t.Partitions[j].LogStartOffset = -1, -1, -1
		}
	}
}

// refusal is the code for a request that is wrong as a whole, nil for none.
func (p *producing) refusal() *kerr.Error {
	switch {
	case p.req.Version < minProduceVersion:
		return kerr.UnsupportedVersion
	case p.req.Acks < -1 || p.req.Acks > 1:
		return kerr.InvalidRequiredAcks
	}
	return nil
}

func (p *producing) failAll(code *kerr.Error) {
	for i := range p.resp.Topics {
		for j := range p.resp.Topics[i].Partitions {
			part := &p.resp.Topics[i].Partitions[j]
			part.ErrorCode, part.ErrorMessage = code.Code, &code.Description
		}
	}
}

func (p *producing) start(frame *record.Buffer) {
	im, byID := p.door.image(), p.req.Version >= 13
	for i := range p.req.Topics {
		t := &p.req.Topics[i]
		topic, unknown := groupTopic(im, byID, t.TopicID, t.Topic)
		for j := range t.Partitions {
			part := &p.resp.Topics[i].Partitions[j]
			if part.ErrorCode = checkPartition(topic, unknown, t.Partitions[j].Partition); part.ErrorCode == 0 {
				p.startPart(topic, part, t.Partitions[j].Records, frame)
			}
		}
	}
}

// startPart proposes one batch. done may be called at once or later, from the
// partition's loop.
func (p *producing) startPart(t *meta.Topic, part *kmsg.ProduceResponseTopicPartition, batch []byte, frame *record.Buffer) {
	err := oneBatch(batch)
	var partition Partition
	if err == nil {
		partition, err = p.door.partitions.Partition(t.ID, record.Partition(part.Partition))
	}
	if err != nil {
		p.fail(t.ID, part, err)
		return
	}
	records := int(int32(binary.BigEndian.Uint32(batch[countAt:])))
	p.left.Add(1)
	partition.Produce(broker.ProduceRequest{Batch: batch, Buf: frame, LeaderEpoch: -1}, func(r broker.ProduceResult) {
		if r.Err != nil {
			p.fail(t.ID, part, r.Err)
		} else {
			part.BaseOffset, part.LogAppendTime, part.LogStartOffset = int64(r.BaseOffset), r.LogAppendTimeMillis, int64(r.LogStart)
			p.door.cfg.Calls.Produced(records, len(batch))
		}
		p.over()
	})
}

// countAt is where a batch has its number of records.
const countAt = 57

// oneBatch checks that there is something that could be one batch; the partition
// checks the batch itself.
func oneBatch(b []byte) error {
	if len(b) < record.HeaderBytes {
		return fmt.Errorf("%w: %d bytes of records, a batch has at least %d", record.ErrInvalid, len(b), record.HeaderBytes)
	}
	if h, err := record.ParseHeader(b); err == nil && h.SizeBytes() < len(b) {
		return fmt.Errorf("%w: more than one batch for a partition in a request", record.ErrInvalid)
	}
	return nil
}

func (p *producing) fail(topic record.TopicID, part *kmsg.ProduceResponseTopicPartition, err error) {
	part.ErrorCode, part.ErrorMessage = errorCode(err), errorMessage(err)
	if !known(err) {
		p.door.cfg.Logger.Error("a batch could not be stored", "topic", topic, "partition", part.Partition, "err", err)
	}
	if part.ErrorCode == kerr.NotLeaderForPartition.Code && p.req.Version >= 10 {
		leader, epoch := p.door.partitions.Leader(topic, record.Partition(part.Partition))
		part.CurrentLeader.LeaderID, part.CurrentLeader.LeaderEpoch = int32(leader), int32(epoch)
	}
}

// over counts a part that is decided and answers after the last.
func (p *producing) over() {
	if p.left.Add(-1) != 0 {
		return
	}
	failed := false
	leaders := map[int32]bool{}
	for i := range p.resp.Topics {
		for j := range p.resp.Topics[i].Partitions {
			part := &p.resp.Topics[i].Partitions[j]
			if part.ErrorCode == 0 {
				continue
			}
			failed = true
			p.door.cfg.Calls.Error("Produce", errorName(part.ErrorCode))
			if id := part.CurrentLeader.LeaderID; id >= 0 {
				leaders[id] = true
			}
		}
	}
	if p.req.Acks == 0 {
		p.answer(outcome{hangUp: failed})
		return
	}
	for _, e := range p.door.endpoints(leaders) {
		b := kmsg.NewProduceResponseBroker()
		b.NodeID, b.Host, b.Port, b.Rack = e.node, e.host, e.port, e.rack
		p.resp.Brokers = append(p.resp.Brokers, b)
	}
	p.answer(outcome{response: p.resp})
}
