package courier

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/queue"
	"github.com/tube-mq/tube/internal/record"
)

// Send stores messages, each in the partition of its key. Without a key those of a
// call go to one partition together, another one for each call; in a topic that drops
// repeats, to the partition of their id, where a repeat is known.
func (c *Courier) Send(ctx context.Context, topic string, messages []queue.Outgoing) ([]queue.Sent, error) {
	t := c.cfg.Image().ByName[topic]
	if t == nil {
		return nil, fmt.Errorf("%w: %q", meta.ErrUnknownTopic, topic)
	}
	parts := map[record.Partition][]int{}
	anywhere := record.Partition(-1)
	for i := range messages {
		p := c.partition(t, &messages[i])
		if p < 0 {
			if anywhere < 0 {
				anywhere = c.anywhere(t)
			}
			p = anywhere
		}
		parts[p] = append(parts[p], i)
	}
	sent := make([]queue.Sent, len(messages))
	each(parts, func(p record.Partition, which []int) {
		part := messages
		if len(which) < len(messages) {
			part = make([]queue.Outgoing, len(which))
			for i, at := range which {
				part[i] = messages[at]
			}
		}
		got, err := c.SendTo(ctx, record.TopicPartition{Topic: t.ID, Partition: p}, part)
		for i, at := range which {
			if err != nil || i >= len(got) {
				sent[at] = queue.Sent{Partition: p, Offset: -1, ID: messages[at].ID, Err: err}
				if err == nil {
					sent[at].Err = queue.ErrOutcomeUnknown
				}
				continue
			}
			sent[at] = got[i]
		}
	})
	return sent, nil
}

// SendTo stores messages in one partition.
func (c *Courier) SendTo(ctx context.Context, tp record.TopicPartition, messages []queue.Outgoing) (sent []queue.Sent, err error) {
	err = c.ask(ctx, tp, func(ctx context.Context, n Node) (err error) {
		sent, err = n.Send(ctx, tp, messages)
		return err
	})
	return sent, err
}

// partition is where a message has to go; −1: anywhere.
func (c *Courier) partition(t *meta.Topic, m *queue.Outgoing) record.Partition {
	by := m.Key
	if m.KeyNull {
		if m.ID == "" || t.Config.DedupeWindow == 0 {
			return -1
		}
		by = []byte(m.ID)
	}
	return record.Partition(int(murmur2(by)&0x7fffffff) % len(t.Partitions))
}

// anywhere is a partition that has a leader, in turn.
func (c *Courier) anywhere(t *meta.Topic) record.Partition {
	n := len(t.Partitions)
	first := int(c.turn.Add(1) % uint64(n))
	for i := range n {
		p := record.Partition((first + i) % n)
		if c.cfg.Leader(record.TopicPartition{Topic: t.ID, Partition: p}) >= 0 {
			return p
		}
	}
	return record.Partition(first)
}

// murmur2 is the hash by which Kafka's clients choose a key's partition, so that a
// key is in the same one whichever way it came. (MurmurHash2 by A. Appleby, with
// Kafka's seed.)
func murmur2(b []byte) uint32 {
	const m = 0x5bd1e995
	h := uint32(0x9747b28c) ^ uint32(len(b))
	for ; len(b) >= 4; b = b[4:] {
		k := binary.LittleEndian.Uint32(b) * m
		h = h*m ^ (k^k>>24)*m
	}
	switch len(b) {
	case 3:
		h ^= uint32(b[2]) << 16
		fallthrough
	case 2:
		h ^= uint32(b[1]) << 8
		fallthrough
	case 1:
		h = (h ^ uint32(b[0])) * m
	}
	h = (h ^ h>>13) * m
	return h ^ h>>15
}
