package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"
	"github.com/google/uuid"

	"github.com/tube-mq/tube/internal/config"
	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/record"
	peerv1 "github.com/tube-mq/tube/proto/tube/peer/v1"
)

// A node whose data folder is empty belongs to no cluster yet. It asks the
// masters that it was told of:
//
//	one of them is in a cluster          → it joins that one. It never takes part as
//	                                       what it may have been before: a replica
//	                                       that lost its log gets a new id.
//	all of them are as empty as it is    → the one of the lowest id founds a cluster
//	one of them is just founding one     → it adopts that, as a voter from the start
//	one of them is of a cluster that     → it waits until that is there, and joins it: it
//	was there before, and that is not      may be who voted for it before its folder was
//	there yet                              emptied
//	some of them do not answer           → it waits: who does not answer may know of
//	                                       a cluster, and two must not come of it
//
// So a new cluster needs all of its masters once. After that a majority is enough.
//
// A founder goes on once all of them are founders. Else a majority of them could be a
// cluster before the others have asked again: those would join it with new ids, and until
// they have taken their old ones' places in the masters' groups one more loss would be one
// too many.

const (
	greetEvery   = 200 * time.Millisecond
	greetTimeout = 2 * time.Second
	joinTimeout  = 3 * time.Second
	tellEvery    = 5 * time.Second
	// gatherEvery is greetEvery of founders, and gatherTimeout how long they wait for the
	// others: one of them may have died meanwhile.
	gatherEvery   = 50 * time.Millisecond
	gatherTimeout = 10 * time.Second
)

// belong returns once this node's folder belongs to a cluster.
func (n *Node) belong(ctx context.Context) error {
	others := n.otherMasters()
	if n.owned.Load() && n.id().MetaReplica != 0 {
		return n.checkMasters(ctx, others)
	}
	if len(others) == 0 && !n.owned.Load() {
		return n.adopt(cmp.Or(n.id().ClusterID, uuid.NewString()), []record.NodeID{n.id().Node})
	}
	var told time.Time
	for {
		answers, missing, refusals := n.greet(ctx, others)
		if len(refusals) > 0 {
			return refusals[0].elsewhere()
		}
		if done, err := n.decide(ctx, answers, missing); done || err != nil {
			return err
		}
		if time.Since(told) > tellEvery {
			told = time.Now()
			n.logger.Info("waiting for the cluster", "for", waitingFor(answers, missing))
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("it belongs to no cluster yet, and waited for %s", waitingFor(answers, missing))
		case <-time.After(greetEvery):
		}
	}
}

func (n *Node) otherMasters() []config.Master {
	return slices.DeleteFunc(slices.Clone(n.cfg.Masters), func(m config.Master) bool { return m.ID == n.id().Node })
}

// silent is a master that does not answer.
type silent struct {
	config.Master
	err error
}

// String names the master, and what is wrong if it is more than that nobody is there:
// certificates that do not fit do not mend themselves.
func (s silent) String() string {
	text := s.err.Error()
	says := func(parts ...string) bool {
		return slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(text, part) })
	}
	switch {
	case says("tls:", "certificate"):
		return fmt.Sprintf("%s (%s)", s.Master, said(s.err))
	case says("HTTP response to HTTPS client"):
		return fmt.Sprintf("%s (it speaks plaintext, and this node TLS: all nodes have to switch together)", s.Master)
	case says("malformed HTTP response", "unexpected EOF", "connection reset"): // what a TLS listener does about plaintext
		return fmt.Sprintf("%s (it hangs up: if the other nodes talk by TLS, this one needs --peer-tls-cert too)", s.Master)
	}
	return s.Master.String()
}

func waitingFor(answers []answer, missing []silent) string {
	for _, a := range answers {
		if a.GetClusterId() != "" && len(a.GetFounders()) == 0 {
			return fmt.Sprintf("masters of cluster %s to be a majority: this node's data folder is empty, and cannot stand in for the one that it had", a.GetClusterId())
		}
	}
	if len(missing) == 0 {
		return "a master to found it, or to be active"
	}
	slices.SortFunc(missing, func(a, b silent) int { return cmp.Compare(a.ID, b.ID) })
	names := make([]string, len(missing))
	for i, m := range missing {
		names[i] = m.String()
	}
	return "masters " + strings.Join(names, ", ") + " to answer: a new cluster needs all of its masters once"
}

// answer is what a master said.
type answer struct {
	*peerv1.GreetResponse
	addr string
}

// refusal is a master's word that it will not have this node.
type refusal struct {
	master config.Master
	why    string
	// final: the cluster has put another data folder in this one's place, has seen later
	// starts of it, or uses what this program does not know. One master's word is enough.
	final bool
}

