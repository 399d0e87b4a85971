package kafka

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tube-mq/tube/internal/broker"
	"github.com/tube-mq/tube/internal/record"
)

// kmsgOf is the same response, for kmsg to encode.
func kmsgOf(r *fetchResponse) *kmsg.FetchResponse {
	k := r.FetchResponse
	for _, t := range r.topics {
		kt := kmsg.NewFetchResponseTopic()
		kt.Topic, kt.TopicID = t.name, t.id
		for _, p := range t.partitions {
			kp := kmsg.NewFetchResponseTopicPartition()
			kp.Partition, kp.ErrorCode = int32(p.number), p.code
			kp.HighWatermark, kp.LastStableOffset, kp.LogStartOffset = int64(p.bounds.HighWatermark), int64(p.bounds.LastStable), int64(p.bounds.LogStart)
			kp.DivergingEpoch.Epoch, kp.DivergingEpoch.EndOffset = int32(p.divergingEpoch), int64(p.divergingEnd)
			kp.CurrentLeader.LeaderID, kp.CurrentLeader.LeaderEpoch = int32(p.leader), int32(p.leaderEpoch)
			if p.committed {
				kp.AbortedTransactions = []kmsg.FetchResponseTopicPartitionAbortedTransaction{}
			}
			for _, a := range p.aborted {
				ka := kmsg.NewFetchResponseTopicPartitionAbortedTransaction()
				ka.ProducerID, ka.FirstOffset = int64(a.ProducerID), int64(a.FirstOffset)
				kp.AbortedTransactions = append(kp.AbortedTransactions, ka)
			}
			kp.PreferredReadReplica, kp.RecordBatches = int32(p.preferred), []byte{}
			for _, b := range p.parts {
				kp.RecordBatches = append(kp.RecordBatches, b...)
			}
			kt.Partitions = append(kt.Partitions, kp)
		}
		k.Topics = append(k.Topics, kt)
	}
	return &k
}

func randomFetchResponse(r *rand.Rand, version int16) *fetchResponse {
	f := &fetchResponse{}
	f.Version, f.ErrorCode, f.SessionID = version, int16(r.IntN(3)), r.Int32()
	for range r.IntN(4) {
		t := fetchedTopic{name: string(bytes.Repeat([]byte("t"), r.IntN(200))), id: record.NewTopicID()}
		for range r.IntN(5) {
			p := &fetchedPartition{
				number: record.Partition(r.IntN(1000)), code: int16(r.IntN(100)),
				bounds:         broker.Bounds{HighWatermark: record.Offset(r.Int64()), LastStable: record.Offset(r.Int64()), LogStart: record.Offset(r.Int64())},
				divergingEpoch: -1, divergingEnd: -1, leader: -1, leaderEpoch: -1, preferred: -1, committed: r.IntN(2) == 0,
			}
			if r.IntN(3) == 0 {
				p.divergingEpoch, p.divergingEnd = 3, 99
			}
			if r.IntN(3) == 0 {
				p.leader, p.leaderEpoch = 2, 7
			}
			if version >= 11 && r.IntN(3) == 0 {
				p.preferred = 4
			}
			for range r.IntN(3) {
				p.parts = append(p.parts, bytes.Repeat([]byte{byte(r.Int())}, 1+r.IntN(300)))
				p.sizeBytes += len(p.parts[len(p.parts)-1])
			}
			if p.committed {
				for range r.IntN(3) {
					p.aborted = append(p.aborted, broker.AbortedTransaction{ProducerID: 4, FirstOffset: 5})
				}
			}
			t.partitions = append(t.partitions, p)
		}
		f.topics = append(f.topics, t)
	}
	if version >= 16 {
		for range r.IntN(3) {
			b := kmsg.NewFetchResponseBroker()
			b.NodeID, b.Host, b.Port = r.Int32(), string(bytes.Repeat([]byte("h"), r.IntN(200))), 9092
			if r.IntN(2) == 0 {
				rack := string(bytes.Repeat([]byte("r"), r.IntN(200)))
				b.Rack = &rack
			}
			f.Brokers = append(f.Brokers, b)
		}
	}
	return f
}

func TestFetchResponseHasKmsgsBytes(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for version := int16(4); version <= 18; version++ {
		for range 200 {
			f := randomFetchResponse(r, version)
			got, want := f.AppendTo(nil), kmsgOf(f).AppendTo(nil)
			if !bytes.Equal(got, want) {
				t.Fatalf("v%d:\n got %x\nwant %x", version, got, want)
			}
			if _, size := f.chunks(); size != len(want) {
				t.Fatalf("v%d: says %d bytes, has %d", version, size, len(want))
			}
		}
	}
}

func TestFetchResponseDoesNotCopyRecords(t *testing.T) {
	part := []byte("records")
	f := &fetchResponse{topics: []fetchedTopic{{partitions: []*fetchedPartition{{parts: [][]byte{part}, sizeBytes: len(part)}}}}}
	f.Version = 12
	chunks, _ := f.chunks()
	for _, c := range chunks {
		if len(c) == len(part) && &c[0] == &part[0] {
			return
		}
	}
	t.Fatal("the records are not among the chunks")
}
