package kafka

import (
	"encoding/binary"
	"math/bits"
	"net"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tube-mq/tube/internal/broker"
	"github.com/tube-mq/tube/internal/record"
)

// fetchResponse is a Fetch response whose records stay where they are: kmsg
// would copy them twice, once into RecordBatches and once into the frame.
// A test compares its bytes with kmsg's.
type fetchResponse struct {
	kmsg.FetchResponse // version, error, session id, endpoints; no topics
	topics             []fetchedTopic
	// given is called once when the bytes are no longer needed.
	given func()
	// goesOn: the next request will most likely be for what follows.
	goesOn bool
}

type fetchedTopic struct {
	name       string         // v4–12
	id         record.TopicID // v13+
	partitions []*fetchedPartition
}

// fetchedPartition is one partition's part of a response.
type fetchedPartition struct {
	number    record.Partition
	code      int16
	bounds    broker.Bounds
	aborted   []broker.AbortedTransaction
	committed bool // read_committed: aborted is a list even when empty
	parts     [][]byte
	sizeBytes int
	release   func()
	ahead     func() // reads on; may be nil
	// divergingEpoch and divergingEnd: −1, −1 unless the client's log parted from ours.
	divergingEpoch record.Epoch
	divergingEnd   record.Offset
	leader         record.NodeID // −1 unless the client should look elsewhere
	leaderEpoch    record.Epoch
	// preferred is the node to read from instead, v11+; −1: this one.
	preferred record.NodeID
	followed  bool // a follower answers
}

func (r *fetchResponse) release() {
	for _, t := range r.topics {
		for _, p := range t.partitions {
			p.drop()
		}
	}
	if r.given != nil {
		r.given()
	}
}

// readAhead has what follows read while the client is busy with what it got, so that
// its next request finds it in memory.
func (r *fetchResponse) readAhead() {
	if !r.goesOn {
		return
	}
	for _, t := range r.topics {
		for _, p := range t.partitions {
			if p.ahead != nil {
				p.ahead()
			}
		}
	}
}

// drop lets go of the records.
func (p *fetchedPartition) drop() {
	if p.release != nil {
		p.release()
	}
	p.release, p.parts, p.sizeBytes = nil, nil, 0
}

// AppendTo encodes the response into one piece.
func (r *fetchResponse) AppendTo(dst []byte) []byte {
	body, _ := r.chunks()
	for _, c := range body {
		dst = append(dst, c...)
	}
	return dst
}

// chunks encodes the response around the records.
func (r *fetchResponse) chunks() (net.Buffers, int) {
	e := fetchEncoder{version: r.Version, flexible: r.IsFlexible()}
	e.b = make([]byte, 0, 64+96*e.count(r.topics))
	e.int32(r.ThrottleMillis)
	if r.Version >= 7 {
		e.int16(r.ErrorCode)
		e.int32(r.SessionID)
	}
	e.arrayLen(len(r.topics))
	for i := range r.topics {
		e.topic(&r.topics[i])
	}
	e.trailer(r)
	return e.join()
}

// fetchEncoder writes what stands between records to b, and remembers where the
// records belong.
type fetchEncoder struct {
	version  int16
	flexible bool
	b        []byte
	cuts     []cut
	size     int // of the records
}

// cut says that parts stand before b[at].
type cut struct {
	at    int
	parts [][]byte
}

func (e *fetchEncoder) count(topics []fetchedTopic) int {
	n := len(topics)
	for i := range topics {
		n += len(topics[i].partitions)
	}
	return n
}

// join puts records and the rest together without copying.
func (e *fetchEncoder) join() (net.Buffers, int) {
	n := 1
	for _, c := range e.cuts {
		n += 1 + len(c.parts)
	}
	out := make(net.Buffers, 0, n)
	at := 0
	for _, c := range e.cuts {
		out = append(out, e.b[at:c.at])
		out = append(out, c.parts...)
		at = c.at
	}
	return append(out, e.b[at:]), len(e.b) + e.size
}

