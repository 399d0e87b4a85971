package broker

import (
	"context"
	"fmt"
	"strconv"

	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/queue"
	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/replica"
)

// QueueSend stores messages in this partition, in order, in as few batches as
// max.message.bytes allows. Each is answered, once it is committed. A message whose
// id is known (topic setting tube.dedupe.window) is answered with the first one's
// position.
//
// Errors, in Sent.Err: those of Produce; queue.ErrDelayTooLong; queue.ErrTooManyDelayed.
func (p *Partition) QueueSend(ctx context.Context, list []queue.Outgoing) []queue.Sent {
	s := p.sending(list)
	var batches []*sendBatch
	for b := range s.batches {
		answer := make(chan sendAnswer, 1)
		b.answer, b.answered = answer, func(r sendAnswer) { answer <- r }
		batches = append(batches, b)
		s.propose(b)
	}
	for _, b := range batches {
		s.settle(ctx, b)
	}
	return s.done()
}

func (p *Partition) sending(list []queue.Outgoing) *sending {
	s := &sending{p: p, sent: make([]queue.Sent, len(list))}
	s.now, s.clock = p.broker.clock().UnixMilli(), p.broker.queues.nowMillis()
	s.prepare(list)
	return s
}

// batches cuts what is to be stored into batches.
func (s *sending) batches(yield func(*sendBatch) bool) {
	for rest := s.pending; len(rest) > 0; {
		b := s.cut(rest)
		rest = rest[len(b.of):]
		if !yield(b) {
			return
		}
	}
}

// done answers repeats within the call, as the first of them were, and is the answer.
func (s *sending) done() []queue.Sent {
	for i, first := range s.same {
		s.sent[i].Offset, s.sent[i].Err, s.sent[i].Duplicate = s.sent[first].Offset, s.sent[first].Err, s.sent[first].Err == nil
	}
	return s.sent
}

// sending is one call's work.
type sending struct {
	p          *Partition
	now, clock int64
	window     int64 // ms: how long the ids of this call are remembered
	after      int64 // ms: and from when all groups are done
	sent       []queue.Sent
	records    []record.Record // of all messages
	due        []int64
	hash       []queue.MessageHash
	pending    []int       // messages to be stored
	promised   bool        // see QueueMessageBytes
	same       map[int]int // repeats within the call: of which message
}

// prepare makes records of the messages and answers those that cannot be stored.
func (s *sending) prepare(list []queue.Outgoing) {
	s.records = make([]record.Record, len(list))
	s.due = make([]int64, len(list))
	s.hash = make([]queue.MessageHash, len(list))
	first := map[queue.MessageHash]int{}
	topic := s.p.config.Load().DedupeWindow
	full, refused := false, s.p.broker.delays.refusal()
	for i := range list {
		m := &list[i]
		s.promised = s.promised || m.OnceID != ""
		s.sent[i] = queue.Sent{Partition: s.p.id.Partition, Offset: -1, ID: m.ID}
		due := m.DeliverAtMillis
		if due == 0 && m.Delay > 0 {
			due = s.clock + m.Delay.Milliseconds()
		}
		if due > s.clock {
			s.due[i] = due
			full = full || s.p.delayedCount()+i >= queue.MaxDelayed
		}
		switch {
		case due > s.clock+queue.MaxDelay.Milliseconds():
			s.sent[i].Err = fmt.Errorf("%w: %d ms, the limit is %s", queue.ErrDelayTooLong, due-s.clock, queue.MaxDelay)
			continue
		case due > s.clock && full:
			s.sent[i].Err = fmt.Errorf("%w: %d wait in partition %d", queue.ErrTooManyDelayed, queue.MaxDelayed, s.p.id.Partition)
			continue
		}
		if due > s.clock && refused != nil {
			s.sent[i].Err = refused
			continue
		}
		if id, window := m.DedupeID(topic); id != "" {
			s.window = max(s.window, window.Milliseconds())
			s.after = s.p.broker.afterMillis(topic.Milliseconds())
			s.hash[i] = queue.HashID(id)
			if k, ok := first[s.hash[i]]; ok {
				if s.same == nil {
					s.same = map[int]int{}
				}
				s.same[i] = k
				continue
			}
			first[s.hash[i]] = i
		}
		s.records[i] = s.record(m, s.due[i])
		s.pending = append(s.pending, i)
	}
}

