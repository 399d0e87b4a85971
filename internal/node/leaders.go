package node

import (
	"context"
	"encoding/binary"
	"sync"
	"time"

	"github.com/tube-mq/tube/internal/peer"
	"github.com/tube-mq/tube/internal/pulse"
	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/replica"
)

// leaders is what this node knows of who leads which replica group. Groups elect
// by themselves, so nobody decides this: who leads tells all other nodes, at once
// when it changes and the whole of it now and then, as what is told may be lost.
// It is for routing only. Nothing depends on it: a node that is asked for a
// partition which it does not lead says so.
type leaders struct {
	self  record.NodeID
	alive func(record.NodeID) bool

	mu    sync.Mutex
	known map[record.Group]lead
	// fresh are groups led here that the others have not been told of.
	fresh map[record.Group]record.Term
	wake  chan struct{}
	// changed is closed and replaced whenever something is learned.
	changed chan struct{}
}

type lead struct {
	node record.NodeID
	term record.Term
	// ended: the node no longer leads, and it is not known who does.
	ended bool
}

func newLeaders(self record.NodeID, alive func(record.NodeID) bool) *leaders {
	return &leaders{
		self: self, alive: alive, known: map[record.Group]lead{}, fresh: map[record.Group]record.Term{},
		wake: make(chan struct{}, 1), changed: make(chan struct{}),
	}
}

// learnLocked takes the word that a node leads a group in a term.
func (l *leaders) learnLocked(g record.Group, node record.NodeID, term record.Term) {
	old := l.known[g]
	if old.term > term || old == (lead{node, term, false}) {
		return
	}
	l.known[g] = lead{node, term, false}
	close(l.changed)
	l.changed = make(chan struct{})
}

// observe takes what a replica of this node sees. node is who leads as it knows,
// −1 for nobody.
func (l *leaders) observe(g record.Group, s replica.Status, node record.NodeID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case s.Leading:
		l.learnLocked(g, l.self, s.Term)
		l.fresh[g] = s.Term
		select {
		case l.wake <- struct{}{}:
		default:
		}
	case node >= 0 && node != l.self:
		l.learnLocked(g, node, s.Term)
	case l.known[g].node == l.self:
		delete(l.fresh, g)
		old := l.known[g]
		old.ended = true
		l.known[g] = old
	}
}

// leave says that this node no longer hosts a group. Of one that lives on elsewhere what is
// known stays: nobody tells it again before long.
func (l *leaders) leave(g record.Group, ended bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.fresh, g)
	if ended {
		delete(l.known, g)
		return
	}
	if k := l.known[g]; k.node == l.self {
		k.ended = true
		l.known[g] = k
	}
}

// of tells who leads a group; −1 if nobody is known to, or who is known is down.
func (l *leaders) of(g record.Group) (record.NodeID, record.Term) {
	l.mu.Lock()
	k, ok := l.known[g]
	l.mu.Unlock()
	if !ok || k.ended || k.node != l.self && !l.alive(k.node) {
		return -1, k.term
	}
	return k.node, k.term
}

// news is closed when more is known than when it was called.
func (l *leaders) news() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changed
}

// Frames of kind frameLeaders hold any number of: u64 group, u64 term.
const (
	leadBytes     = 16
	maxLeadsFrame = 4096
	// retell is how often everything is told again.
	retell = 5 * time.Second
	// gather is how long news are held back for more of them.
	gather = 2 * time.Millisecond
)

// receive takes another node's word.
func (l *leaders) receive(from record.NodeID, body []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for ; len(body) >= leadBytes; body = body[leadBytes:] {
		l.learnLocked(record.Group(binary.LittleEndian.Uint64(body)), from, record.Term(binary.LittleEndian.Uint64(body[8:])))
	}
}

// all is everything led here, ready to be sent.
func (l *leaders) all() [][]byte {
	l.mu.Lock()
	defer l.mu.Unlock()
	own := map[record.Group]record.Term{}
	for g, k := range l.known {
		if k.node == l.self && !k.ended {
			own[g] = k.term
		}
	}
	return leadFrames(own)
}

func leadFrames(own map[record.Group]record.Term) [][]byte {
	var out [][]byte
	var b []byte
	for g, term := range own {
		b = binary.LittleEndian.AppendUint64(b, uint64(g))
		b = binary.LittleEndian.AppendUint64(b, uint64(term))
		if len(b) == maxLeadsFrame*leadBytes {
			out, b = append(out, b), nil
		}
	}
	if len(b) > 0 {
		out = append(out, b)
	}
	return out
}

// run tells the others until ctx ends. send gives a frame to every peer.
func (l *leaders) run(ctx context.Context, send func(peer.Frame)) {
	again := pulse.NewTicker(retell)
	defer again.Stop()
	tell := func(bodies [][]byte) {
		for _, b := range bodies {
			send(peer.Frame{Kind: frameLeaders, Parts: [][]byte{b}})
		}
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-again.C:
			tell(l.all())
			again.Next(retell)
		case <-l.wake:
			select {
			case <-time.After(gather):
			case <-ctx.Done():
				return
			}
			l.mu.Lock()
			fresh := l.fresh
			l.fresh = map[record.Group]record.Term{}
			l.mu.Unlock()
			tell(leadFrames(fresh))
		}
	}
}