func (e *fetchEncoder) int16(v int16) { e.b = binary.BigEndian.AppendUint16(e.b, uint16(v)) }
func (e *fetchEncoder) int32(v int32) { e.b = binary.BigEndian.AppendUint32(e.b, uint32(v)) }
func (e *fetchEncoder) int64(v int64) { e.b = binary.BigEndian.AppendUint64(e.b, uint64(v)) }
func (e *fetchEncoder) uvarint(v int) { e.b = binary.AppendUvarint(e.b, uint64(v)) }

// arrayLen is also the length of bytes: compact ones count from 1.
func (e *fetchEncoder) arrayLen(n int) {
	if e.flexible {
		e.uvarint(n + 1)
	} else {
		e.int32(int32(n))
	}
}

func (e *fetchEncoder) nullArray() {
	if e.flexible {
		e.uvarint(0)
	} else {
		e.int32(-1)
	}
}

func (e *fetchEncoder) string(s string) {
	if e.flexible {
		e.uvarint(len(s) + 1)
	} else {
		e.int16(int16(len(s)))
	}
	e.b = append(e.b, s...)
}

func (e *fetchEncoder) noTags() {
	if e.flexible {
		e.b = append(e.b, 0)
	}
}

func (e *fetchEncoder) topic(t *fetchedTopic) {
	if e.version >= 13 {
		e.b = append(e.b, t.id[:]...)
	} else {
		e.string(t.name)
	}
	e.arrayLen(len(t.partitions))
	for _, p := range t.partitions {
		e.partition(p)
	}
	e.noTags()
}

func (e *fetchEncoder) partition(p *fetchedPartition) {
	e.int32(int32(p.number))
	e.int16(p.code)
	e.int64(int64(p.bounds.HighWatermark))
	e.int64(int64(p.bounds.LastStable))
	if e.version >= 5 {
		e.int64(int64(p.bounds.LogStart))
	}
	if p.committed {
		e.arrayLen(len(p.aborted))
		for _, a := range p.aborted {
			e.int64(int64(a.ProducerID))
			e.int64(int64(a.FirstOffset))
			e.noTags()
		}
	} else {
		e.nullArray()
	}
	if e.version >= 11 {
		e.int32(int32(p.preferred))
	}
	e.arrayLen(p.sizeBytes) // never null, as some clients want it
	if p.sizeBytes > 0 {
		e.cuts = append(e.cuts, cut{len(e.b), p.parts})
		e.size += p.sizeBytes
	}
	if e.flexible {
		e.partitionTags(p)
	}
}

func (e *fetchEncoder) partitionTags(p *fetchedPartition) {
	diverging := p.divergingEpoch != -1 || p.divergingEnd != -1
	led := p.leader != -1 || p.leaderEpoch != -1
	n := 0
	if diverging {
		n++
	}
	if led {
		n++
	}
	e.uvarint(n)
	if diverging {
		e.b = append(e.b, 0, 4+8+1)
		e.int32(int32(p.divergingEpoch))
		e.int64(int64(p.divergingEnd))
		e.noTags()
	}
	if led {
		e.b = append(e.b, 1, 4+4+1)
		e.int32(int32(p.leader))
		e.int32(int32(p.leaderEpoch))
		e.noTags()
	}
}

// trailer is the end of the response: tags, with the endpoints of leaders.
func (e *fetchEncoder) trailer(r *fetchResponse) {
	if !e.flexible {
		return
	}
	if len(r.Brokers) == 0 {
		e.noTags()
		return
	}
	size := uvarintBytes(len(r.Brokers) + 1)
	for i := range r.Brokers {
		b := &r.Brokers[i]
		size += 4 + uvarintBytes(len(b.Host)+1) + len(b.Host) + 4 + 1 + 1
		if b.Rack != nil {
			size += uvarintBytes(len(*b.Rack)+1) + len(*b.Rack) - 1
		}
	}
	e.b = append(e.b, 1, 0)
	e.uvarint(size)
	e.arrayLen(len(r.Brokers))
	for i := range r.Brokers {
		b := &r.Brokers[i]
		e.int32(b.NodeID)
		e.string(b.Host)
		e.int32(b.Port)
		if b.Rack == nil {
			e.uvarint(0)
		} else {
			e.string(*b.Rack)
		}
		e.noTags()
	}
}

func uvarintBytes(v int) int { return max(1, (bits.Len64(uint64(v))+6)/7) }
