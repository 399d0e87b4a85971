package group

import (
	"encoding/binary"
	"unicode/utf8"

	"github.com/tube-mq/tube/internal/record"
)

// subscribed is what a classic consumer says of itself in its protocol metadata:
//
//	version int16 | topics | user data
//	v1: owned partitions | v2: generation int32 | v3: rack
type subscribed struct {
	topics []string // sorted
	owned  []namedPartitions
	zone   string
}

// namedPartitions are partitions of a topic as the classic protocol names it.
type namedPartitions struct {
	topic      string
	partitions []record.Partition
}

// parseSubscription reads a consumer's metadata. ok is false if it is not of
// that form.
func parseSubscription(metadata []byte) (s subscribed, ok bool) {
	topics, ok := subscribedTopics(metadata)
	if !ok {
		return s, false
	}
	s.topics = sortedTopics(topics)
	r := wire{b: metadata}
	version := r.int16()
	for range r.count(2) {
		if !utf8.ValidString(r.text()) {
			return s, false
		}
	}
	r.bytes()
	if version >= 1 {
		s.owned = r.topics()
	}
	if version >= 2 {
		r.int32()
	}
	if version >= 3 {
		s.zone = r.text()
	}
	if r.bad { // what old or odd clients leave out says nothing
		s.owned, s.zone = nil, ""
	}
	return s, utf8.ValidString(s.zone)
}

// parseAssignment reads a member's assignment in the classic protocol:
//
//	version int16 | topics with their partitions | user data
func parseAssignment(b []byte) []namedPartitions {
	r := wire{b: b}
	r.int16()
	out := r.topics()
	if r.bad {
		return nil
	}
	return out
}

// encodeAssignment writes it.
func encodeAssignment(topics []namedPartitions) []byte {
	b := []byte{0, 0}
	b = binary.BigEndian.AppendUint32(b, uint32(len(topics)))
	for _, t := range topics {
		b = binary.BigEndian.AppendUint16(b, uint16(len(t.topic)))
		b = append(b, t.topic...)
		b = binary.BigEndian.AppendUint32(b, uint32(len(t.partitions)))
		for _, p := range t.partitions {
			b = binary.BigEndian.AppendUint32(b, uint32(p))
		}
	}
	return binary.BigEndian.AppendUint32(b, 1<<32-1) // no user data
}

// wire reads the protocol's primitives. bad: there was less than announced.
type wire struct {
	b   []byte
	bad bool
}

func (w *wire) take(n int) []byte {
	if n < 0 || n > len(w.b) {
		w.bad, w.b = true, nil
		return nil
	}
	out := w.b[:n]
	w.b = w.b[n:]
	return out
}

func (w *wire) int16() int16 {
	if b := w.take(2); b != nil {
		return int16(binary.BigEndian.Uint16(b))
	}
	return 0
}

func (w *wire) int32() int32 {
	if b := w.take(4); b != nil {
		return int32(binary.BigEndian.Uint32(b))
	}
	return 0
}

// count reads an array's length; each element takes at least size bytes.
func (w *wire) count(size int) int {
	n := int(w.int32())
	if n > len(w.b)/size {
		w.bad, w.b = true, nil
		return 0
	}
	return max(0, n)
}

func (w *wire) text() string { return string(w.take(max(0, int(w.int16())))) }

func (w *wire) bytes() []byte { return w.take(max(0, int(w.int32()))) }

func (w *wire) topics() []namedPartitions {
	var out []namedPartitions
	for range w.count(6) {
		n := namedPartitions{topic: w.text()}
		for range w.count(4) {
			n.partitions = append(n.partitions, record.Partition(w.int32()))
		}
		out = append(out, n)
	}
	return out
}
