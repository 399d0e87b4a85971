package peer

import (
	"fmt"
	"net/http"
	"strconv"

	"github.com/tube-mq/tube/internal/record"
)

// Identity says which process a node is.
type Identity struct {
	ClusterID   string // empty while the node belongs to no cluster
	Node        record.NodeID
	Incarnation string // another one for every start of the process
}

const (
	protocol = "1"

	headerProtocol    = "Tube-Peer-Protocol"
	headerCluster     = "Tube-Cluster-Id"
	headerNode        = "Tube-Node"
	headerIncarnation = "Tube-Incarnation"
	headerTarget      = "Tube-Target-Node"
)

func (id Identity) writeTo(h http.Header) {
	h.Set(headerProtocol, protocol)
	h.Set(headerCluster, id.ClusterID)
	h.Set(headerNode, formatNode(id.Node))
	h.Set(headerIncarnation, id.Incarnation)
}

// Caller reads the identity that a client of this package put into the headers
// of a control call. There is none in calls of others.
func Caller(h http.Header) (Identity, bool) {
	node, ok := parseNode(h.Get(headerNode))
	return Identity{ClusterID: h.Get(headerCluster), Node: node, Incarnation: h.Get(headerIncarnation)}, ok
}

func formatNode(n record.NodeID) string { return strconv.Itoa(int(n)) }

func parseNode(s string) (record.NodeID, bool) {
	n, err := strconv.ParseUint(s, 10, 31)
	return record.NodeID(n), err == nil
}

// unfit says why the caller of a request must not be served by self, or nothing.
func unfit(h http.Header, self Identity) string {
	if v := h.Get(headerProtocol); v != protocol {
		return fmt.Sprintf("peer protocol %q is not spoken here, only %s", v, protocol)
	}
	caller, ok := Caller(h)
	if !ok {
		return fmt.Sprintf("%q is not a node id", h.Get(headerNode))
	}
	if target := h.Get(headerTarget); target != "" && target != formatNode(self.Node) {
		return fmt.Sprintf("this is node %d, not node %s", self.Node, target)
	}
	if !sameCluster(caller, self) {
		return fmt.Sprintf("wrong cluster id: node %d is of cluster %s, and who asks is of cluster %s", self.Node, self.ClusterID, caller.ClusterID)
	}
	return ""
}

// sameCluster is true too while one of them has no cluster.
func sameCluster(a, b Identity) bool {
	return a.ClusterID == b.ClusterID || a.ClusterID == "" || b.ClusterID == ""
}

func inUse(node record.NodeID) string {
	return fmt.Sprintf("node id %d is in use by another process", node)
}
