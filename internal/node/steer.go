package node

import (
	"context"
	"maps"
	"time"

	"connectrpc.com/connect"

	"github.com/tube-mq/tube/internal/master"
	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/pulse"
	"github.com/tube-mq/tube/internal/record"
	peerv1 "github.com/tube-mq/tube/proto/tube/peer/v1"
)

// steering is what the active master remembers between two looks at the cluster.
type steering struct {
	seen map[record.NodeID]master.Seen
	// tried are leaders that were asked to hand over, and when.
	tried map[record.TopicPartition]time.Time
	// shards is when coordinators were last asked to hand a shard over.
	shards time.Time
	next   time.Time // no plan before, if nothing changes
	sick   map[record.NodeID]string
	// settled is what was planned for last, if there was nothing to do, and there will not be
	// unless it changes; else nil.
	settled *meta.Image
}

const (
	steerEvery = 500 * time.Millisecond
	// planShare is how much of a processor planning may take, 1/planShare: with very many
	// partitions there are longer pauses, up to maxPlanPause.
	planShare    = 200
	maxPlanPause = 5 * time.Second
	// tryAgain is how long to wait before a leader is asked once more.
	tryAgain = 10 * time.Second
)

// steer does what the active master has to, while this node's is: it looks at the
// cluster, and carries out what the planner makes of it.
func (n *Node) steer(ctx context.Context) {
	s := steering{seen: map[record.NodeID]master.Seen{}, tried: map[record.TopicPartition]time.Time{}}
	pulse.Vary(ctx, steerEvery, func() time.Duration {
		n.steerOnce(ctx, &s)
		return n.unlessAlone(n.meta.Image(), steerEvery)
	})
}

func (n *Node) steerOnce(ctx context.Context, s *steering) {
	changed := s.look(n)
	g := n.host.Load().Group(metaGroup)
	if g == nil || !g.Status().Leading {
		clear(s.tried)
		return
	}
	began := time.Now()
	im := n.meta.Image()
	if began.Before(s.next) && !changed && (s.settled == nil || s.settled == im) {
		return
	}
	v := n.view(s)
	plan := master.Plan(v)
	s.next, s.settled = planAgain(began, time.Since(began)), nil
	if len(plan) == 0 && n.alone(im) {
		s.next, s.settled = began.Add(maxPlanPause), im
		return
	}
	if len(plan) > 0 {
		n.carryOut(ctx, s, plan)
		s.next = began // there may be more to do
	}
	if time.Since(s.shards) > tryAgain {
		n.spreadCoordinators(ctx, s, v)
	}
}

// planAgain is when to plan next, if nothing changes before, after planning that took so long.
func planAgain(began time.Time, took time.Duration) time.Time {
	return began.Add(min(planShare*took, maxPlanPause))
}

