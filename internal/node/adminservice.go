package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	"connectrpc.com/connect"

	"github.com/tube-mq/tube/internal/master"
	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/rpc"
	peerv1 "github.com/tube-mq/tube/proto/tube/peer/v1"
	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
	"github.com/tube-mq/tube/proto/tube/v1/tubev1connect"
)

// Limits of what an operator's question costs.
const (
	// askTimeout is how long one other node may take to answer; who hangs is told
	// of as such, and holds up nobody's answer for longer.
	askTimeout = 2 * time.Second
	// transferTimeout is how long leaders may take to hand over: a little more than
	// an election, as one that fails to is followed by one.
	transferTimeout = 5 * time.Second
)

// operator is what changes the cluster, for the HTTP door.
func (n *Node) operator() (rpc.Operator, error) {
	if !n.ready.Load() {
		return rpc.Operator{}, errStarting
	}
	return rpc.Operator{Nodes: n.master, Placement: n.master, Replicas: leadership{n}}, nil
}

// ClusterProblems implements rpc.Cluster.
func (c cluster) ClusterProblems() []string {
	if !c.n.ready.Load() {
		return nil // the master is not there yet
	}
	return c.n.clusterProblems()
}

// NodeProblems implements rpc.Cluster.
func (c cluster) NodeProblems(ctx context.Context) []rpc.NodeProblems {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	var asked sync.WaitGroup
	var mu sync.Mutex
	var out []rpc.NodeProblems
	for id := range c.n.meta.Image().Nodes {
		if id == c.n.id().Node {
			continue
		}
		asked.Go(func() {
			problems, err := c.n.problemsOf(ctx, id)
			mu.Lock()
			defer mu.Unlock()
			out = append(out, rpc.NodeProblems{Node: id, Problems: problems, Unreachable: err != nil})
		})
	}
	asked.Wait()
	slices.SortFunc(out, func(a, b rpc.NodeProblems) int { return cmp.Compare(a.Node, b.Node) })
	return out
}

// problemsOf asks a node what it needs help with.
func (n *Node) problemsOf(ctx context.Context, node record.NodeID) ([]string, error) {
	url, c, err := n.peers.transport.Client(node)
	if err != nil {
		return nil, err
	}
	r, err := tubev1connect.NewClusterServiceClient(c, url, connect.WithReadMaxBytes(maxPeerMessageBytes)).Status(ctx, connect.NewRequest(&tubev1.StatusRequest{}))
	if err != nil {
		return nil, err
	}
	return r.Msg.Problems, nil
}

// problemsForPeers answers problemsOf. It is the HTTP door's Status and nothing
// else of it: the peer address is the one that nodes are known to reach each
// other at.
func (n *Node) problemsForPeers() (string, http.Handler) {
	return tubev1connect.ClusterServiceStatusProcedure, connect.NewUnaryHandler(tubev1connect.ClusterServiceStatusProcedure,
		func(context.Context, *connect.Request[tubev1.StatusRequest]) (*connect.Response[tubev1.StatusResponse], error) {
			return connect.NewResponse(&tubev1.StatusResponse{NodeId: int32(n.id().Node), Problems: cluster{n}.Problems()}), nil
		})
}

// leadership is what the doors can ask of partitions' leaders, wherever they are.
type leadership struct{ n *Node }

// Members implements rpc.ReplicaAdmin.
func (l leadership) Members(ctx context.Context, partitions []record.TopicPartition) map[record.TopicPartition]rpc.Members {
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	im := l.n.meta.Image()
	names := map[uint64]record.TopicPartition{}
	asks := map[record.NodeID]*peerv1.MembersRequest{}
	for _, tp := range partitions {
		p := im.Partition(tp)
		if p == nil {
			continue
		}
		leader, _ := l.n.partitions().Leader(tp.Topic, tp.Partition)
		if leader < 0 {
			continue
		}
		if asks[leader] == nil {
			asks[leader] = &peerv1.MembersRequest{}
		}
		asks[leader].Groups = append(asks[leader].Groups, uint64(p.Group))
		names[uint64(p.Group)] = tp
	}
	var asked sync.WaitGroup
	var mu sync.Mutex
	out := make(map[record.TopicPartition]rpc.Members, len(partitions))
	for node, ask := range asks {
		asked.Go(func() {
			groups := l.askMembers(ctx, node, ask)
			mu.Lock()
			defer mu.Unlock()
			for _, g := range groups {
				out[names[g.GetGroup()]] = members(node, g)
			}
		})
	}
	asked.Wait()
	return out
}

