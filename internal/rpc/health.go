package rpc

import (
	"cmp"
	"context"
	"slices"

	"connectrpc.com/connect"

	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
)

func (s *clusterService) Health(ctx context.Context, _ *connect.Request[tubev1.HealthRequest]) (*connect.Response[tubev1.HealthResponse], error) {
	out := &tubev1.HealthResponse{Problems: s.cluster.ClusterProblems()}
	if own := s.cluster.Problems(); len(own) > 0 {
		out.Nodes = append(out.Nodes, &tubev1.NodeHealth{Node: int32(s.self.Node), Problems: own})
	}
	for _, n := range s.cluster.NodeProblems(ctx) {
		if len(n.Problems) > 0 || n.Unreachable {
			out.Nodes = append(out.Nodes, &tubev1.NodeHealth{Node: int32(n.Node), Problems: n.Problems, Unreachable: n.Unreachable})
		}
	}
	slices.SortFunc(out.Nodes, func(a, b *tubev1.NodeHealth) int { return cmp.Compare(a.Node, b.Node) })
	out.Healthy = len(out.Problems) == 0 && len(out.Nodes) == 0
	return connect.NewResponse(out), nil
}
