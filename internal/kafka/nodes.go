package kafka

import (
	"cmp"
	"maps"
	"net"
	"slices"
	"strconv"

	"github.com/tube-mq/tube/internal/meta"
)

// endpoint is where a node's Kafka door is, as clients are told.
type endpoint struct {
	node int32
	host string
	port int32
	rack *string // the zone
}

// endpointOf is false for a node without an address that a client could use.
func endpointOf(n *meta.Node) (endpoint, bool) {
	if n == nil {
		return endpoint{}, false
	}
	host, port, err := net.SplitHostPort(n.Kafka)
	if err != nil {
		return endpoint{}, false
	}
	p, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return endpoint{}, false
	}
	return endpoint{int32(n.ID), host, int32(p), orNull(n.Zone)}, true
}

// endpoints are those of the nodes asked for that have one.
func (d *Door) endpoints(nodes map[int32]bool) []endpoint {
	if len(nodes) == 0 {
		return nil
	}
	var out []endpoint
	for _, n := range d.image().Nodes {
		if e, ok := endpointOf(n); ok && nodes[int32(n.ID)] {
			out = append(out, e)
		}
	}
	sortEndpoints(out)
	return out
}

// allEndpoints are the brokers that clients are told of: nodes that are up or
// draining. A node that is down is left out, so nobody tries it.
func allEndpoints(im *meta.Image) []endpoint {
	out := make([]endpoint, 0, len(im.Nodes))
	for n := range maps.Values(im.Nodes) {
		if e, ok := endpointOf(n); ok && n.State != meta.NodeDown {
			out = append(out, e)
		}
	}
	sortEndpoints(out)
	return out
}

func sortEndpoints(es []endpoint) {
	slices.SortFunc(es, func(a, b endpoint) int { return cmp.Compare(a.node, b.node) })
}