// QueueMessageBytes is how large a batch of this message alone is: what the topic's
// max.message.bytes is about. Who promises that a message will be sent (OnceID) looks at
// it before; then it is sent, also if the setting is changed meanwhile.
func QueueMessageBytes(m *queue.Outgoing) (int, error) {
	r := (&sending{}).record(m, m.DeliverAtMillis)
	buf, err := record.EncodeBuffer([]record.Record{r})
	if err != nil {
		return 0, err
	}
	defer buf.Release()
	return len(buf.B), nil
}

func (p *Partition) delayedCount() int {
	p.machine.mu.Lock()
	defer p.machine.mu.Unlock()
	return p.machine.queues.DelayedCount()
}

func (s *sending) record(m *queue.Outgoing, due int64) record.Record {
	r := record.Record{Timestamp: s.now, Key: m.Key, Value: m.Value}
	switch {
	case m.KeyNull || m.Key == nil:
		r.Key = nil
	}
	if r.Value == nil {
		r.Value = []byte{}
	}
	n := len(m.Headers)
	if m.ID != "" {
		n++
	}
	if due > 0 {
		n++
	}
	if n == 0 {
		return r
	}
	r.Headers = make([]record.RecordHeader, 0, n)
	for _, h := range m.Headers {
		if h.Key != queue.HeaderMessageID && h.Key != queue.HeaderDeliverAt {
			r.Headers = append(r.Headers, record.RecordHeader{Key: h.Key, Value: h.Value})
		}
	}
	if m.ID != "" {
		r.Headers = append(r.Headers, record.RecordHeader{Key: queue.HeaderMessageID, Value: []byte(m.ID)})
	}
	if due > 0 {
		r.Headers = append(r.Headers, record.RecordHeader{Key: queue.HeaderDeliverAt, Value: strconv.AppendInt(nil, due, 10)})
	}
	return r
}

// sendBatch is some of the messages, as one entry.
type sendBatch struct {
	of       []int // which messages, by their place in the call
	answered func(sendAnswer)
	answer   chan sendAnswer // of who waits for it
}

type sendAnswer struct {
	produced
	err error
}

// recordOverhead is more than a record takes besides its contents.
const recordOverhead = 32

func recordBytes(r *record.Record) int {
	n := recordOverhead + len(r.Key) + len(r.Value)
	for i := range r.Headers {
		n += 10 + len(r.Headers[i].Key) + len(r.Headers[i].Value)
	}
	return n
}

// cut takes as many messages as fit into a batch.
func (s *sending) cut(rest []int) *sendBatch {
	limit := s.p.config.Load().MaxMessageBytes
	size, n := record.HeaderBytes, 0
	for n < len(rest) && n < maxReceive {
		size += recordBytes(&s.records[rest[n]])
		if n > 0 && size > limit {
			break
		}
		n++
	}
	return &sendBatch{of: rest[:n:n]}
}

// propose asks for a batch to be stored; what cannot be is answered in the batch.
func (s *sending) propose(b *sendBatch) {
	p := s.p
	buf, a, err := s.encode(b)
	if err == nil {
		err = s.admit(buf.B)
	}
	if err != nil {
		buf.Release()
		b.answered(sendAnswer{err: err})
		return
	}
	var proposal replica.Proposal
	if a.Empty() {
		h, _ := record.ParseHeader(buf.B) // just made
		putCommand(buf.B, commandProduce, s.now)
		proposal = replica.Proposal{Data: buf.B, Buf: buf, Sum: h.CRC, SumFrom: record.ChecksummedFrom}
	} else {
		proposal = replica.Proposal{Data: annexed(buf.B, a, s.now)}
		buf.Release()
	}
	proposal.Done = func(result any, err error) {
		if err != nil {
			b.answered(sendAnswer{err: proposalError(err)})
			return
		}
		b.answered(sendAnswer{produced: result.(produced)})
	}
	p.group.Propose(proposal)
}

// admit decides whether a batch may be proposed.
func (s *sending) admit(batch []byte) error {
	p := s.p
	if err := p.serving(-1); err != nil {
		return err
	}
	if err := p.broker.admit(len(batch)); err != nil {
		return err
	}
	if limit := p.config.Load().MaxMessageBytes; len(batch) > limit && !s.promised {
		return fmt.Errorf("%w: %d bytes, the topic's max.message.bytes is %d", record.ErrTooLarge, len(batch), limit)
	}
	return nil
}