// Error implements error.
func (r *refusal) Error() string {
	return fmt.Sprintf("the master at %s refuses this node: %s", r.master.Addr, r.why)
}

// elsewhere is what to do about a refusal that is not final.
func (r *refusal) elsewhere() error {
	if r.final {
		return r
	}
	return fmt.Errorf("%w: give the right --masters or --data", r)
}

// checkMasters ends the start of a node whose folder was replaced, or is of another
// cluster than its masters. Of the latter one master alone does not decide: it may
// be the one with the wrong folder.
func (n *Node) checkMasters(ctx context.Context, others []config.Master) error {
	answers, _, refusals := n.greet(ctx, others)
	for _, err := range refusals {
		if err.final {
			return err
		}
	}
	if 2*len(refusals) > len(n.cfg.Masters) {
		return refusals[0].elsewhere()
	}
	return n.anew(answers)
}

// greet asks all masters at once. missing did not answer, refusals are of those
// that will not have this node.
func (n *Node) greet(ctx context.Context, others []config.Master) (answers []answer, missing []silent, refusals []*refusal) {
	ctx, cancel := context.WithTimeout(ctx, greetTimeout)
	defer cancel()
	id := n.id()
	var mu sync.Mutex
	var asked sync.WaitGroup
	for _, m := range others {
		asked.Go(func() {
			r, err := n.clientAt(m.Addr).Greet(ctx, connect.NewRequest(&peerv1.GreetRequest{Node: int32(id.Node), Incarnation: id.Incarnation, Starts: id.Starts, Run: id.Run, Level: uint32(meta.KnownLevel)}))
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err == nil:
				answers = append(answers, answer{r.Msg, m.Addr})
			case connect.CodeOf(err) == connect.CodePermissionDenied || connect.CodeOf(err) == connect.CodeFailedPrecondition:
				refusals = append(refusals, &refusal{m, said(err), connect.CodeOf(err) == connect.CodePermissionDenied})
			default:
				n.logger.Debug("a master does not answer", "master", m.String(), "err", err)
				missing = append(missing, silent{m, err})
			}
		})
	}
	asked.Wait()
	return answers, missing, refusals
}

// said is the sentence of an answer that is an error, without the protocol's code.
func said(err error) string {
	var c *connect.Error
	if errors.As(err, &c) {
		return c.Message()
	}
	return err.Error()
}

// decide acts on what the masters said; done if the folder belongs to a cluster now.
func (n *Node) decide(ctx context.Context, answers []answer, missing []silent) (done bool, err error) {
	id := n.id()
	for _, a := range answers {
		if a.GetClusterId() != "" && id.ClusterID != "" && a.GetClusterId() != id.ClusterID {
			return false, fmt.Errorf("the master at %s is of cluster %s, this node is of cluster %s: give the right --masters or --data", a.addr, a.GetClusterId(), id.ClusterID)
		}
	}
	for _, a := range answers {
		if a.GetEstablished() {
			return n.joinBy(ctx, a)
		}
	}
	if n.owned.Load() {
		return false, nil // it was about to join
	}
	lowest := n.cfg.HasRole(config.RoleMaster)
	for _, a := range answers {
		founders := make([]record.NodeID, len(a.GetFounders()))
		for i, f := range a.GetFounders() {
			founders[i] = record.NodeID(f)
		}
		if a.GetClusterId() != "" {
			if slices.Contains(founders, id.Node) {
				return n.foundWith(ctx, a.GetClusterId(), founders)
			}
			return false, nil // it is founded without us, or was before: we join when it is there
		}
		lowest = lowest && id.Node < record.NodeID(a.GetNode())
	}
	if !lowest || len(missing) > 0 {
		return false, nil
	}
	founders := []record.NodeID{}
	for _, m := range n.cfg.Masters {
		founders = append(founders, m.ID)
	}
	return n.foundWith(ctx, cmp.Or(id.ClusterID, uuid.NewString()), founders)
}

// foundWith makes this node a founder, and returns once the others are too, or are
// not waited for any more.
func (n *Node) foundWith(ctx context.Context, cluster string, founders []record.NodeID) (bool, error) {
	if err := n.adopt(cluster, founders); err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, gatherTimeout)
	defer cancel()
	others := n.otherMasters()
	for ctx.Err() == nil {
		answers, _, _ := n.greet(ctx, others)
		there := 0
		for _, a := range answers {
			if a.GetEstablished() {
				return true, nil
			}
			if a.GetClusterId() == cluster {
				there++
			}
		}
		if there == len(others) {
			return true, nil
		}
		select {
		case <-ctx.Done():
		case <-time.After(gatherEvery):
		}
	}
	return true, nil
}

