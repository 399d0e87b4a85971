package meta

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tube-mq/tube/internal/meta/metapb"
	"github.com/tube-mq/tube/internal/record"
)

// maxReplaced bounds the data folders of the past that are remembered of one
// node id; the oldest is forgotten first.
const maxReplaced = 100

func (m *Machine) bootstrap(im *Image, now time.Time, c *metapb.Bootstrap) Result {
	if im.ClusterID != "" {
		return Result{Err: fmt.Errorf("%w: %s", ErrClusterExists, im.ClusterID)}
	}
	if c.GetClusterId() == "" {
		return Result{Err: fmt.Errorf("%w: empty cluster id", ErrInvalidConfig)}
	}
	founders := foundersFromPB(c.GetFounders())
	for i, f := range founders {
		twice := func(o Founder) bool { return o.Node == f.Node || o.Replica == f.Replica }
		if f.Node < 0 || f.Replica < 1 || f.Replica >= FirstReplica || f.Taken || slices.ContainsFunc(founders[:i], twice) {
			return Result{Err: fmt.Errorf("%w: founding master %d with replica id %d", ErrInvalidNode, f.Node, f.Replica)}
		}
	}
	im.ClusterID, im.Founders = c.GetClusterId(), founders
	m.note(now, "cluster-created", "cluster "+im.ClusterID, "the cluster was founded%s", withMasters(founders))
	return Result{}
}

func withMasters(founders []Founder) string {
	var ids []string
	for _, f := range founders {
		ids = append(ids, fmt.Sprint(f.Node))
	}
	if ids == nil {
		return ""
	}
	return " with masters " + strings.Join(ids, ", ")
}

func (m *Machine) registerNode(im *Image, now time.Time, c *metapb.RegisterNode) Result {
	n := nodeFromPB(c.GetNode())
	if n.ID < 0 || n.Kafka == "" || n.Incarnation == "" {
		return Result{Err: fmt.Errorf("%w: id %d, Kafka address %q, incarnation %q", ErrInvalidNode, n.ID, n.Kafka, n.Incarnation)}
	}
	if m.Replaced(n.ID, n.Incarnation) {
		return Result{Err: fmt.Errorf("%w: another took its place as node %d, or the node was removed; start the node with an empty data folder", ErrOldIncarnation, n.ID)}
	}
	if err := im.Follows(n.Level); err != nil {
		return Result{Err: err}
	}
	old := im.Nodes[n.ID]
	switch {
	case old == nil && !c.GetReplace() && im.Recovered != "":
		return Result{Err: fmt.Errorf("%w: it is not among those of node %d that the cluster went on with; start the node with an empty data folder", ErrGivenUp, n.ID)}
	case old == nil:
		return m.addNode(im, now, n, c.GetReplace())
	case old.Incarnation == n.Incarnation:
		// A node that is alone knows no more than its own folder.
		if err := old.OlderCopy(n.Incarnation, n.Starts, n.Run); err != nil && len(im.Nodes) > 1 {
			return Result{Err: err}
		}
		return m.restartNode(im, now, old, n)
	case !c.GetReplace():
		return Result{Err: fmt.Errorf("%w: id %d belongs to another data folder, and this one is not empty", ErrNodeInUse, n.ID)}
	case old.State != NodeDown:
		return Result{Err: fmt.Errorf("%w: node id %d is in use by another data folder, last seen %s", ErrNodeInUse, n.ID, old.State)}
	}
	return m.replaceNode(im, now, old, n)
}

func (im *Image) setNode(n *Node) {
	im.Nodes = maps.Clone(im.Nodes)
	im.Nodes[n.ID] = n
}

// addNode makes a node known. One that joins with an empty data folder never gets
// a founder's replica id: that founder may have voted, and lost its disk since.
func (m *Machine) addNode(im *Image, now time.Time, n *Node, empty bool) Result {
	n.State, n.Since, n.Drain, n.Sick = NodeUp, now, false, ""
	n.MetaReplica = 0
	if i := slices.IndexFunc(im.Founders, func(f Founder) bool { return f.Node == n.ID && !f.Taken }); i >= 0 {
		im.Founders = slices.Clone(im.Founders)
		im.Founders[i].Taken = true
		if !empty {
			n.MetaReplica = im.Founders[i].Replica
		}
	}
	if n.MetaReplica == 0 {
		n.MetaReplica = m.newReplica()
	}
	im.setNode(n)
	m.note(now, "node-added", subject(n), "node %d joined at %s", n.ID, n.Kafka)
	return Result{Node: n}
}

// newReplica gives an id above those of the founders, which a cluster of an
// older version did not set apart.
func (m *Machine) newReplica() record.ReplicaID {
	id := max(m.nextReplica, FirstReplica)
	m.nextReplica = id + 1
	return id
}

func subject(n *Node) string { return fmt.Sprintf("node %d", n.ID) }