func (l leadership) askMembers(ctx context.Context, node record.NodeID, ask *peerv1.MembersRequest) []*peerv1.GroupMembers {
	var r *connect.Response[peerv1.MembersResponse]
	var err error
	if node == l.n.id().Node {
		r, err = peerService(l).Members(ctx, connect.NewRequest(ask))
	} else if c, e := l.n.peerClient(node); e != nil {
		err = e
	} else {
		r, err = c.Members(ctx, connect.NewRequest(ask))
	}
	if err != nil {
		l.n.logger.Debug("a leader was not asked for its replicas", "node", node, "err", err)
		return nil
	}
	return r.Msg.GetGroups()
}

func members(leader record.NodeID, g *peerv1.GroupMembers) rpc.Members {
	out := rpc.Members{Leader: leader, Last: record.Index(g.GetLast())}
	for _, m := range g.GetMembers() {
		out.Members = append(out.Members, rpc.Member{
			Replica: record.ReplicaID(m.GetReplica()), Voter: m.GetVoter(), Match: record.Index(m.GetMatch()), Current: m.GetCurrent(),
		})
	}
	return out
}

// TransferLeaders implements rpc.ReplicaAdmin and kafka.Leaders.
func (l leadership) TransferLeaders(ctx context.Context, transfers []master.TransferLeader) []error {
	ctx, cancel := context.WithTimeout(ctx, transferTimeout)
	defer cancel()
	errs := make([]error, len(transfers))
	asks := map[record.NodeID]*peerv1.HandOverRequest{}
	for i, t := range transfers {
		var ask *peerv1.HandOver
		if ask, errs[i] = l.check(t); errs[i] != nil {
			continue
		}
		if asks[t.From] == nil {
			asks[t.From] = &peerv1.HandOverRequest{}
		}
		asks[t.From].Groups = append(asks[t.From].Groups, ask)
	}
	var asked sync.WaitGroup
	for node, ask := range asks {
		asked.Go(func() { l.n.askHandOver(ctx, node, ask) })
	}
	asked.Wait()
	for i, t := range transfers {
		if errs[i] == nil {
			errs[i] = l.await(ctx, t)
		}
	}
	return errs
}

// check says what a leader is to be asked for.
func (l leadership) check(t master.TransferLeader) (*peerv1.HandOver, error) {
	p := l.n.meta.Image().Partition(t.TopicPartition)
	if p == nil {
		return nil, meta.ErrUnknownPartition
	}
	if t.To < 0 {
		return &peerv1.HandOver{Group: uint64(p.Group)}, nil
	}
	i := slices.IndexFunc(p.Replicas, func(r meta.Replica) bool { return r.Node == t.To && !r.Lost })
	if i < 0 {
		return nil, fmt.Errorf("%w: node %d has no replica of this partition", meta.ErrInvalidPlacement, t.To)
	}
	if !l.n.alive(t.To) {
		return nil, fmt.Errorf("%w: node %d is not heard of", rpc.ErrNotTransferred, t.To)
	}
	return &peerv1.HandOver{Group: uint64(p.Group), Replica: uint64(p.Replicas[i].ID)}, nil
}

// await returns once the partition is led as was asked.
func (l leadership) await(ctx context.Context, t master.TransferLeader) error {
	for {
		news := l.n.leaders.news()
		node, _ := l.n.partitions().Leader(t.Topic, t.Partition)
		if node == t.To || t.To < 0 && node >= 0 && node != t.From {
			return nil
		}
		select {
		case <-news:
		case <-time.After(20 * time.Millisecond): // what this node itself gives up is no news
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), context.Canceled) {
				return ctx.Err()
			}
			return fmt.Errorf("%w within %v: the other replica may lack entries; see the replicas of the partition", rpc.ErrNotTransferred, transferTimeout)
		}
	}
}
