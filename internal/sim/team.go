package sim

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/replica"
)

// team is a replica group as the cluster's metadata knows it. It stands for the
// masters: what it says is known to every node at once.
type team struct {
	c        *cluster
	id       record.Group
	kind     kind
	founders []record.ReplicaID
	// relaxed: what it acknowledges is not synced yet.
	relaxed bool
	// peers are the replicas that there are, and where.
	peers map[record.ReplicaID]record.NodeID
	// voters and learners are the members that the team should have.
	voters, learners []record.ReplicaID
	// settled: it has them, as its leader knows.
	settled bool
	version int // of peers
	next    record.ReplicaID
	queue   *queueTeam // of queueKind
	// ran has the replicas that have run: a disk may have something of theirs.
	ran map[record.ReplicaID]bool
}

// kind is a sort of replicated machine.
type kind interface {
	name() string
	// host starts a replica; founders is its first membership, if it is of it.
	host(n *node, h *hosted, founders []record.ReplicaID) (machine, error)
	// drop removes what a node's disk has of replicas that do not run.
	drop(n *node, t *team) error
	// outcome is what a result says, the same on every replica.
	outcome(result any) string
}

// machine is one running replica as clients and the simulator use it.
type machine interface {
	// produce asks for the client's next message; done is called once, or never.
	produce(m message, done func(answer))
	// read is what the machine holds; to be asked of a leader behind a barrier, or
	// anywhere.
	read(anywhere bool) ([]message, error)
	setPeers(map[record.ReplicaID]record.NodeID)
	// remove ends the replica for good, and its data with it.
	remove() error
}

func (c *cluster) makeTeams() {
	kinds := []kind{partitionKind{}, ledgerKind{}, metadataKind{}}
	teams := 2 + c.rng.IntN(3)
	if c.withQueues() { // two more come, and much happens there
		teams = 2
		kinds[1] = kinds[1+c.rng.IntN(2)]
	}
	for i := range teams {
		t := c.makeTeam(kinds[i%3])
		if _, ok := t.kind.(ledgerKind); ok && c.cfg.Seed%4 >= 2 {
			t.relaxed = true
			c.log("g%d is relaxed", t.id)
		}
	}
}

func (c *cluster) makeTeam(k kind) *team {
	t := &team{c: c, id: record.Group(1000 + len(c.teams)), kind: k, peers: map[record.ReplicaID]record.NodeID{}, settled: true, next: 100, ran: map[record.ReplicaID]bool{}}
	for _, n := range c.some(3) {
		id := record.ReplicaID(n)
		t.founders = append(t.founders, id)
		t.peers[id] = n
	}
	t.voters = slices.Clone(t.founders)
	c.teams = append(c.teams, t)
	c.log("g%d is a %s on %v", t.id, t.kind.name(), t.founders)
	return t
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }

// some picks k nodes.
func (c *cluster) some(k int) []record.NodeID {
	var out []record.NodeID
	for _, i := range c.rng.Perm(len(c.nodes))[:k] {
		out = append(out, record.NodeID(i+1))
	}
	slices.Sort(out)
	return out
}

// at is the team's replica on a node; 0: none.
func (t *team) at(n record.NodeID) record.ReplicaID {
	var newest record.ReplicaID
	for id, on := range t.peers {
		if on == n {
			newest = max(newest, id)
		}
	}
	return newest
}

// fresh makes a replica id, never used before.
func (t *team) fresh(on record.NodeID) record.ReplicaID {
	t.next++
	t.setPeers(func(p map[record.ReplicaID]record.NodeID) { p[t.next] = on })
	return t.next
}

// setPeers changes the peers: nodes hold the old map.
func (t *team) setPeers(change func(map[record.ReplicaID]record.NodeID)) {
	p := maps.Clone(t.peers)
	change(p)
	t.peers = p
	t.version++
}

// replace gives the place of a node's replica, whose data is gone, to a new one.
func (t *team) replace(on record.NodeID) {
	old := t.at(on)
	if old == 0 {
		return
	}
	t.setPeers(func(p map[record.ReplicaID]record.NodeID) { delete(p, old) })
	id := t.fresh(on)
	swap := func(list []record.ReplicaID) []record.ReplicaID {
		list = slices.Clone(list)
		for i := range list {
			if list[i] == old {
				list[i] = id
			}
		}
		return list
	}
	t.voters, t.learners, t.settled = swap(t.voters), swap(t.learners), false
	t.c.log("g%d replica %d on n%d is lost, %d takes its place", t.id, old, on, id)
}

// move gives the team other voters and perhaps a learner.
func (t *team) move() {
	c := t.c
	k := min(1+2*c.rng.IntN(3), len(c.nodes))
	if k == 1 && !c.oneIn(4) {
		k = 3
	}
	nodes := c.some(min(k+c.rng.IntN(2), len(c.nodes)))
	t.voters, t.learners, t.settled = nil, nil, false
	for i, n := range nodes {
		id := t.at(n)
		if id == 0 {
			id = t.fresh(n)
		}
		if i < k {
			t.voters = append(t.voters, id)
		} else {
			t.learners = append(t.learners, id)
		}
	}
	c.log("g%d should have voters %v, learners %v", t.id, t.voters, t.learners)
}

// drive takes membership changes of the groups that the node leads a step further.
func (n *node) drive() {
	for _, t := range n.c.teams {
		h := n.here[t.id]
		if h == nil || t.settled || !h.group.Status().Leading || n.dying {
			continue
		}
		done, err := h.group.Drive(context.Background(), t.voters, t.learners)
		n.c.log("n%d drives g%d to %v: %v %v", n.id, t.id, t.voters, done, err)
		if err != nil && !errors.Is(err, replica.ErrNotLeader) {
			n.c.faults.count("membership change refused")
		}
		if done && !n.dying {
			t.settled = true
			n.c.faults.count("membership changed")
			t.setPeers(func(p map[record.ReplicaID]record.NodeID) {
				for id := range p {
					if !slices.Contains(t.voters, id) && !slices.Contains(t.learners, id) {
						delete(p, id)
					}
				}
			})
		}
	}
}

// leader is a node that may serve the team, as it believes; nil: none.
func (t *team) leader() *node {
	for _, n := range t.c.nodes {
		if h := n.here[t.id]; n.up && h != nil && h.group != nil && h.group.Status().Leading {
			return n
		}
	}
	return nil
}
