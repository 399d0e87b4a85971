package peer

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/tube-mq/tube/internal/pulse"
	"github.com/tube-mq/tube/internal/record"
)

// source is a node that sends to us, did, or should.
type source struct {
	node record.NodeID

	// current is the connection that the node sends on, or nil. Guarded by
	// Transport.mu. A node with neither this nor a link is down at once.
	current *inbound

	// heard is when bytes last came from the node, or 0: no frame came yet. Bytes
	// count, not frames, since a large frame may take longer than DeadAfter.
	heard atomic.Int64
	up    atomic.Bool // as the watch last said

	// stamp is what the node's newest heartbeat said of its clock, 0 for none, and
	// stampAt when that came. They are echoed on the link.
	stamp, stampAt atomic.Int64
	roundTrip      atomic.Int64 // nanoseconds

	receivedFrames, receivedBytes, damaged atomic.Int64
}

// sourceLocked finds or makes the source of a node.
func (t *Transport) sourceLocked(node record.NodeID) *source {
	s := t.sources[node]
	if s == nil {
		s = &source{node: node}
		t.sources[node] = s
	}
	return s
}

// leave closes the node's connection to us: it is no peer any more. If it dials
// again, Config.Refuse decides. The caller holds Transport.mu.
func (s *source) leave() {
	if s.current != nil {
		s.current.gone = true
		_ = s.current.conn.Close()
	}
}

// Alive reports whether a node counts as up: it was heard within DeadAfter. It
// changes together with OnUp and OnDown, and so stays true for a while after this
// process was paused; for leases use LastHeard.
func (t *Transport) Alive(node record.NodeID) bool {
	s := t.source(node)
	return s != nil && s.up.Load()
}

// LastHeard says when something last came from a node, if ever.
func (t *Transport) LastHeard(node record.NodeID) (time.Time, bool) {
	s := t.source(node)
	if s == nil {
		return time.Time{}, false
	}
	at := s.heard.Load()
	return t.start.Add(time.Duration(at - 1)), at != 0
}

func (t *Transport) source(node record.NodeID) *source {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.sources[node]
}

// watch compares the sources with the clock. All is done by its one goroutine.
type watch struct {
	t      *Transport
	period time.Duration
	wake   chan struct{}

	last int64         // when it last looked
	wait time.Duration // until it looks again
	// resumed is when this process was last found to have been paused. Until
	// DeadAfter later no peer goes down: what it sent meanwhile is still to be
	// read, and time in which nobody listened is no silence.
	resumed int64
}

func newWatch(t *Transport) watch {
	period := min(t.cfg.HeartbeatInterval, t.cfg.DeadAfter/4)
	return watch{t: t, period: period, wait: period, wake: make(chan struct{}, 1)}
}

// poke makes the watch look now.
func (w *watch) poke() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *watch) run() {
	ticker := pulse.NewTicker(w.wait)
	defer ticker.Stop()
	w.last = w.t.now()
	for {
		select {
		case <-ticker.C:
		case <-w.wake:
		case <-w.t.ctx.Done():
			return
		}
		w.look(w.t.now())
		w.last = w.t.now() // what the callbacks took is no pause
		w.wait = w.period
		if w.t.alone() {
			w.wait = max(w.wait, pulse.Calm)
		}
		ticker.Next(w.wait)
	}
}

func (w *watch) look(now int64) {
	dead := int64(w.t.cfg.DeadAfter)
	if late := now - w.last - int64(w.wait); late > dead/2 {
		w.resumed = now
		w.t.cfg.OnPause(time.Duration(late))
	}
	var up, down []record.NodeID
	w.t.mu.Lock()
	for node, s := range w.t.sources {
		heard, was := s.heard.Load(), s.up.Load()
		connected := s.current != nil && !s.current.gone
		gone := !connected && w.t.links[node] == nil
		switch {
		case was && (gone || now-max(heard, w.resumed) > dead):
			s.up.Store(false)
			down = append(down, node)
		case !was && connected && heard != 0 && now-heard <= dead:
			s.up.Store(true)
			up = append(up, node)
		case !was && gone && s.current == nil:
			delete(w.t.sources, node)
		}
	}
	w.t.mu.Unlock()
	for _, node := range down {
		w.t.cfg.OnDown(node)
	}
	for _, node := range up {
		w.t.cfg.OnUp(node)
	}
}

// alone: there is nobody to be watched.
func (t *Transport) alone() bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return len(t.sources) == 0 && len(t.links) == 0
}

const heartbeatBytes = 24

// heartbeat writes the body of a heartbeat to the node of s.
func (t *Transport) heartbeat(b *[heartbeatBytes]byte, s *source) []byte {
	now, held := t.now(), int64(0)
	echo := s.stamp.Load()
	if echo != 0 {
		held = now - s.stampAt.Load()
	}
	binary.LittleEndian.PutUint64(b[0:], uint64(now))
	binary.LittleEndian.PutUint64(b[8:], uint64(echo))
	binary.LittleEndian.PutUint64(b[16:], uint64(held))
	return b[:]
}

func (t *Transport) heartbeatFrom(s *source, body []byte) error {
	if len(body) != heartbeatBytes {
		return fmt.Errorf("%w: heartbeat of %d bytes", errMalformed, len(body))
	}
	now := t.now()
	sent, echo, held := int64(binary.LittleEndian.Uint64(body)), int64(binary.LittleEndian.Uint64(body[8:])), int64(binary.LittleEndian.Uint64(body[16:]))
	s.stampAt.Store(now)
	s.stamp.Store(sent)
	// An echo may be of before this process was started anew.
	if trip := now - echo - held; echo > 0 && held >= 0 && trip >= 0 && echo <= now {
		s.roundTrip.Store(trip)
	}
	return nil
}
