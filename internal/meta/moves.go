package meta

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tube-mq/tube/internal/meta/metapb"
	"github.com/tube-mq/tube/internal/record"
)

// moves collects what one command about many partitions did.
type moves struct {
	im    *Image
	edit  *editor
	items []error
	names map[string][]string // of the changed ones, by cause
}

func (im *Image) moves() *moves { return &moves{im: im, edit: edit(im), names: map[string][]string{}} }

// find finds the partition of the next item, or refuses the item.
func (ms *moves) find(topic []byte, partition int32) (record.TopicPartition, *Placement, error) {
	id, err := topicID(topic)
	if err != nil {
		return record.TopicPartition{}, nil, err
	}
	if ms.im.Topics[id] == nil {
		return record.TopicPartition{}, nil, fmt.Errorf("%w: id %s", ErrUnknownTopic, id)
	}
	tp := record.TopicPartition{Topic: id, Partition: record.Partition(partition)}
	p := ms.im.Partition(tp)
	if p == nil {
		return tp, nil, fmt.Errorf("%w: %d of topic %s, which has %d", ErrUnknownPartition, partition, ms.im.Topics[id].Name, len(ms.im.Topics[id].Partitions))
	}
	return tp, p, nil
}

func (ms *moves) name(tp record.TopicPartition) string {
	return fmt.Sprintf("%s/%d", ms.im.Topics[tp.Topic].Name, tp.Partition)
}

func (ms *moves) changed(tp record.TopicPartition, cause string) {
	ms.names[cause] = append(ms.names[cause], ms.name(tp))
}

// noteMoves makes one event for each cause, in the order of causes.
func (m *Machine) noteMoves(now time.Time, ms *moves, causes []string, kind, text string) {
	for _, cause := range causes {
		names := ms.names[cause]
		if len(names) == 0 {
			continue
		}
		subject := "cluster"
		if len(names) == 1 {
			subject = "partition " + names[0]
		}
		m.note(now, kind, subject, text, count(len(names), "partition", "partitions"), firstNames(names), cause)
	}
}

func (m *Machine) reassign(im *Image, now time.Time, c *metapb.Reassign) Result {
	if c.GetThrottle() < 0 {
		return Result{Err: fmt.Errorf("%w: a throttle of %d bytes per second", ErrInvalidPlacement, c.GetThrottle())}
	}
	ms, reordered := im.moves(), im.moves()
	var causes []string
	for _, mv := range c.GetMoves() {
		tp, p, err := ms.find(mv.GetTopic(), mv.GetPartition())
		nodes := nodeIDsFromPB(mv.GetNodes())
		if err == nil {
			err = im.checkNodes(nodes, p)
		}
		ms.items = append(ms.items, err)
		if err != nil {
			continue
		}
		next, changed := m.aim(im, p, nodes, mv.GetCause(), c.GetThrottle())
		if !changed {
			continue
		}
		*ms.edit.placement(tp) = next
		if next.Target == nil {
			reordered.changed(tp, "order")
			continue
		}
		if !slices.Contains(causes, mv.GetCause()) {
			causes = append(causes, mv.GetCause())
		}
		ms.changed(tp, mv.GetCause())
	}
	m.noteMoves(now, ms, causes, "replicas-moving", "replicas of %s are moving: %s (%s)")
	m.noteMoves(now, reordered, []string{"order"}, "preference-changed", "the preferred leaders of %s changed: %s (%s)")
	return Result{Items: ms.items}
}

// checkNodes checks where a partition shall lie. A node that was removed may be
// named where the partition has lost a replica: the place stays empty, so that
// it is known how many replicas there should be.
func (im *Image) checkNodes(nodes []record.NodeID, p *Placement) error {
	if len(nodes) == 0 {
		return fmt.Errorf("%w: no nodes", ErrInvalidPlacement)
	}
	for i, n := range nodes {
		if _, vacant := p.vacancy(n); im.Nodes[n] == nil && !vacant {
			return fmt.Errorf("%w: %w %d", ErrInvalidPlacement, ErrUnknownNode, n)
		}
		if slices.Contains(nodes[:i], n) {
			return fmt.Errorf("%w: two replicas on node %d", ErrInvalidPlacement, n)
		}
	}
	return nil
}

