package kafka

import (
	"context"
	"net"
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tube-mq/tube/internal/meta"
)

// Kinds of coordinator that FindCoordinator asks for.
const (
	coordinatorGroup       = 0
	coordinatorTransaction = 1
)

// findCoordinator tells which node to ask about a group. v4 and later ask for
// many at once. Nobody coordinates transactions: a producer that wants them is
// told so here already, with the code that ends it (see initProducerID).
func (d *Door) findCoordinator(_ context.Context, _ *client, r kmsg.Request) kmsg.Response {
	req := r.(*kmsg.FindCoordinatorRequest)
	resp := req.ResponseKind().(*kmsg.FindCoordinatorResponse)
	if req.Version >= 4 {
		for _, key := range req.CoordinatorKeys {
			resp.Coordinators = append(resp.Coordinators, d.coordinator(req.CoordinatorType, key))
		}
		return resp
	}
	c := d.coordinator(req.CoordinatorType, req.CoordinatorKey)
	resp.NodeID, resp.Host, resp.Port = c.NodeID, c.Host, c.Port
	resp.ErrorCode, resp.ErrorMessage = c.ErrorCode, c.ErrorMessage
	return resp
}

func (d *Door) coordinator(kind int8, key string) kmsg.FindCoordinatorResponseCoordinator {
	c := kmsg.NewFindCoordinatorResponseCoordinator()
	c.Key, c.NodeID, c.Port = key, -1, -1
	fail := func(e *kerr.Error, text string) kmsg.FindCoordinatorResponseCoordinator {
		c.ErrorCode, c.ErrorMessage = e.Code, &text
		return c
	}
	switch kind {
	case coordinatorGroup:
	case coordinatorTransaction:
		return fail(kerr.TransactionalIDAuthorizationFailed, "transactions are not supported yet: produce without a transactional id")
	default:
		return fail(kerr.InvalidRequest, "only groups have coordinators here, share groups the same as others: ask with key type 0; what share groups are done with, the partitions' leaders know")
	}
	node, err := d.groups.Members.Coordinator(key)
	if err != nil {
		return fail(kerr.CoordinatorNotAvailable, err.Error())
	}
	// Metadata leaves out nodes that are down: a client could not find the one named
	// here among its brokers.
	n := d.image().Nodes[node]
	if n == nil || n.State == meta.NodeDown {
		return fail(kerr.CoordinatorNotAvailable, "the coordinator's node is not known to be up yet")
	}
	host, port, err := net.SplitHostPort(n.Kafka)
	if err != nil {
		return fail(kerr.CoordinatorNotAvailable, "the coordinator's address is not usable: "+err.Error())
	}
	p, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return fail(kerr.CoordinatorNotAvailable, "the coordinator's port is not usable: "+port)
	}
	c.NodeID, c.Host, c.Port = int32(node), host, int32(p)
	return c
}
