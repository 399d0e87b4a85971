package replica

import (
	"errors"
	"fmt"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/tube-mq/tube/internal/record"
)

// Transport carries messages to other nodes. Messages may be lost; those that
// arrive, arrive whole.
type Transport interface {
	// Send takes a message of several parts; it never blocks. release is called
	// once nobody needs the parts any more, also if Send reports that the message
	// was dropped.
	Send(to record.NodeID, parts [][]byte, release func()) bool
}

// noTransport is a node's without peers.
type noTransport struct{}

func (noTransport) Send(_ record.NodeID, _ [][]byte, release func()) bool {
	release()
	return false
}

// maxInboxBytes of messages may wait for one group's loop; more are dropped, and
// raft sends them again.
const maxInboxBytes = 32 << 20

// SetPeers says on which nodes the group's other replicas are. Messages to a
// replica that is not there are dropped.
func (g *Group) SetPeers(peers map[record.ReplicaID]record.NodeID) {
	g.peers.Store(&peers)
}

// Receive takes a message that another node has sent. body lies in buf, which is
// retained as long as needed. A message for a group or a replica that this node
// does not run is dropped. Error: the message does not decode.
func (h *Host) Receive(body []byte, buf *record.Buffer) error {
	m, err := decodeMessage(body, buf)
	if err != nil {
		return err
	}
	h.mu.Lock()
	g := h.groups[m.group]
	h.mu.Unlock()
	if g == nil {
		return nil
	}
	if to := m.raft.GetTo(); uint64(g.spec.Replica) != to {
		if to > uint64(g.spec.Replica) {
			g.superseded.Store(true)
		}
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed || g.in.messageBytes+m.size > maxInboxBytes {
		return nil
	}
	buf.Retain()
	g.in.messages = append(g.in.messages, m)
	g.in.messageBytes += m.size
	g.wakeLocked()
	return nil
}

// Superseded reports whether others speak to a later replica of the group on this node:
// this one was given up, and hears of nothing any more. Replica ids only grow.
func (g *Group) Superseded() bool { return g.superseded.Load() }

// send hands a message to another replica of the group. From the group's loop.
func (g *Group) send(m *raftpb.Message) {
	to, ok := (*g.peers.Load())[record.ReplicaID(m.GetTo())]
	if !ok || g.core == nil {
		return
	}
	if m.GetType() == raftpb.MsgSnap {
		// It says only that the other needs a copy, which it fetches by itself. How
		// far it is shows in what it answers to the next message.
		g.core.told = append(g.core.told, m.GetTo())
	}
	sent := true
	if len(m.GetEntries()) == 0 {
		sent = g.sendPart(to, m, nil)
	}
	for rest := m.GetEntries(); len(rest) > 0 && sent; {
		// Raft counts entries without payload, so one message of its may be any size.
		n, sizeBytes := 0, 0
		for n < len(rest) && (n == 0 || sizeBytes < maxWireBytes) {
			if s := g.core.log.at(rest[n].GetIndex()); s != nil {
				sizeBytes += int(s.sizeBytes)
			}
			n++
		}
		part := &raftpb.Message{
			Type: m.Type, To: m.To, From: m.From, Term: m.Term, Commit: m.Commit,
			Index: new(rest[0].GetIndex() - 1), LogTerm: m.LogTerm, Entries: rest[:n],
		}
		if rest[0] != m.GetEntries()[0] {
			part.LogTerm = m.GetEntries()[len(m.GetEntries())-len(rest)-1].Term
		}
		sent = g.sendPart(to, part, rest[:n])
		rest = rest[n:]
	}
	if !sent && g.core != nil {
		g.core.lost = append(g.core.lost, m.GetTo())
	}
}

// sendPart sends one message; it reports false if the message was dropped.
func (g *Group) sendPart(to record.NodeID, m *raftpb.Message, entries []*raftpb.Entry) bool {
	head, err := encodeHead(g.spec.Group, g.core.everyone, m, len(entries))
	if err != nil {
		g.spec.Logger.Error("cannot send", "group", g.spec.Group, "err", err)
		return false
	}
	if len(entries) == 0 {
		return g.host.cfg.Transport.Send(to, [][]byte{head}, func() {})
	}
	parts := make([][]byte, 0, 2*len(entries)+1)
	held := make([]*record.Buffer, 0, len(entries))
	release := func() {
		for _, b := range held {
			b.Release()
		}
	}
	from := 0
	for _, en := range entries {
		p, err := g.payloadOf(en)
		if errors.Is(err, errOverwritten) {
			// Another leader has taken its place since raft wrote the message.
			release()
			return true
		}
		if err != nil {
			release()
			g.fail(err)
			return false
		}
		if p.buf != nil {
			held = append(held, p.buf.Retain())
		}
		head = appendEntryHead(head, en.GetTerm(), en.GetType(), len(p.data))
		if len(p.data) > 0 {
			parts = append(parts, head[from:len(head):len(head)], p.data)
			from = len(head)
		}
	}
	if from < len(head) {
		parts = append(parts, head[from:])
	}
	return g.host.cfg.Transport.Send(to, parts, release)
}

// payloadOf finds an entry's payload, in memory or in the WAL.
func (g *Group) payloadOf(en *raftpb.Entry) (payload, error) {
	s := g.core.log.at(en.GetIndex())
	switch {
	case s == nil || s.term != en.GetTerm():
		return payload{}, errOverwritten
	case !s.onDisk:
		return s.payload, nil
	}
	data, err := g.host.wal.ReadEntry(s.pos)
	if err != nil {
		return payload{}, fmt.Errorf("entry %d: %w", en.GetIndex(), err)
	}
	return payload{data: data}, nil
}

var (
	errLog         = errors.New("replica: the log lacks an entry")
	errOverwritten = errors.New("replica: the entry is not in the log any more")
)