func (m *Machine) restartNode(im *Image, now time.Time, old, n *Node) Result {
	n.MetaReplica, n.Drain, n.State, n.Since = old.MetaReplica, old.Drain, NodeUp, old.Since
	n.Sick = old.Sick // until the masters hear how it is
	if n.MetaReplica == 0 {
		n.MetaReplica = m.newReplica()
	}
	if n.Drain {
		n.State = NodeDraining
	}
	if n.State != old.State {
		n.Since = now
	}
	im.setNode(n)
	m.note(now, "node-started", subject(n), "node %d started at %s, version %s", n.ID, n.Kafka, n.Version)
	return Result{Node: n}
}

func (m *Machine) replaceNode(im *Image, now time.Time, old, n *Node) Result {
	m.forget(old)
	n.State, n.Since, n.Drain, n.Sick = NodeUp, now, old.Drain, ""
	if n.Drain {
		n.State = NodeDraining
	}
	n.MetaReplica = m.newReplica()
	im.setNode(n)
	m.note(now, "node-replaced", subject(n), "node %d came back at %s with an empty data folder; what it had is copied to it again", n.ID, n.Kafka)
	m.lose(im, now, n.ID, true)
	return Result{Node: n}
}

// forget sees to it that a node's data folder never comes back.
func (m *Machine) forget(n *Node) {
	past := append(slices.Clone(m.replaced[n.ID]), n.Incarnation)
	m.replaced[n.ID] = past[max(0, len(past)-maxReplaced):]
}

// lose takes all of a node's replicas for lost. renew: it gets new ones in their
// place, where there is something left to copy from.
func (m *Machine) lose(im *Image, now time.Time, node record.NodeID, renew bool) {
	var moving, stuck, gone []string
	e := edit(im)
	for _, id := range sortedTopics(im) {
		for i := range im.Topics[id].Partitions {
			if !im.Topics[id].Partitions[i].names(node) {
				continue
			}
			p := e.placement(record.TopicPartition{Topic: id, Partition: record.Partition(i)})
			name := fmt.Sprintf("%s/%d", im.Topics[id].Name, i)
			had := slices.ContainsFunc(p.Replicas, func(r Replica) bool { return r.Node == node && !r.Lost })
			p.Replicas = lost(p.Replicas, node)
			p.Leaving = without(p.Leaving, node)
			left := len(present(p.Replicas))
			switch {
			case had && left == 0:
				gone = append(gone, name)
			case had && 2*left <= len(p.Replicas):
				stuck = append(stuck, name)
			}
			if m.renew(p, node, renew, left > 0) {
				moving = append(moving, name)
			}
		}
	}
	if len(moving) > 0 {
		m.note(now, "replicas-moving", fmt.Sprintf("node %d", node), "%s copied to node %d again: %s", count(len(moving), "partition is", "partitions are"), node, firstNames(moving))
	}
	if len(stuck) > 0 {
		m.note(now, "majority-lost", fmt.Sprintf("node %d", node), "%s lost the majority of the replicas with those of node %d, and can only go on by an unsafe recovery: %s", count(len(stuck), "partition", "partitions"), node, firstNames(stuck))
	}
	if len(gone) > 0 {
		m.note(now, "data-lost", fmt.Sprintf("node %d", node), "%s of which node %d had the only replica may be lost: %s; bring the old data folder back as another cluster to read it, or start them empty with an unsafe recovery", count(len(gone), "partition", "partitions"), node, firstNames(gone))
	}
}

// renew replaces the node's replica in what there shall be, and reports whether
// there is something to be copied.
func (m *Machine) renew(p *Placement, node record.NodeID, renew, left bool) bool {
	if !renew {
		p.Target = lost(p.Target, node)
		return false
	}
	if p.Target == nil {
		if !left {
			return false
		}
		p.Target, p.Cause, p.Throttle = slices.Clone(p.Replicas), CauseNewDisk, 0
	}
	i := slices.IndexFunc(p.Target, func(r Replica) bool { return r.Node == node })
	if i < 0 {
		return false
	}
	p.Target = slices.Clone(p.Target)
	p.Target[i] = Replica{ID: m.newReplica(), Node: node}
	return true
}

// lost marks the replicas on a node.
func lost(rs []Replica, node record.NodeID) []Replica {
	out := slices.Clone(rs)
	for i := range out {
		if out[i].Node == node {
			out[i].Lost = true
		}
	}
	return out
}

// without leaves out the replicas on a node.
func without(rs []Replica, node record.NodeID) []Replica {
	var out []Replica
	for _, r := range rs {
		if r.Node != node {
			out = append(out, r)
		}
	}
	return out
}

// present are the replicas that are not lost.
func present(rs []Replica) []Replica {
	var out []Replica
	for _, r := range rs {
		if !r.Lost {
			out = append(out, r)
		}
	}
	return out
}

func sortedTopics(im *Image) []record.TopicID {
	return slices.SortedFunc(maps.Keys(im.Topics), func(a, b record.TopicID) int { return slices.Compare(a[:], b[:]) })
}

// firstNames lists names, not too many.
func firstNames(names []string) string {
	const shown = 5
	if len(names) <= shown {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:shown], ", "), len(names)-shown)
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

