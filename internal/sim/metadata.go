package sim

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/replica"
)

// metadataKind is the masters' machine: a message is a topic of that name, its
// offset the number of the topic's group, as groups' numbers are given in order.
type metadataKind struct{}

func (metadataKind) name() string { return "metadata" }

func (metadataKind) drop(n *node, t *team) error { return n.host.Drop(t.id) }

// outcome tells a topic, too, by what is of the log alone.
func (metadataKind) outcome(result any) string {
	r := result.(meta.Result)
	if r.Topic != nil {
		return fmt.Sprintf("topic %s %+v", r.Topic.Name, r.Topic.Partitions)
	}
	return fmt.Sprint(r.Err)
}

type metadata struct {
	n       *node
	group   *replica.Group
	machine *meta.Machine
}

func (metadataKind) host(n *node, h *hosted, founders []record.ReplicaID) (machine, error) {
	m := &metadata{n: n, machine: meta.New()}
	saved, err := n.host.Saved(h.t.id)
	if err == nil && saved != nil {
		err = m.Restore(saved)
	}
	g, err := n.host.Add(replica.Spec{
		Group: h.t.id, Replica: h.id, Voters: founders, Peers: h.t.peers, Machine: m, Damaged: err,
		Fetch: func(ctx context.Context, from record.NodeID) (replica.Snapshot, error) {
			return n.fetch(ctx, h.t, from)
		},
	})
	m.group, h.group = g, g
	return m, err
}

func topicName(msg message) string {
	return fmt.Sprintf("client%d.%d.%08x", msg.client, msg.sequence, msg.sum)
}

func (m *metadata) produce(msg message, done func(answer)) {
	name := topicName(msg)
	now := epoch.Add(m.n.c.now + m.n.skew)
	create := func(found func(answer)) {
		var id record.TopicID
		binary.BigEndian.PutUint32(id[:], msg.client)
		binary.BigEndian.PutUint32(id[4:], msg.sequence)
		data := meta.CreateTopic(now, id, name, [][]record.NodeID{{1}}, nil)
		m.group.Propose(replica.Proposal{Data: data, Done: func(r any, err error) {
			if err == nil {
				if err = r.(meta.Result).Err; errors.Is(err, meta.ErrTopicExists) {
					err = nil
				}
			}
			if err != nil {
				found(answer{err: err})
				return
			}
			t := m.machine.Image().ByName[name]
			found(answer{offset: uint64(t.Partitions[0].Group - meta.FirstPartitionGroup)})
		}})
	}
	if m.machine.Image().Nodes[1] == nil { // whose first command it is
		data := meta.RegisterNode(now, meta.Node{ID: 1, Incarnation: "one", Kafka: "a:1", Roles: []string{meta.RoleMaster, meta.RoleBroker}})
		m.group.Propose(replica.Proposal{Data: data, Done: func(any, error) {}})
	}
	create(done)
}

func (m *metadata) read(bool) ([]message, error) {
	im := m.machine.Image()
	list := make([]message, len(im.Topics))
	for _, t := range im.Topics {
		at := uint64(t.Partitions[0].Group - meta.FirstPartitionGroup)
		if at >= uint64(len(list)) {
			return nil, fmt.Errorf("topic %s has group %d, of %d", t.Name, t.Partitions[0].Group, len(list))
		}
		x := &list[at]
		x.offset = at
		if _, err := fmt.Sscanf(t.Name, "client%d.%d.%x", &x.client, &x.sequence, &x.sum); err != nil {
			return nil, err
		}
	}
	return list, nil
}

func (m *metadata) Apply(e replica.Entry) any { return m.machine.Apply(e.Index, e.Data) }
func (m *metadata) Applied()                  {}
func (m *metadata) Led(replica.Status)        {}
func (m *metadata) Save() ([]byte, error)     { return m.machine.Snapshot(), nil }
func (m *metadata) Restore(b []byte) error    { return m.machine.Restore(b) }
func (m *metadata) Settle() error             { return nil }
func (m *metadata) Close()                    {}

func (m *metadata) setPeers(p map[record.ReplicaID]record.NodeID) { m.group.SetPeers(p) }
func (m *metadata) remove() error                                 { return m.n.host.Remove(m.group) }