// spreadCoordinators asks masters that lead more groups shards than their share to
// hand some over.
func (n *Node) spreadCoordinators(ctx context.Context, s *steering, v master.View) {
	leads := map[record.Group]record.NodeID{}
	for _, g := range n.masterGroups()[1:] {
		if node, _ := n.leaders.of(g); node >= 0 {
			leads[g] = node
		}
	}
	asks := map[record.NodeID]*peerv1.HandOverRequest{}
	for _, t := range master.SpreadCoordinators(v, leads) {
		if asks[t.From] == nil {
			asks[t.From] = &peerv1.HandOverRequest{}
		}
		asks[t.From].Groups = append(asks[t.From].Groups, &peerv1.HandOver{Group: uint64(t.Group), Replica: uint64(v.Image.Nodes[t.To].MetaReplica)})
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	for node, ask := range asks {
		s.shards = time.Now()
		n.askHandOver(ctx, node, ask)
	}
}

// look notes who is heard of since when, and who is sick, and reports whether that has changed.
func (s *steering) look(n *Node) (changed bool) {
	now := time.Now()
	for id := range n.meta.Image().Nodes {
		alive := n.alive(id)
		if old, ok := s.seen[id]; !ok || old.Alive != alive {
			s.seen[id] = master.Seen{Alive: alive, Since: now}
			changed = true
		}
	}
	if sick := n.health.all(); !maps.Equal(sick, s.sick) {
		s.sick, changed = sick, true
	}
	for tp, at := range s.tried {
		if now.Sub(at) > tryAgain {
			delete(s.tried, tp)
		}
	}
	return changed
}

// view is what the planner looks at.
func (n *Node) view(s *steering) master.View {
	im := n.meta.Image()
	v := master.View{
		Now: time.Now(), Image: im, Alive: map[record.NodeID]master.Seen{}, Leads: map[record.TopicPartition]record.NodeID{},
		Sick:   n.health.all(),
		Tried:  func(tp record.TopicPartition) bool { _, ok := s.tried[tp]; return ok },
		Config: master.PlannerConfig{ReplaceAfter: n.cfg.ReplaceAfter},
	}
	for id, seen := range s.seen {
		if im.Nodes[id] != nil {
			v.Alive[id] = seen
		}
	}
	for id, t := range im.Topics {
		for i := range t.Partitions {
			if node, _ := n.leaders.of(t.Partitions[i].Group); node >= 0 {
				v.Leads[record.TopicPartition{Topic: id, Partition: record.Partition(i)}] = node
			}
		}
	}
	return v
}

// carryOut proposes what is for the metadata, and asks leaders for the rest.
func (n *Node) carryOut(ctx context.Context, s *steering, plan []master.Action) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	transfers, err := n.master.CarryOut(ctx, plan, n.cfg.ReplicationThrottle)
	if err != nil {
		n.logger.Debug("plan not carried out yet", "err", err)
		return
	}
	asks := map[record.NodeID]*peerv1.HandOverRequest{}
	im := n.meta.Image()
	for _, t := range transfers {
		s.tried[t.TopicPartition] = time.Now()
		p := im.Partition(t.TopicPartition)
		if p == nil {
			continue
		}
		to, ok := p.Hosted(t.To)
		if !ok {
			continue
		}
		if asks[t.From] == nil {
			asks[t.From] = &peerv1.HandOverRequest{}
		}
		asks[t.From].Groups = append(asks[t.From].Groups, &peerv1.HandOver{Group: uint64(p.Group), Replica: uint64(to.ID)})
	}
	for node, ask := range asks {
		n.askHandOver(ctx, node, ask)
	}
}

func (n *Node) askHandOver(ctx context.Context, node record.NodeID, ask *peerv1.HandOverRequest) {
	if node == n.id().Node {
		_, _ = peerService{n: n}.HandOver(ctx, connect.NewRequest(ask))
		return
	}
	c, err := n.peerClient(node)
	if err == nil {
		_, err = c.HandOver(ctx, connect.NewRequest(ask))
	}
	if err != nil {
		n.logger.Debug("a leader was not asked to hand over", "node", node, "err", err)
	}
}

// Problems implements rpc.Cluster for what concerns the whole cluster.
func (n *Node) clusterProblems() []string {
	if n.meta.Image().ClusterID == "" || n.master == nil {
		return nil
	}
	s := steering{seen: map[record.NodeID]master.Seen{}}
	s.look(n)
	if im := n.meta.Image(); im.ClusterID == "" || im.Nodes[n.id().Node] == nil || len(im.Nodes) < 1 {
		return nil
	}
	return master.Problems(n.view(&s))
}

// knownEnds asks the nodes that are there how far their replicas of a partition go.
func (n *Node) knownEnds(ctx context.Context, tp record.TopicPartition) []master.KnownEnd {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	var out []master.KnownEnd
	ask := connect.NewRequest(&peerv1.EndRequest{Topic: tp.Topic[:], Partition: int32(tp.Partition)})
	for id := range n.meta.Image().Nodes {
		var r *connect.Response[peerv1.EndResponse]
		var err error
		if id == n.id().Node {
			r, err = peerService{n: n}.End(ctx, ask)
		} else if c, cerr := n.peerClient(id); cerr == nil && n.alive(id) {
			r, err = c.End(ctx, ask)
		}
		if err == nil && r != nil && r.Msg.GetHosted() {
			out = append(out, master.KnownEnd{Node: id, End: record.Offset(r.Msg.GetEnd()), At: time.Now(), Alive: true})
		}
	}
	return out
}
