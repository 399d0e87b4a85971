package queue

import "github.com/tube-mq/tube/internal/record"

// Hands is who holds how much of a group, over all its partitions that one node
// leads. The desks of the group share it.
type Hands struct {
	bySession map[string]*hand
	// byNumber: leases name hands by number. No number of a hand that is known is given again.
	byNumber map[uint32]*hand
	last     *hand // that was looked for by number
	given    uint32
	// draining is whose hand is to become empty for a suspect of a desk; nil: nobody's.
	draining *hand
	drainFor *Desk
	sweepAt  int
}

// hand is what one session holds.
type hand struct {
	member Member
	number uint32
	count  int // leases held
	// lone is the lease it got while it held nothing else, if it got none since.
	lone lone
	// exclusive: it holds a suspect, and gets nothing else until that is settled.
	exclusive  bool
	seenMillis int64
}

// lone names a lease; none: the zero value.
type lone struct {
	desk   *Desk
	offset record.Offset
}

// Sessions that hold nothing are forgotten after a while, or at once when there are too many.
const (
	forgetHandMillis = 60_000
	sweepHandsAt     = 1024
)

// NewHands is empty.
func NewHands() *Hands {
	return &Hands{bySession: map[string]*hand{}, byNumber: map[uint32]*hand{}, sweepAt: sweepHandsAt}
}

// of is the hand of a member's session.
func (h *Hands) of(m Member, nowMillis int64) *hand {
	x := h.bySession[m.Session]
	if x == nil {
		if len(h.bySession) >= h.sweepAt {
			h.sweep(nowMillis)
		}
		x = &hand{number: h.newNumber()}
		h.bySession[m.Session], h.byNumber[x.number] = x, x
	}
	x.member, x.seenMillis = m, nowMillis
	return x
}

// newNumber is none of those there are, nor 0: they begin anew after four billion.
func (h *Hands) newNumber() uint32 {
	for {
		h.given++
		if h.given != 0 && h.byNumber[h.given] == nil {
			return h.given
		}
	}
}

// numbered finds a hand; nil: it was forgotten, or the number is 0.
func (h *Hands) numbered(n uint32) *hand {
	if h.last == nil || h.last.number != n {
		x := h.byNumber[n]
		if x == nil {
			return nil
		}
		h.last = x
	}
	return h.last
}

func (h *Hands) sweep(nowMillis int64) {
	for s, x := range h.bySession {
		if x.count == 0 && nowMillis-x.seenMillis > forgetHandMillis {
			h.forget(s, x)
		}
	}
	h.sweepAt = max(sweepHandsAt, 2*len(h.bySession))
}

func (h *Hands) forget(session string, x *hand) {
	delete(h.bySession, session)
	delete(h.byNumber, x.number)
	if h.last == x {
		h.last = nil
	}
	if h.draining == x {
		h.draining = nil
	}
}

// Has says whether a session is known.
func (h *Hands) Has(session string) bool { return h.bySession[session] != nil }

// Holding is what a session holds here.
func (h *Hands) Holding(session string) Holding {
	x := h.bySession[session]
	if x == nil {
		return Holding{}
	}
	return Holding{Leases: x.count, Alone: x.exclusive, Emptied: h.draining == x && !h.drainFor.suspects.empty()}
}

// Gone forgets a session that holds nothing.
func (h *Hands) Gone(session string) {
	if x := h.bySession[session]; x != nil && x.count == 0 {
		h.forget(session, x)
	}
}

// othersThan says whether a member of another id was there in the last ten seconds.
func (h *Hands) othersThan(id string, nowMillis int64) bool {
	for _, x := range h.bySession {
		if x.member.ID != id && nowMillis-x.seenMillis < 10_000 {
			return true
		}
	}
	return false
}

// drain makes a hand the one that is to become empty for a suspect of d, unless
// another is.
func (h *Hands) drain(x *hand, d *Desk, nowMillis int64) bool {
	if y := h.draining; y != nil && (h.drainFor.suspects.empty() || y != x && (y.count == 0 || nowMillis-y.seenMillis > forgetHandMillis)) {
		h.draining = nil
	}
	if h.draining == nil {
		h.draining, h.drainFor = x, d
	}
	return h.draining == x
}

// drains says that a hand gets nothing from d, as it is becoming empty for a suspect.
func (h *Hands) drains(x *hand, heldElsewhere int, d *Desk) bool {
	if h.draining != x {
		return false
	}
	if h.drainFor.suspects.empty() || h.drainFor == d && x.count == 0 && heldElsewhere == 0 {
		h.draining = nil
		return false
	}
	return true
}
