package meta

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tube-mq/tube/internal/meta/metapb"
	"github.com/tube-mq/tube/internal/record"
)

// LostMaster is a master that an unsafe recovery gives up.
type LostMaster struct {
	Node record.NodeID
	// Incarnation of the data folder that it had; empty if it never registered. Another
	// folder of the same node id is another matter.
	Incarnation string
}

// RecoverMasters begins the cluster anew from what the survivor's replicas of the masters'
// groups hold. Its node proposes it once it is their only voter. id names the operator's
// word: it counts once, however often it is proposed.
func RecoverMasters(now time.Time, id string, survivor record.NodeID, lost []LostMaster) []byte {
	c := &metapb.RecoverMasters{Id: id, Survivor: int32(survivor)}
	for _, l := range lost {
		c.Lost = append(c.Lost, &metapb.LostMaster{Node: int32(l.Node), Incarnation: l.Incarnation})
	}
	return encode(now, &metapb.Command{Kind: &metapb.Command_RecoverMasters{RecoverMasters: c}})
}

// CommandTime is when a command was proposed, for people; ok is false if it does not decode.
func CommandTime(data []byte) (at time.Time, ok bool) {
	var c metapb.Command
	if err := proto.Unmarshal(data, &c); err != nil || c.GetTimeMillis() == 0 {
		return time.Time{}, false
	}
	return time.UnixMilli(c.GetTimeMillis()), true
}

// What was given out in the part of the log that is lost may still be on somebody's disk,
// or in a producer's hands: counters skip more than can have been given there.
const (
	skippedIDs         = 1 << 24
	skippedProducerIDs = 1 << 40
)

func (m *Machine) recoverMasters(im *Image, now time.Time, c *metapb.RecoverMasters) Result {
	survivor := im.Nodes[record.NodeID(c.GetSurvivor())]
	switch {
	case c.GetId() == "" || survivor == nil || !survivor.Has(RoleMaster):
		return Result{Err: fmt.Errorf("%w: %d is no master to go on from", ErrUnknownNode, c.GetSurvivor())}
	case c.GetId() == im.Recovered:
		return Result{Node: survivor}
	}
	im.Recovered = c.GetId()
	m.nextGroup += skippedIDs
	m.nextReplica = max(m.nextReplica, FirstReplica) + skippedIDs
	m.nextProducerID += skippedProducerIDs
	im.LastQueueGroup += skippedIDs
	// Those that have not registered may have voted all the same.
	im.Founders = slices.DeleteFunc(slices.Clone(im.Founders), func(f Founder) bool { return !f.Taken && f.Node != survivor.ID })
	var names []string
	for _, l := range c.GetLost() {
		names = append(names, fmt.Sprint(l.GetNode()))
	}
	m.note(now, "unsafe-recovery", "masters", "the masters' groups go on from what node %d has: what was acknowledged and did not reach it is given up, and so are the masters %s", survivor.ID, strings.Join(names, ", "))
	for _, l := range c.GetLost() {
		m.giveUp(im, now, l)
	}
	m.renewFollowers(im, survivor)
	return Result{Node: survivor}
}

// giveUp removes a master whose disk is lost. Its data folder never comes back.
func (m *Machine) giveUp(im *Image, now time.Time, l *metapb.LostMaster) {
	id := record.NodeID(l.GetNode())
	if n := im.Nodes[id]; n != nil && n.Incarnation == l.GetIncarnation() {
		m.dropNode(im, now, n)
	}
}

// renewFollowers gives all other nodes new replicas of the masters' groups: theirs may hold
// what the survivor lacks. They begin empty, at the node's next start.
func (m *Machine) renewFollowers(im *Image, survivor *Node) {
	for _, id := range sortedNodes(im) {
		if id == survivor.ID {
			continue
		}
		n := *im.Nodes[id]
		n.MetaReplica = m.newReplica()
		im.setNode(&n)
	}
}