// encode makes a batch and its annexe. The buffer is the caller's to release.
func (s *sending) encode(b *sendBatch) (*record.Buffer, *queue.Annexe, error) {
	a := &queue.Annexe{ClockMillis: s.clock, WindowMillis: s.window}
	a.AfterMillis = s.after
	records := make([]record.Record, len(b.of))
	for k, i := range b.of {
		records[k] = s.records[i]
		records[k].Offset = record.Offset(k)
		if s.due[i] > 0 {
			a.Delays = append(a.Delays, queue.AnnexeDelay{Delta: int32(k), DueMillis: s.due[i]})
		}
		if s.hash[i] != (queue.MessageHash{}) {
			a.IDs = append(a.IDs, queue.AnnexeID{Delta: int32(k), Hash: s.hash[i]})
		}
	}
	buf, err := record.EncodeBuffer(records)
	if err == nil && s.p.config.Load().LogAppendTime {
		record.StampLogAppendTime(buf.B, s.now)
	}
	return buf, a, err
}

// settle waits for what becomes of a batch.
func (s *sending) settle(ctx context.Context, b *sendBatch) {
	for more := len(b.of) > 0; more; {
		var r sendAnswer
		select {
		case r = <-b.answer:
		case <-ctx.Done():
			r.err = fmt.Errorf("%w: %w", ErrUnknownOutcome, ctx.Err())
		}
		if more = s.stored(b, r); more {
			s.propose(b)
		}
	}
}

// stored answers a batch's messages. If some are repeats, nothing was stored: more
// says that the rest, which is the batch now, is to be sent again.
func (s *sending) stored(b *sendBatch, r sendAnswer) (more bool) {
	if r.err == nil {
		r.err = r.produced.err
	}
	switch {
	case r.err != nil:
		for _, i := range b.of {
			s.sent[i].Err = r.err
		}
		return false
	case len(r.repeats) == 0:
		for k, i := range b.of {
			s.sent[i].Offset = r.base + record.Offset(k)
		}
		return false
	}
	b.of = s.without(b, r.repeats)
	return len(b.of) > 0
}

// without answers a batch's repeats and is the others.
func (s *sending) without(b *sendBatch, repeats []queue.Repeat) (rest []int) {
	repeat := map[int]bool{}
	for _, r := range repeats {
		i := b.of[r.Delta]
		s.sent[i].Offset, s.sent[i].Duplicate = r.First, true
		repeat[i] = true
	}
	for _, i := range b.of {
		if !repeat[i] {
			rest = append(rest, i)
		}
	}
	return rest
}

// afterMillis is for how long ids are remembered from when all groups are done with their
// messages, given the topic's window: 0 while a node of the cluster would not understand.
func (b *Broker) afterMillis(windowMillis int64) int64 {
	if b.cfg.Level() < meta.LevelIDWindows {
		return 0
	}
	return windowMillis
}

// annexeOf is what a batch of a Kafka producer brings along: the message ids in its
// headers, if the topic looks for repeats; nil: nothing.
func (p *Partition) annexeOf(batch []byte) *queue.Annexe {
	window := p.config.Load().DedupeWindow.Milliseconds()
	if window <= 0 {
		return nil
	}
	a := &queue.Annexe{ClockMillis: p.broker.queues.nowMillis(), WindowMillis: window, Keep: true}
	a.AfterMillis = p.broker.afterMillis(window)
	seen := map[queue.MessageHash]bool{}
	base := record.Offset(0)
	first := true
	_ = record.Each(batch, p.broker.limits, func(r record.Record) bool { // checked before
		if first {
			base, first = r.Offset, false
		}
		for _, h := range r.Headers {
			if h.Key != queue.HeaderMessageID || len(h.Value) == 0 {
				continue
			}
			if hash := queue.HashID(string(h.Value)); !seen[hash] {
				seen[hash] = true
				a.IDs = append(a.IDs, queue.AnnexeID{Delta: int32(r.Offset - base), Hash: hash})
			}
			break
		}
		return true
	})
	if a.Empty() {
		return nil
	}
	return a
}
