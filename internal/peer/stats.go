package peer

import (
	"cmp"
	"slices"
	"time"

	"github.com/tube-mq/tube/internal/record"
)

// PeerStats are figures of one node, both ways.
type PeerStats struct {
	Node           record.NodeID
	Address        string    // empty: it sends to us, but is not a peer
	Alive          bool      // see Transport.Alive
	ConnectedSince time.Time // of the connection to it; zero without one
	RoundTrip      time.Duration

	SentFrames, SentBytes         int64 // bodies only, as all bytes here; without heartbeats
	ReceivedFrames, ReceivedBytes int64
	DroppedFrames, DroppedBytes   int64 // not sent, or not surely
	DamagedFrames                 int64 // received: rejected by checksum, or malformed
	QueueBytes                    int64 // that wait or are being written, with overhead
}

// Stats returns figures of all peers and of all nodes that send to us, by id.
func (t *Transport) Stats() []PeerStats {
	t.mu.RLock()
	stats := make([]PeerStats, 0, len(t.sources))
	for node, s := range t.sources {
		p := PeerStats{
			Node: node, Alive: s.up.Load(), RoundTrip: time.Duration(s.roundTrip.Load()),
			ReceivedFrames: s.receivedFrames.Load(), ReceivedBytes: s.receivedBytes.Load(), DamagedFrames: s.damaged.Load(),
		}
		if l := t.links[node]; l != nil {
			l.describe(&p)
		}
		stats = append(stats, p)
	}
	t.mu.RUnlock()
	slices.SortFunc(stats, func(a, b PeerStats) int { return cmp.Compare(a.Node, b.Node) })
	return stats
}

func (l *link) describe(p *PeerStats) {
	p.Address, p.SentFrames, p.SentBytes = l.addr, l.sentFrames.Load(), l.sentBytes.Load()
	l.mu.Lock()
	p.ConnectedSince = l.since
	l.mu.Unlock()
	l.queue.mu.Lock()
	defer l.queue.mu.Unlock()
	p.DroppedFrames, p.DroppedBytes, p.QueueBytes = l.queue.droppedFrames, l.queue.droppedBytes, l.queue.sizeBytes
}
