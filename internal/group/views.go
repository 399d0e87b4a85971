package group

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tube-mq/tube/internal/record"
)

// FetchOffsets returns a group's positions; a group that does not exist has none.
func (c *Coordinator) FetchOffsets(req *FetchOffsetsRequest) *FetchOffsetsResponse {
	if err := c.check(req.Group); err != nil {
		return &FetchOffsetsResponse{Err: err}
	}
	if g := c.consumerGroup(req.Group); g != nil && req.Member != "" && req.Epoch >= 0 {
		switch m := c.replicated(g).members[req.Member]; {
		case m == nil:
			return &FetchOffsetsResponse{Err: ErrUnknownMember}
		case m.Epoch != req.Epoch:
			return &FetchOffsetsResponse{Err: ErrStaleEpoch}
		}
	}
	return &FetchOffsetsResponse{Topics: c.m.offsets(req)}
}

func (m *Machine) offsets(req *FetchOffsetsRequest) []FetchedTopic {
	g := m.groups[req.Group]
	if g == nil {
		return nil
	}
	var out []FetchedTopic
	if req.Topics == nil {
		ids := slices.SortedFunc(maps.Keys(g.topics), func(a, b record.TopicID) int { return bytes.Compare(a[:], b[:]) })
		for _, id := range ids {
			out = append(out, g.fetch(id, slices.Sorted(maps.Keys(g.topics[id].partitions))))
		}
		return out
	}
	for _, t := range req.Topics {
		if g.topics[t.Topic] != nil {
			out = append(out, g.fetch(t.Topic, t.Partitions))
		}
	}
	return out
}

func (g *stored) fetch(id record.TopicID, partitions []record.Partition) FetchedTopic {
	t := g.topics[id]
	f := FetchedTopic{Topic: id, Name: t.name}
	for _, p := range partitions {
		if o, ok := t.partitions[p]; ok && o.Offset.Offset >= 0 { // see noPosition
			f.Partitions = append(f.Partitions, FetchedPartition{p, o.Offset})
		}
	}
	return f
}

// Describe tells a group's state and members.
func (c *Coordinator) Describe(name string) *Description {
	d := &Description{Group: name, Phase: Dead}
	if d.Err = c.check(name); d.Err != nil {
		return d
	}
	g, st := c.groups[name], c.m.State(name)
	switch {
	case c.consumers[name] != nil || st != nil && st.ByCoordinator && g == nil:
		d.Err = fmt.Errorf("%w of the classic protocol: the coordinator assigns the partitions of %q", ErrGroupNotFound, name)
	case g != nil:
		d.Phase, d.ProtocolType, d.Protocol, d.Generation = g.told(), g.protocolType, g.protocol, g.generation
		if d.Phase == Empty {
			d.Protocol = ""
		}
		for _, m := range g.ordered() {
			dm := DescribedMember{ID: m.ID, Instance: m.Instance, ClientID: m.ClientID, ClientHost: m.ClientHost}
			if g.phase == Stable {
				dm.Metadata, dm.Assignment = m.metadata(g.protocol), m.Assignment
			}
			d.Members = append(d.Members, dm)
		}
	case st != nil:
		d.Phase, d.ProtocolType, d.Generation = Empty, st.ProtocolType, st.Generation
	default:
		d.Err = ErrGroupNotFound
	}
	return d
}

// told is the phase that others are told of. Once the last member has left the group
// is empty for them, as in Kafka: that it is, is committed a moment later, and whoever
// asks for a change meanwhile waits for that.
func (g *live) told() Phase {
	if g.phase == Preparing && len(g.members) == 0 {
		return Empty
	}
	return g.phase
}

// List names the shard's groups, by name; none while not leading.
func (c *Coordinator) List() []Listing {
	if !c.leading {
		return nil
	}
	var out []Listing
	for name, g := range c.groups {
		if c.consumers[name] == nil {
			out = append(out, Listing{Group: name, ProtocolType: g.protocolType, Phase: g.told()})
		}
	}
	for name, s := range c.m.groups {
		switch {
		case c.groups[name] != nil:
		case s.consumers != nil:
			out = append(out, Listing{Group: name, ProtocolType: ConsumerProtocol, Phase: s.consumers.phase(), ByCoordinator: true})
		default:
			out = append(out, Listing{Group: name, ProtocolType: s.state.ProtocolType, Phase: Empty})
		}
	}
	for name := range c.shares {
		out = append(out, Listing{Group: name, ProtocolType: ShareProtocol, Phase: Stable, Share: true})
	}
	slices.SortFunc(out, func(a, b Listing) int { return strings.Compare(a.Group, b.Group) })
	return out
}