// vacancy is a lost replica that a partition has on a node.
func (p *Placement) vacancy(node record.NodeID) (Replica, bool) {
	for _, list := range [][]Replica{p.Target, p.Replicas} {
		for _, r := range list {
			if r.Node == node && r.Lost {
				return r, true
			}
		}
	}
	return Replica{}, false
}

// aim is the placement with the replicas on nodes for a target: those that are
// there keep their ids. false: that changes nothing.
func (m *Machine) aim(im *Image, old *Placement, nodes []record.NodeID, cause string, throttle int64) (Placement, bool) {
	p := *old
	target := make([]Replica, len(nodes))
	for i, n := range nodes {
		r, ok := p.Hosted(n)
		if !ok && im.Nodes[n] == nil {
			r, ok = p.vacancy(n)
		}
		if !ok {
			r = Replica{ID: m.newReplica(), Node: n}
		}
		target[i] = r
	}
	switch {
	case p.Target == nil && slices.Equal(target, p.Replicas):
		return p, false
	case p.Target == nil && sameMembers(ids(target), ids(p.Replicas)):
		p.Replicas = target // another order of preference: nothing has to be copied
		return p, true
	case slices.Equal(target, p.Target) && throttle == p.Throttle:
		return p, false
	}
	p.Leaving = nil
	for _, r := range slices.Concat(old.Leaving, old.Target) {
		if !r.Lost && !slices.Contains(target, r) && !slices.Contains(p.Replicas, r) {
			p.Leaving = append(p.Leaving, r)
		}
	}
	p.Target, p.Cause, p.Throttle = target, cause, throttle
	return p, true
}

func ids(rs []Replica) []record.ReplicaID {
	out := make([]record.ReplicaID, len(rs))
	for i, r := range rs {
		out[i] = r.ID
	}
	return out
}

func sameMembers(a, b []record.ReplicaID) bool {
	a, b = slices.Clone(a), slices.Clone(b)
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(a, b)
}

// cancelReassign aims at what there was. The group's leader drives the members
// back, however far it has come.
func (m *Machine) cancelReassign(im *Image, now time.Time, c *metapb.CancelReassign) Result {
	ms := im.moves()
	for _, ref := range c.GetPartitions() {
		tp, p, err := ms.find(ref.GetTopic(), ref.GetPartition())
		if err == nil && p.Target == nil {
			err = fmt.Errorf("%w: partition %s", ErrNotMoving, ms.name(tp))
		}
		var nodes []record.NodeID
		if err == nil {
			for _, r := range p.Replicas {
				nodes = append(nodes, r.Node)
			}
			err = im.checkNodes(nodes, p)
		}
		ms.items = append(ms.items, err)
		if err != nil {
			continue
		}
		next, changed := m.aim(im, p, nodes, CauseCancel, p.Throttle)
		if !changed {
			continue
		}
		*ms.edit.placement(tp) = next
		ms.changed(tp, CauseCancel)
	}
	m.noteMoves(now, ms, []string{CauseCancel}, "replicas-moving", "replicas of %s go back to where they were: %s (%s)")
	return Result{Items: ms.items}
}

func (m *Machine) placementDone(im *Image, now time.Time, c *metapb.PlacementDone) Result {
	ms := im.moves()
	var causes []string
	var left []record.NodeID // draining nodes that something has left
	for _, done := range c.GetPartitions() {
		tp, p, err := ms.find(done.GetTopic(), done.GetPartition())
		if err == nil {
			members := make([]record.ReplicaID, len(done.GetReplicas()))
			for i, id := range done.GetReplicas() {
				members[i] = record.ReplicaID(id)
			}
			if len(members) == 0 || p.Target == nil || !sameMembers(members, ids(present(p.Target))) {
				err = fmt.Errorf("%w: partition %s", ErrNotMoving, ms.name(tp))
			}
		}
		ms.items = append(ms.items, err)
		if err != nil {
			continue
		}
		cause := p.Cause
		for _, r := range p.Replicas {
			if n := im.Nodes[r.Node]; n != nil && n.Drain && !slices.Contains(left, r.Node) {
				left = append(left, r.Node)
			}
		}
		e := ms.edit.placement(tp)
		e.Replicas, e.Target, e.Leaving, e.Throttle, e.Cause = e.Target, nil, nil, 0, ""
		if !slices.Contains(causes, cause) {
			causes = append(causes, cause)
		}
		ms.changed(tp, cause)
	}
	m.noteMoves(now, ms, causes, "replicas-moved", "replicas of %s have moved: %s (%s)")
	for _, node := range left {
		if len(im.namedBy(node)) == 0 {
			m.note(now, "node-drained", fmt.Sprintf("node %d", node), "node %d is drained: no replicas are left on it, and it can be removed", node)
		}
	}
	return Result{Items: ms.items}
}

