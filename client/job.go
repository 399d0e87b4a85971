package tube

import (
	"context"
	"slices"
	"time"

	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
)

// state of a message in hand.
type state uint8

const (
	waiting state = iota // for a handler
	working              // in a handler
	told                 // handled; what becomes of it is to be told, or being told
)

// job is a message in hand of Run. Its fields are guarded by run.mu, but for m, which
// the handler has.
type job struct {
	r      *run
	m      *Message
	lease  string   // the present one; empty: the group confirms by itself
	leases []string // all that it ever had: the server may ask by any
	until  time.Time
	state  state
	began  time.Time
	cancel context.CancelCauseFunc // ends the handler's ctx
	byHand bool                    // the handler settled it itself

	verdict verdict   // with told
	sent    bool      // told on the present stream, and not answered
	notYet  time.Time // told again from then on
	forget  time.Time // not zero: it cannot be told any more, and is remembered until then
}

func (j *job) queue() *QueueGroup { return j.r.q }

func (j *job) leaseID() string {
	j.r.mu.Lock()
	defer j.r.mu.Unlock()
	return j.lease
}

func (j *job) settled() {
	j.r.mu.Lock()
	defer j.r.mu.Unlock()
	j.byHand = true
}

// take takes a message that came. One that is in hand already (its lease was lost with
// a stream or a node) is not handled a second time: the lease is what is new.
func (r *run) take(m *tubev1.QueueMessage, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.credit--
	got := newMessage(m)
	at := got.place()
	if j := r.held[at]; j != nil {
		if !j.isNewDelivery(got) {
			j.adopt(m.LeaseId, now.Add(r.lease))
			return
		}
		r.drop(j)
	}
	j := &job{r: r, m: got, lease: m.LeaseId, until: now.Add(r.lease)}
	got.hand = j
	r.held[at] = j
	if m.LeaseId != "" {
		j.leases = []string{m.LeaseId}
		r.leases[m.LeaseId] = j
	}
	if r.stopping && j.lease != "" {
		r.decide(j, verdict{kind: released})
		signal(r.wake)
		return
	}
	// What the group confirms by itself is handled, though it stops: it does not come
	// again.
	r.ready = append(r.ready, j)
	r.start()
}

// isNewDelivery tells whether a message that is in hand came again because what became
// of it has arrived, though the answer has not.
func (j *job) isNewDelivery(m *Message) bool {
	if j.byHand {
		return true
	}
	if j.state != told {
		return false
	}
	switch j.verdict.kind {
	case failed:
		return m.Attempt > j.m.Attempt
	case released:
		return j.sent
	}
	return false // done and dead do not come again
}

func (j *job) adopt(lease string, until time.Time) {
	j.lease, j.until = lease, until
	if lease != "" {
		j.leases = append(j.leases, lease)
		j.r.leases[lease] = j
	}
	if j.state == told && !j.sent {
		if j.notYet = (time.Time{}); !j.forget.IsZero() {
			j.forget = time.Time{}
			j.r.settle = append(j.r.settle, j)
		}
		signal(j.r.wake)
	}
}

// decide says what is to become of a job. The caller holds mu.
func (r *run) decide(j *job, v verdict) {
	j.state, j.verdict = told, v
	r.told++
	r.settle = append(r.settle, j)
}

// drop forgets a job. The caller holds mu.
func (r *run) drop(j *job) {
	if j.state == told {
		r.told--
		if !j.sent {
			if i := slices.Index(r.settle, j); i >= 0 {
				r.settle = slices.Delete(r.settle, i, i+1)
			}
		}
	}
	if r.held[j.m.place()] == j {
		delete(r.held, j.m.place())
	}
	for _, l := range j.leases {
		if r.leases[l] == j {
			delete(r.leases, l)
		}
	}
	j.leases = nil
}

// answer to an inquiry.
type answer struct {
	inquiry       uint64
	done, working []string
}

// maxAnswers wait to be sent; the server asks at most so many questions at a time.
const maxAnswers = 100

// asked answers an inquiry from what is known; what is not in hand is not named.
func (r *run) asked(q *tubev1.ConsumeInquiry) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.answers) >= maxAnswers {
		return
	}
	a := answer{inquiry: q.Inquiry}
	for _, l := range q.LeaseIds {
		j := r.leases[l]
		switch {
		case j == nil:
		case j.state != told:
			a.working = append(a.working, l)
		case j.verdict.kind == acked:
			a.done = append(a.done, l)
		}
	}
	r.answers = append(r.answers, a)
	signal(r.wake)
}
