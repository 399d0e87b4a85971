package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"connectrpc.com/connect"

	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/peer"
	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/proto/tube/peer/v1/peerv1connect"
)

// Kinds of frames between nodes.
const (
	frameRaft    = 1 // a message of a replica group; see replica/wire.go
	frameLeaders = 2 // what the sender leads; see leaders.go
	frameAskEnd  = 3 // where does a partition end that the receiver leads; see ends.go
	frameTellEnd = 4 // there
	frameHealth  = 5 // how the sender is; see watchdog.go
)

// peers is this node's end of what nodes say to each other.
type peers struct {
	n         *Node
	transport *peer.Transport

	mu sync.Mutex
	// addrs are the nodes' peer addresses as last given to the transport.
	addrs map[record.NodeID]string
	// hints are addresses from before the metadata is known.
	hints map[record.NodeID]string
}

func (n *Node) openPeers(l net.Listener) error {
	secure, err := peerTLS(n.cfg)
	if err != nil {
		return err
	}
	p := &peers{n: n, addrs: map[record.NodeID]string{}, hints: map[record.NodeID]string{}}
	for _, m := range n.cfg.Masters {
		p.hints[m.ID] = m.Addr
	}
	mux := http.NewServeMux()
	mux.Handle(peerv1connect.NewPeerServiceHandler(peerService{n: n}, connect.WithReadMaxBytes(maxPeerMessageBytes)))
	mux.Handle(n.queuesForPeers())
	mux.Handle(n.problemsForPeers())
	p.transport = peer.New(peer.Config{
		Self: func() peer.Identity {
			id := n.id()
			return peer.Identity{ClusterID: id.ClusterID, Node: id.Node, Incarnation: fmt.Sprintf("%s/%d/%s/%s", id.Incarnation, id.Starts, id.Run, n.boot)}
		},
		TLS: secure, Handler: mux, Receive: n.receive, Refuse: n.refusePeer, OnGone: n.gone, OnUp: n.peerUp, OnDown: n.peerDown, Logger: n.logger,
	})
	n.peers = p
	return p.transport.Serve(l)
}

const maxPeerMessageBytes = 64 << 20

// refusePeer is asked whether a node may send to this one.
func (n *Node) refusePeer(from peer.Identity) error {
	if n.meta == nil {
		return errStarting
	}
	said := strings.Split(from.Incarnation, "/") // as in openPeers
	if len(said) != 4 {
		return fmt.Errorf("node %d does not say which start of its data folder this is", from.Node)
	}
	incarnation, run := said[0], said[2]
	starts, err := strconv.ParseUint(said[1], 10, 64)
	if err != nil {
		return fmt.Errorf("node %d does not say how often its data folder was started: %q", from.Node, said[1])
	}
	im := n.meta.Image()
	if n.meta.replaced(from.Node, incarnation) {
		err := fmt.Errorf("this data folder was node %d's before another took its place, or before the node was removed or given up", from.Node)
		if im.Recovered != "" {
			return err // whoever was given up by mistake need not end
		}
		return peer.Gone(err)
	}
	switch known := im.Nodes[from.Node]; {
	case known != nil && known.Incarnation != incarnation:
		return fmt.Errorf("node id %d belongs to another data folder of this cluster", from.Node)
	case known != nil && known.OlderCopy(incarnation, starts, run) != nil:
		return known.OlderCopy(incarnation, starts, run)
	case known == nil && im.ClusterID != "" && !untaken(im, from.Node) && !n.named(from.Node):
		return fmt.Errorf("node %d is not a member of cluster %s", from.Node, im.ClusterID)
	}
	return nil
}

// gone ends this node: what it leads by itself it would go on serving, to clients that know
// of nobody else, though the cluster has given its replicas up.
func (n *Node) gone(by record.NodeID, sentence string) {
	n.end("the cluster has removed this node: it stops now; start it with an empty data folder to have it join again", fmt.Errorf("node %d says: %s", by, sentence))
}

// untaken reports whether the node is a founder that has not registered yet.
func untaken(im *meta.Image, node record.NodeID) bool {
	for _, f := range im.Founders {
		if f.Node == node && !f.Taken {
			return true
		}
	}
	return false
}

