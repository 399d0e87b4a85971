package peer

import "sync"

// frameOverhead is what a frame costs beside its body, so that a queue of empty
// frames has an end too.
const frameOverhead = 128

// queue holds the frames that wait for one peer.
type queue struct {
	limitBytes int64
	ready      chan struct{} // holds one token while there may be something to take

	mu      sync.Mutex
	waiting []Frame
	// sizeBytes is the cost of the frames that wait and of those that were taken
	// and not given back by written. Invariant: 0 when there are none.
	sizeBytes int64
	// refusing is set while the peer is out of reach: nothing waits.
	refusing bool
	closed   bool

	droppedFrames, droppedBytes int64
}

func newQueue(limitBytes int64) *queue {
	return &queue{limitBytes: limitBytes, ready: make(chan struct{}, 1)}
}

func cost(f Frame) int64 { return int64(f.bodyBytes()) + frameOverhead }

// put adds a frame or drops it. A frame larger than the limit passes when the
// queue is empty.
func (q *queue) put(f Frame) bool {
	n := cost(f)
	q.mu.Lock()
	if q.closed || q.refusing || q.sizeBytes > 0 && q.sizeBytes+n > q.limitBytes {
		q.mu.Unlock()
		q.drop(f)
		return false
	}
	q.waiting = append(q.waiting, f)
	q.sizeBytes += n
	first := len(q.waiting) == 1
	q.mu.Unlock()
	if first {
		select {
		case q.ready <- struct{}{}:
		default:
		}
	}
	return true
}

// drop releases a frame that is not in the queue, or no longer.
func (q *queue) drop(f Frame) {
	q.mu.Lock()
	q.droppedFrames++
	q.droppedBytes += int64(f.bodyBytes())
	q.mu.Unlock()
	f.release()
}

// take returns all that waits. They still count until written is told of them.
// The slice of the last call is given back to be used again.
func (q *queue) take(last []Frame) []Frame {
	clear(last)
	q.mu.Lock()
	defer q.mu.Unlock()
	taken := q.waiting
	q.waiting = last[:0]
	return taken
}

// written says that a taken frame is done with.
func (q *queue) written(f Frame) {
	n := cost(f)
	f.release()
	q.mu.Lock()
	q.sizeBytes -= n
	q.mu.Unlock()
}

// lost says that taken frames did not, or not surely, reach the peer.
func (q *queue) lost(frames []Frame) {
	for _, f := range frames {
		n := cost(f)
		q.drop(f)
		q.mu.Lock()
		q.sizeBytes -= n
		q.mu.Unlock()
	}
}

// refuse drops what waits and what comes, until accept.
func (q *queue) refuse() {
	q.mu.Lock()
	q.refusing = true
	q.mu.Unlock()
	q.lost(q.take(nil))
}

func (q *queue) accept() {
	q.mu.Lock()
	q.refusing = false
	q.mu.Unlock()
}

// close lets nothing more in; what waits can still be taken.
func (q *queue) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
}
