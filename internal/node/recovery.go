package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/replica"
)

// The masters' groups may have lost their majority for good. Then an operator has one
// stopped master go on alone (RecoverMasters):
//
//	1. begun       meta.properties says that it is under way, and who is given up; a node
//	               does not start on such a folder
//	2. forced      the folder's replicas of the masters' groups are their only voters: one
//	               write to the write-ahead log; then meta.properties says so
//	3. recovered   at its start the node leads them and commits who is given up, before it
//	               registers; then meta.properties says nothing of it any more
//
// A crash between two of these is followed by the same step once more, which does no harm.
//
// All other nodes get new replicas of the masters' groups, as theirs may hold what the
// survivor lacks, and what has been told of that is void. They find out at their next start, from the
// masters (anew), and begin with an empty one. Their partitions stay as they are.

// recovery is what meta.properties says of an unsafe recovery; no ID: there is none.
type recovery struct {
	ID     string
	Forced bool
	Lost   []meta.LostMaster
}

func joinLost(lost []meta.LostMaster) string {
	parts := make([]string, len(lost))
	for i, l := range lost {
		parts[i] = fmt.Sprintf("%d:%s", l.Node, l.Incarnation)
	}
	return strings.Join(parts, ",")
}

func splitLost(s string) ([]meta.LostMaster, error) {
	var out []meta.LostMaster
	if s == "" {
		return nil, nil
	}
	for part := range strings.SplitSeq(s, ",") {
		node, incarnation, ok := strings.Cut(part, ":")
		n, err := strconv.ParseInt(node, 10, 32)
		if !ok || err != nil {
			return nil, fmt.Errorf("recovery.lost=%q is not a list of nodes with their data folders", s)
		}
		out = append(out, meta.LostMaster{Node: record.NodeID(n), Incarnation: incarnation})
	}
	return out, nil
}

// endRecovery commits what an operator has decided, if this node's folder says so.
func (n *Node) endRecovery(ctx context.Context) error {
	r := n.id().Recovery
	if r.ID == "" {
		return nil
	}
	for {
		res, err := n.host.Load().Group(metaGroup).ProposeWait(ctx, meta.RecoverMasters(time.Now(), r.ID, n.id().Node, r.Lost))
		switch {
		case err == nil && res.(applied).result.Err != nil:
			return fmt.Errorf("unsafe recovery of the masters: %w", res.(applied).result.Err)
		case err == nil:
			n.logger.Warn("the masters' groups go on from what this node has, as an operator has decided", "lost", joinLost(r.Lost))
			id := n.id()
			id.Recovery = recovery{}
			return n.own(id)
		case ctx.Err() != nil || errors.Is(err, replica.ErrStopped) || errors.Is(err, replica.ErrDamaged):
			return fmt.Errorf("unsafe recovery of the masters: %w", err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(retryLead):
		}
	}
}

// anew takes another replica of the masters' groups if the cluster has given this node one:
// what it has may be ahead of what the cluster went on from. Ids only grow, so whoever
// names a higher one knows later.
func (n *Node) anew(answers []answer) error {
	id := n.id()
	var last *answer
	for i, a := range answers {
		at := metaReplicaIn(a, id.Node)
		if a.GetClusterId() == id.ClusterID && a.GetEstablished() && at > id.MetaReplica {
			id.MetaReplica, last = at, &answers[i]
		}
	}
	if last == nil {
		return nil
	}
	n.logger.Warn("this node has another replica of the masters' groups now, as they were recovered from what one master had: what is here of them is copied anew", "replica", id.MetaReplica)
	n.seedFrom(*last)
	id.Anew, id.Founders = true, nil
	return n.own(id)
}

func metaReplicaIn(a answer, node record.NodeID) record.ReplicaID {
	i := slices.IndexFunc(a.GetNodes(), func(at *peerAddress) bool { return record.NodeID(at.GetNode()) == node })
	if i < 0 {
		return 0
	}
	return record.ReplicaID(a.GetNodes()[i].GetMetaReplica())
}

// dropOldMasters forgets replicas of the masters' groups that are not this node's any more.
func (n *Node) dropOldMasters() error {
	id := n.id()
	if !id.Anew {
		return nil
	}
	for _, g := range n.masterGroups() {
		if err := n.host.Load().Drop(g); err != nil {
			return err
		}
	}
	id.Anew = false
	return n.own(id)
}

// lookForRecovery says what has to be done if the masters were recovered while this node
// ran: those of now speak to another replica than the one here.
func (n *Node) lookForRecovery() {
	if g := n.host.Load().Group(metaGroup); g != nil && g.Superseded() && !n.outdated.Swap(true) {
		n.logger.Error(outdatedText)
	}
}

const outdatedText = "the masters were recovered from what one of them had, and this node follows those before: restart it, and it follows the new ones; its partitions stay"