func (n *Node) named(node record.NodeID) bool {
	for _, m := range n.cfg.Masters {
		if m.ID == node {
			return true
		}
	}
	return false
}

// receive takes a frame from another node.
func (n *Node) receive(from record.NodeID, kind byte, buf *record.Buffer, body []byte) {
	switch kind {
	case frameRaft:
		if h := n.host.Load(); h != nil {
			if err := h.Receive(body, buf); err != nil {
				n.logger.Error("a node sent what cannot be read", "from", from, "err", err)
			}
		}
	case frameLeaders:
		n.leaders.receive(from, body)
	case frameAskEnd:
		if n.host.Load() != nil { // and with it the broker
			n.ends.asked(from, body)
		}
	case frameTellEnd:
		n.ends.told(body)
	case frameHealth:
		n.health.receive(from, body)
	}
}

func (n *Node) peerUp(node record.NodeID) {
	n.logger.Info("node is reachable", "node", node)
	n.peers.transport.Send(node, n.health.frame())
	for _, b := range n.leaders.all() {
		n.peers.transport.Send(node, peer.Frame{Kind: frameLeaders, Parts: [][]byte{b}})
	}
}

func (n *Node) peerDown(node record.NodeID) {
	n.logger.Warn("node is not reachable", "node", node)
	n.health.set(node, "", time.Now()) // it says how it is when it is back
	if h := n.host.Load(); h != nil {
		h.PeerDown(node)
	}
}

// Send implements replica.Transport.
func (p *peers) Send(to record.NodeID, parts [][]byte, release func()) bool {
	return p.transport.Send(to, peer.Frame{Kind: frameRaft, Parts: parts, Release: release})
}

// toAll gives a frame to every peer.
func (p *peers) toAll(f peer.Frame) {
	p.mu.Lock()
	addrs := p.addrs
	p.mu.Unlock()
	for node := range addrs {
		p.transport.Send(node, f)
	}
}

// hint adds addresses that the metadata does not have yet.
func (p *peers) hint(node record.NodeID, addr string) {
	p.mu.Lock()
	p.hints[node] = addr
	p.mu.Unlock()
}

// update gives the transport the addresses of all other nodes.
func (p *peers) update(im *meta.Image) {
	p.mu.Lock()
	defer p.mu.Unlock()
	addrs := map[record.NodeID]string{}
	for node, addr := range p.hints {
		if im.ClusterID == "" || untaken(im, node) || im.Nodes[node] != nil {
			addrs[node] = addr
		}
	}
	for id, node := range im.Nodes {
		if node.Peer != "" {
			addrs[id] = node.Peer
		}
	}
	delete(addrs, p.n.id().Node)
	if maps.Equal(addrs, p.addrs) {
		return
	}
	p.addrs = addrs
	p.transport.SetPeers(addrs)
}

// peerClient is for control calls to a node.
func (n *Node) peerClient(node record.NodeID) (peerv1connect.PeerServiceClient, error) {
	url, c, err := n.peers.transport.Client(node)
	if err != nil {
		return nil, err
	}
	return peerv1connect.NewPeerServiceClient(c, url, connect.WithReadMaxBytes(maxPeerMessageBytes)), nil
}

// clientAt is for control calls to an address.
func (n *Node) clientAt(addr string) peerv1connect.PeerServiceClient {
	url, c := n.peers.transport.ClientAt(addr)
	return peerv1connect.NewPeerServiceClient(c, url)
}

// isRefused reports that nobody took the connection: nothing was asked.
func isRefused(err error) bool { return errors.Is(err, syscall.ECONNREFUSED) }

// alive reports whether a node was heard from lately.
func (n *Node) alive(node record.NodeID) bool {
	return node == n.id().Node || n.peers.transport.Alive(node)
}

// metaLeader is the node whose master is active, as this one knows; −1 if none is.
func (n *Node) metaLeader() record.NodeID { return n.meta.Image().Controller }

// stopPeers lets what waits be sent.
func (p *peers) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	return p.transport.Stop(ctx)
}
