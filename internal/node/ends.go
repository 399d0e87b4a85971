package node

import (
	"encoding/binary"
	"sync"

	"github.com/tube-mq/tube/internal/broker"
	"github.com/tube-mq/tube/internal/peer"
	"github.com/tube-mq/tube/internal/record"
)

// ends asks other nodes where the partitions that they lead end, for readers of the
// replicas here (broker/follow.go), and answers such questions. Question and answer
// are a frame each. Both may be lost: who asks waits no longer than he likes.
//
//	frameAskEnd   u64 question, u64 group, u64 term
//	frameTellEnd  u64 question, u8 leads, i64 log start, high watermark, last stable offset
//
// All integers are little endian. A question's number is of this process only, and
// an answer to one that an earlier process asked finds nobody who waits for it.
type ends struct {
	send func(to record.NodeID, f peer.Frame) bool
	// here tells the bounds of a partition that this node leads in a term.
	here func(record.Group, record.Term) (broker.Bounds, bool)

	mu      sync.Mutex
	next    uint64
	waiting map[uint64]func(broker.Bounds, bool) // by question; at most maxQuestions
}

const (
	askEndBytes  = 8 + 8 + 8
	tellEndBytes = 8 + 1 + 3*8
	// maxQuestions may wait for an answer; readers are sent to the leader beyond.
	maxQuestions = 100_000
)

func newEnds(firstQuestion uint64, send func(record.NodeID, peer.Frame) bool) *ends {
	return &ends{
		next: firstQuestion, send: send, waiting: map[uint64]func(broker.Bounds, bool){},
		here: func(record.Group, record.Term) (broker.Bounds, bool) { return broker.Bounds{}, false },
	}
}

// AskEnd implements broker.Asker.
func (e *ends) AskEnd(node record.NodeID, group record.Group, term record.Term, done func(broker.Bounds, bool)) (cancel func()) {
	e.mu.Lock()
	e.next++
	question := e.next
	room := len(e.waiting) < maxQuestions
	if room {
		e.waiting[question] = done
	}
	e.mu.Unlock()
	le := binary.LittleEndian
	b := le.AppendUint64(nil, question)
	b = le.AppendUint64(b, uint64(group))
	b = le.AppendUint64(b, uint64(term))
	if !room || !e.send(node, peer.Frame{Kind: frameAskEnd, Parts: [][]byte{b}}) {
		e.take(question)
		done(broker.Bounds{}, false)
	}
	return func() { e.take(question) }
}

// take finds who waits for a question's answer, who then waits no longer.
func (e *ends) take(question uint64) func(broker.Bounds, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	done := e.waiting[question]
	delete(e.waiting, question)
	return done
}

// asked answers another node's question.
func (e *ends) asked(from record.NodeID, body []byte) {
	if len(body) != askEndBytes {
		return
	}
	le := binary.LittleEndian
	b, leads := e.here(record.Group(le.Uint64(body[8:])), record.Term(le.Uint64(body[16:])))
	answer := append(make([]byte, 0, tellEndBytes), body[:8]...)
	if leads {
		answer = append(answer, 1)
	} else {
		answer = append(answer, 0)
	}
	for _, o := range []record.Offset{b.LogStart, b.HighWatermark, b.LastStable} {
		answer = le.AppendUint64(answer, uint64(o))
	}
	e.send(from, peer.Frame{Kind: frameTellEnd, Parts: [][]byte{answer}})
}

// told takes another node's answer.
func (e *ends) told(body []byte) {
	if len(body) != tellEndBytes {
		return
	}
	le := binary.LittleEndian
	offset := func(at int) record.Offset { return record.Offset(le.Uint64(body[at:])) }
	if done := e.take(le.Uint64(body)); done != nil {
		done(broker.Bounds{LogStart: offset(9), HighWatermark: offset(17), LastStable: offset(25)}, body[8] == 1)
	}
}