func (m *Machine) unsafeRecover(im *Image, now time.Time, c *metapb.UnsafeRecover) Result {
	ms := im.moves()
	tp, p, err := ms.find(c.GetTopic(), c.GetPartition())
	if err != nil {
		return Result{Err: err}
	}
	nodes, survivor := nodeIDsFromPB(c.GetNodes()), record.NodeID(c.GetSurvivor())
	if survivor < 0 || len(nodes) > 0 {
		if err := im.checkNodes(nodes, &Placement{}); err != nil {
			return Result{Err: err}
		}
	}
	keep, ok := p.Hosted(survivor)
	if survivor >= 0 && !ok {
		return Result{Err: fmt.Errorf("%w: partition %s, node %d", ErrNoSurvivor, ms.name(tp), survivor)}
	}
	name := ms.name(tp)
	e := ms.edit.placement(tp)
	fresh := make([]Replica, len(nodes))
	for i, n := range nodes {
		if survivor >= 0 && n == survivor {
			fresh[i] = keep
			continue
		}
		// Whoever has another replica has perhaps what the survivor lacks: it is
		// another replica from now on, that begins empty.
		fresh[i] = Replica{ID: m.newReplica(), Node: n}
	}
	e.Target, e.Leaving, e.Throttle, e.Cause = nil, nil, 0, ""
	if survivor < 0 {
		e.Group, e.Replicas, e.Founders, e.Recovery, e.Leader = m.nextGroup, fresh, ids(fresh), 0, -1
		m.nextGroup++
		m.note(now, "unsafe-recovery", "partition "+name, "partition %s starts empty on %s: all that was in it is given up", name, onNodes(nodes))
		return Result{Topic: im.Topics[tp.Topic]}
	}
	e.Replicas = []Replica{keep}
	e.Recovery++
	if len(fresh) > 0 && !sameMembers(ids(fresh), ids(e.Replicas)) {
		e.Target, e.Cause = fresh, CauseRecovery
	}
	m.note(now, "unsafe-recovery", "partition "+name, "partition %s goes on from what node %d has: what was acknowledged and did not reach it is given up", name, survivor)
	return Result{Topic: im.Topics[tp.Topic]}
}

// renewReplicas gives a node new replicas in the place of damaged ones. An item is
// refused if there is nothing left to copy from, or the replica is not there any more.
func (m *Machine) renewReplicas(im *Image, now time.Time, c *metapb.RenewReplicas) Result {
	node := record.NodeID(c.GetNode())
	ms := im.moves()
	for _, d := range c.GetPartitions() {
		tp, p, err := ms.find(d.GetTopic(), d.GetPartition())
		if err == nil {
			own, ok := p.Hosted(node)
			others := slices.ContainsFunc(p.Replicas, func(r Replica) bool { return r.Node != node && !r.Lost })
			switch {
			case !ok || len(d.GetReplicas()) != 1 || own.ID != record.ReplicaID(d.GetReplicas()[0]):
				err = fmt.Errorf("%w: partition %s has no such replica on node %d", ErrNotMoving, ms.name(tp), node)
			case !others:
				err = fmt.Errorf("%w: partition %s", ErrNoSurvivor, ms.name(tp))
			}
		}
		ms.items = append(ms.items, err)
		if err != nil {
			continue
		}
		e := ms.edit.placement(tp)
		e.Replicas = lost(e.Replicas, node)
		e.Leaving = without(e.Leaving, node)
		m.renew(e, node, true, true)
		e.Cause = CauseDamage
		ms.changed(tp, CauseDamage)
	}
	m.noteMoves(now, ms, []string{CauseDamage}, "replicas-moving", "replicas of %s on node "+fmt.Sprint(node)+" were damaged and are copied anew: %s (%s)")
	return Result{Items: ms.items}
}

// onNodes writes "node 3" and "nodes 3, 2".
func onNodes(nodes []record.NodeID) string {
	word := "nodes"
	if len(nodes) == 1 {
		word = "node"
	}
	return word + " " + strings.Trim(strings.ReplaceAll(fmt.Sprint(nodes), " ", ", "), "[]")
}