func (m *Machine) setNodeState(im *Image, now time.Time, c *metapb.SetNodeState) Result {
	old := im.Nodes[record.NodeID(c.GetNode())]
	if old == nil {
		return Result{Err: fmt.Errorf("%w: %d", ErrUnknownNode, c.GetNode())}
	}
	n := *old
	switch n.State = NodeState(c.GetState()); n.State {
	case NodeUp:
		// A node that shall drain goes on with it when it is back.
		n.Drain = old.Drain && old.State == NodeDown
		if n.Drain {
			n.State = NodeDraining
		}
	case NodeDown:
	case NodeDraining:
		n.Drain = true
	default:
		return Result{Err: fmt.Errorf("%w: state %q", ErrInvalidNode, n.State)}
	}
	return m.changeState(im, now, old, &n)
}

// MaxSick bounds why a node is sick, in bytes.
const MaxSick = 256

func (m *Machine) setNodeSick(im *Image, now time.Time, c *metapb.SetNodeSick) Result {
	old := im.Nodes[record.NodeID(c.GetNode())]
	switch {
	case old == nil:
		return Result{Err: fmt.Errorf("%w: %d", ErrUnknownNode, c.GetNode())}
	case len(c.GetWhy()) > MaxSick:
		return Result{Err: fmt.Errorf("%w: %d bytes to say why it is sick", ErrInvalidNode, len(c.GetWhy()))}
	case (old.Sick == "") == (c.GetWhy() == ""): // what it was first is told
		return Result{Node: old}
	}
	n := *old
	n.Sick = c.GetWhy()
	im.setNode(&n)
	if n.Sick == "" {
		m.note(now, "node-well", subject(&n), "node %d is well again, and leads again", n.ID)
	} else {
		m.note(now, "node-sick", subject(&n), "node %d is sick and leads only what no other node can: %s", n.ID, n.Sick)
	}
	return Result{Node: &n}
}

func (m *Machine) drainNode(im *Image, now time.Time, c *metapb.DrainNode) Result {
	old := im.Nodes[record.NodeID(c.GetNode())]
	if old == nil {
		return Result{Err: fmt.Errorf("%w: %d", ErrUnknownNode, c.GetNode())}
	}
	n := *old
	n.Drain = c.GetOn()
	switch {
	case n.State == NodeDown: // stays so
	case n.Drain:
		n.State = NodeDraining
	default:
		n.State = NodeUp
	}
	return m.changeState(im, now, old, &n)
}

func (m *Machine) changeState(im *Image, now time.Time, old, n *Node) Result {
	if old.State == n.State && old.Drain == n.Drain {
		return Result{Node: old}
	}
	if old.State != n.State {
		n.Since = now
	}
	im.setNode(n)
	switch {
	case old.State != n.State:
		m.note(now, "node-"+string(n.State), subject(n), "node %d was %s and is %s", n.ID, old.State, n.State)
	case n.Drain:
		m.note(now, "node-draining", subject(n), "node %d is %s and shall be drained", n.ID, n.State)
	default:
		m.note(now, "node-"+string(n.State), subject(n), "node %d is %s and shall not be drained any more", n.ID, n.State)
	}
	return Result{Node: n}
}

func (m *Machine) removeNode(im *Image, now time.Time, c *metapb.RemoveNode) Result {
	id := record.NodeID(c.GetNode())
	n := im.Nodes[id]
	if n == nil {
		return Result{Err: fmt.Errorf("%w: %d", ErrUnknownNode, id)}
	}
	if masters := im.Masters(); len(masters) == 1 && masters[0].ID == id {
		return Result{Err: fmt.Errorf("%w: node %d is the last master", ErrNodeNeeded, id)}
	}
	if named := im.namedBy(id); len(named) > 0 && !c.GetForce() {
		return Result{Err: fmt.Errorf("%w: node %d has replicas of %s: %s; drain it first", ErrNodeNeeded, id, count(len(named), "partition", "partitions"), firstNames(named))}
	}
	m.dropNode(im, now, n)
	return Result{Node: n}
}

// dropNode makes a node unknown for good.
func (m *Machine) dropNode(im *Image, now time.Time, n *Node) {
	m.forget(n)
	im.Nodes = maps.Clone(im.Nodes)
	delete(im.Nodes, n.ID)
	m.note(now, "node-removed", subject(n), "node %d was removed", n.ID)
	m.lose(im, now, n.ID, false)
}

func sortedNodes(im *Image) []record.NodeID { return slices.Sorted(maps.Keys(im.Nodes)) }

// namedBy are the names of the partitions that have something on a node. What
// is lost there does not count.
func (im *Image) namedBy(node record.NodeID) []string {
	var names []string
	for _, id := range sortedTopics(im) {
		t := im.Topics[id]
		for i := range t.Partitions {
			if _, ok := t.Partitions[i].Hosted(node); ok {
				names = append(names, fmt.Sprintf("%s/%d", t.Name, i))
			}
		}
	}
	return names
}