// adopt makes this node a founder.
func (n *Node) adopt(cluster string, founders []record.NodeID) error {
	id := n.id()
	slices.Sort(founders)
	id.ClusterID, id.Founders, id.MetaReplica = cluster, founders, record.ReplicaID(id.Node)
	return n.own(id)
}

// own writes down whose the folder is.
func (n *Node) own(id identity) error {
	if err := id.write(n.fs, n.cfg.Data); err != nil {
		return err
	}
	n.identity.Store(&id)
	n.owned.Store(true)
	return nil
}

// joinBy joins the cluster that a master has told of.
func (n *Node) joinBy(ctx context.Context, a answer) (bool, error) {
	id := n.id()
	if !n.owned.Load() {
		// Written before anybody is told, so that a start cut short comes back as
		// the same one.
		id.ClusterID = a.GetClusterId()
		if err := n.own(id); err != nil {
			return false, err
		}
	}
	// Without a majority of the masters there is no answer: then others are asked again,
	// and it is told what this node waits for.
	asking, cancel := context.WithTimeout(ctx, joinTimeout)
	defer cancel()
	r, err := n.clientAt(a.addr).Join(asking, connect.NewRequest(&peerv1.JoinRequest{Node: meta.ReplaceNode(time.Now(), n.describe())}))
	switch {
	case err != nil:
		n.logger.Debug("not joined yet", "by", a.addr, "err", err)
		return false, nil
	case r.Msg.GetError() != "":
		return false, errors.New("the cluster refuses this node: " + r.Msg.GetError())
	}
	id.MetaReplica = record.ReplicaID(r.Msg.GetMetaReplica())
	n.seedFrom(a)
	return true, n.own(id)
}

// seedFrom learns from a master on which nodes the replicas of the masters' groups are.
func (n *Node) seedFrom(a answer) {
	n.seeds = map[record.ReplicaID]record.NodeID{}
	for _, node := range a.GetNodes() {
		n.seeds[record.ReplicaID(node.GetMetaReplica())] = record.NodeID(node.GetNode())
		if node.GetPeer() != "" {
			n.peers.hint(record.NodeID(node.GetNode()), node.GetPeer())
		}
	}
}

// peerAddress is where a node's replica of the masters' groups is.
type peerAddress = peerv1.Address

// describe is this node as it registers.
func (n *Node) describe() meta.Node {
	id, told := n.id(), n.cfg.Advertised(n.addrs)
	self := meta.Node{
		ID: id.Node, Incarnation: id.Incarnation, Zone: n.cfg.Zone, Kafka: told.Kafka, HTTP: told.HTTP, Peer: told.Peer, Version: n.version,
		Starts: id.Starts, Run: id.Run, Level: meta.KnownLevel,
	}
	for _, r := range n.cfg.Roles {
		self.Roles = append(self.Roles, string(r))
	}
	slices.Sort(self.Roles)
	return self
}

// metaPeers says on which nodes the replicas of the masters' groups are.
func (n *Node) metaPeers(im *meta.Image) map[record.ReplicaID]record.NodeID {
	out := map[record.ReplicaID]record.NodeID{}
	if im.ClusterID == "" {
		for _, f := range n.id().Founders {
			out[record.ReplicaID(f)] = f
		}
		for r, node := range n.seeds {
			out[r] = node
		}
		return out
	}
	for _, node := range im.Nodes {
		out[node.MetaReplica] = node.ID
	}
	for _, f := range im.Founders {
		if !f.Taken {
			out[f.Replica] = f.Node
		}
	}
	return out
}

// nameCluster waits until the metadata is there: whose master is active first
// writes the cluster's name.
func (n *Node) nameCluster(ctx context.Context) error {
	var told time.Time
	for {
		im, newer := n.meta.Image(), n.meta.news()
		if im.ClusterID != "" {
			return nil
		}
		if g := n.host.Load().Group(metaGroup); g.Status().Leading {
			id := n.id()
			var founders []meta.Founder
			for _, f := range id.Founders {
				founders = append(founders, meta.Founder{Node: f, Replica: record.ReplicaID(f)})
			}
			if _, err := g.ProposeWait(ctx, meta.Bootstrap(time.Now(), id.ClusterID, founders...)); err != nil && !expected(err) {
				n.logger.Debug("cluster not named yet", "err", err)
			}
		} else if err := g.Err(); err != nil {
			return err
		}
		if time.Since(told) > tellEvery {
			told = time.Now()
			if time.Since(n.started) > tellEvery {
				n.logger.Info("waiting for a majority of the masters")
			}
		}
		select {
		case <-newer:
		case <-time.After(10 * time.Millisecond):
		case <-n.done:
			return n.failure
		case <-ctx.Done():
			return fmt.Errorf("no active master: %w", ctx.Err())
		}
	}
}
