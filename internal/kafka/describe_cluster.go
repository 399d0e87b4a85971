package kafka

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tube-mq/tube/internal/meta"
)

// The kinds of endpoint that DescribeCluster v1+ tells apart.
const (
	brokerEndpoints     = 1
	controllerEndpoints = 2
)

// describeCluster lists the brokers; v2+ on request those that are down as well,
// marked as fenced.
func (d *Door) describeCluster(_ context.Context, _ *client, r kmsg.Request) kmsg.Response {
	req := r.(*kmsg.DescribeClusterRequest)
	resp := req.ResponseKind().(*kmsg.DescribeClusterResponse)
	im := d.image()
	resp.ClusterID, resp.ControllerID, resp.EndpointType = im.ClusterID, -1, req.EndpointType
	if req.EndpointType != brokerEndpoints {
		code, text := kerr.UnsupportedEndpointType.Code, fmt.Sprintf("there is no endpoint type %d", req.EndpointType)
		if req.EndpointType == controllerEndpoints {
			code, text = kerr.MismatchedEndpointType.Code, "this is an endpoint of brokers; ask for those (type 1)"
		}
		resp.ErrorCode, resp.ErrorMessage = code, &text
		return resp
	}
	for _, n := range im.Nodes {
		fenced := n.State == meta.NodeDown
		e, ok := endpointOf(n)
		if !ok || fenced && !req.IncludeFencedBrokers {
			continue
		}
		b := kmsg.NewDescribeClusterResponseBroker()
		b.NodeID, b.Host, b.Port, b.Rack, b.IsFenced = e.node, e.host, e.port, e.rack, fenced
		resp.Brokers = append(resp.Brokers, b)
		// Clients look the controller up in the list.
		if n.ID == im.Controller && !fenced {
			resp.ControllerID = e.node
		}
	}
	slices.SortFunc(resp.Brokers, func(a, b kmsg.DescribeClusterResponseBroker) int { return cmp.Compare(a.NodeID, b.NodeID) })
	if req.IncludeClusterAuthorizedOperations {
		resp.ClusterAuthorizedOperations = clusterOperations
	}
	return resp
}
