package sim

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/replica"
)

// message is what a client produces: its sequence says which one it is.
type message struct {
	client, sequence uint32
	sum              uint32 // of its text
	offset           uint64 // as read
}

type answer struct {
	offset uint64
	err    error
}

// errSequence: the machine has seen a later message of the client, or lacks an earlier.
var errSequence = errors.New("sim: sequence out of order")

// ledgerKind is a machine in memory: a list of messages and each client's last
// sequence, all of it in the checkpoint.
type ledgerKind struct{}

func (ledgerKind) name() string { return "ledger" }

func (ledgerKind) drop(n *node, t *team) error { return n.host.Drop(t.id) }

func (ledgerKind) outcome(result any) string { return fmt.Sprint(result) }

type ledger struct {
	n     *node
	group *replica.Group

	list []message
	last map[uint32]uint32 // sequence by client
}

func (ledgerKind) host(n *node, h *hosted, founders []record.ReplicaID) (machine, error) {
	m := &ledger{n: n, last: map[uint32]uint32{}}
	saved, err := n.host.Saved(h.t.id)
	if err == nil {
		err = m.Restore(saved)
	}
	g, err := n.host.Add(replica.Spec{
		Group: h.t.id, Replica: h.id, Relaxed: h.t.relaxed, Voters: founders, Peers: h.t.peers, Machine: m, Damaged: err,
		Fetch: func(ctx context.Context, from record.NodeID) (replica.Snapshot, error) {
			return n.fetch(ctx, h.t, from)
		},
	})
	m.group, h.group = g, g
	return m, err
}

var errNoWay = errors.New("sim: no way to the leader's node")

// fetch captures a team's state on another node.
func (n *node) fetch(ctx context.Context, t *team, from record.NodeID) (snap replica.Snapshot, err error) {
	other := n.c.node(from)
	err = errNoWay
	if !n.c.net.open(other.id, n.id) {
		return snap, err
	}
	other.run(func() {
		if h := other.here[t.id]; h != nil && other.pausedUntil <= n.c.now {
			snap, err = h.group.Capture(ctx)
			n.c.log("n%d gives n%d a copy of g%d at %d: %v", from, n.id, t.id, snap.Index, err)
			if err == nil {
				n.c.faults.count("copy")
			}
		}
	})
	return snap, err
}

// entry: u32 client, u32 sequence, text
func (m *ledger) produce(msg message, done func(answer)) {
	m.group.Propose(replica.Proposal{Data: encodeMessage(msg), Done: func(r any, err error) {
		if err != nil {
			done(answer{err: err})
			return
		}
		done(r.(answer))
	}})
}

// text is what a message says: it follows from its client and sequence.
func text(msg message) []byte {
	b := make([]byte, 8+(msg.sequence*2654435761)%1500)
	for i := range b {
		b[i] = byte(uint32(i)*msg.sequence + msg.client)
	}
	return b
}

func encodeMessage(msg message) []byte {
	b := binary.LittleEndian.AppendUint32(nil, msg.client)
	b = binary.LittleEndian.AppendUint32(b, msg.sequence)
	return append(b, text(msg)...)
}

// Apply implements replica.Machine.
func (m *ledger) Apply(e replica.Entry) any {
	msg := message{client: binary.LittleEndian.Uint32(e.Data), sequence: binary.LittleEndian.Uint32(e.Data[4:]), sum: crc32.ChecksumIEEE(e.Data[8:])}
	last := m.last[msg.client]
	switch {
	case msg.sequence <= last && msg.sequence > 0:
		for i := len(m.list) - 1; i >= 0; i-- {
			if x := m.list[i]; x.client == msg.client && x.sequence == msg.sequence {
				return answer{offset: uint64(i)}
			}
		}
		return answer{err: errSequence}
	case msg.sequence != last+1:
		return answer{err: errSequence}
	}
	msg.offset = uint64(len(m.list))
	m.last[msg.client] = msg.sequence
	m.list = append(m.list, msg)
	return answer{offset: msg.offset}
}

func (m *ledger) Applied()           {}
func (m *ledger) Led(replica.Status) {}
func (m *ledger) Settle() error      { return nil }
func (m *ledger) Close()             {}

// Save: the messages; the sequences follow from them.
func (m *ledger) Save() ([]byte, error) {
	b := make([]byte, 0, 12*len(m.list))
	for _, x := range m.list {
		b = binary.LittleEndian.AppendUint32(b, x.client)
		b = binary.LittleEndian.AppendUint32(b, x.sequence)
		b = binary.LittleEndian.AppendUint32(b, x.sum)
	}
	return b, nil
}

func (m *ledger) Restore(b []byte) error {
	if len(b)%12 != 0 {
		return fmt.Errorf("a ledger of %d bytes", len(b))
	}
	m.list, m.last = nil, map[uint32]uint32{}
	for ; len(b) > 0; b = b[12:] {
		x := message{client: binary.LittleEndian.Uint32(b), sequence: binary.LittleEndian.Uint32(b[4:]), sum: binary.LittleEndian.Uint32(b[8:]), offset: uint64(len(m.list))}
		m.list = append(m.list, x)
		m.last[x.client] = x.sequence
	}
	return nil
}

func (m *ledger) read(bool) ([]message, error) { return m.list, nil }

func (m *ledger) setPeers(p map[record.ReplicaID]record.NodeID) { m.group.SetPeers(p) }

func (m *ledger) remove() error { return m.n.host.Remove(m.group) }
