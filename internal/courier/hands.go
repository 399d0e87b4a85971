package courier

import (
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tube-mq/tube/internal/queue"
	"github.com/tube-mq/tube/internal/record"
)

// hands are what sessions hold of groups at which nodes, as the nodes told last. It is
// for messages that are to be alone in a consumer's hand: their node knows of its own
// leases only. What is not known is taken for nothing. Safe for use by many goroutines.
type hands struct {
	mu        sync.Mutex
	by        map[string]*sessionHands
	maxHeld   int
	forgetAll time.Duration
}

type sessionHands struct {
	at     time.Time // of the last word
	groups map[queue.GroupID]map[record.NodeID]queue.Holding
}

// maxHands sessions are remembered, those not heard of for forgetHands only if there is room.
const (
	maxHands    = 20_000
	forgetHands = 10 * time.Minute
)

func newHands() *hands {
	return &hands{by: map[string]*sessionHands{}, maxHeld: maxHands, forgetAll: forgetHands}
}

// told notes what a node told of a session.
func (h *hands) told(g queue.GroupID, session string, node record.NodeID, x queue.Holding) {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.by[session]
	if x == (queue.Holding{}) {
		if s == nil {
			return
		}
		if delete(s.groups[g], node); len(s.groups[g]) == 0 {
			delete(s.groups, g)
		}
		if len(s.groups) == 0 {
			delete(h.by, session)
		}
		return
	}
	if s == nil {
		if s = h.add(session); s == nil {
			return
		}
	}
	if s.groups[g] == nil {
		s.groups[g] = map[record.NodeID]queue.Holding{}
	}
	s.at, s.groups[g][node] = time.Now(), x
}

// add makes room for a session; nil: there is none.
func (h *hands) add(session string) *sessionHands {
	if len(h.by) >= h.maxHeld {
		for name, s := range h.by {
			if time.Since(s.at) > h.forgetAll {
				delete(h.by, name)
			}
		}
		if len(h.by) >= h.maxHeld {
			return nil
		}
	}
	s := &sessionHands{groups: map[queue.GroupID]map[record.NodeID]queue.Holding{}}
	h.by[session] = s
	return s
}

// gone forgets a session.
func (h *hands) gone(session string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.by, session)
}

// elsewhere is how many leases of a group a session holds from nodes other than one.
func (h *hands) elsewhere(g queue.GroupID, session string, node record.NodeID) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := 0
	if s := h.by[session]; s != nil {
		for id, x := range s.groups[g] {
			if id != node {
				n += x.Leases
			}
		}
	}
	return n
}

// bound is the node that alone may give a session anything: it has a message that is, or
// is to be, alone in the session's hand; −1: any may. Nodes that are not among ids, which lead
// nothing any more, are forgotten.
func (h *hands) bound(g queue.GroupID, session string, ids []record.NodeID) record.NodeID {
	h.mu.Lock()
	defer h.mu.Unlock()
	s := h.by[session]
	if s == nil {
		return -1
	}
	waits := record.NodeID(-1)
	for _, id := range slices.Sorted(maps.Keys(s.groups[g])) {
		x := s.groups[g][id]
		switch {
		case !slices.Contains(ids, id):
			delete(s.groups[g], id)
		case x.Alone:
			return id
		case x.Emptied && waits < 0:
			waits = id
		}
	}
	return waits
}
