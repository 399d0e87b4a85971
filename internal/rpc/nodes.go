package rpc

import (
	"context"

	"connectrpc.com/connect"

	"github.com/tube-mq/tube/internal/record"
	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
)

func (s *clusterService) Drain(ctx context.Context, req *connect.Request[tubev1.DrainRequest]) (*connect.Response[tubev1.DrainResponse], error) {
	op, err := s.operator()
	if err == nil {
		err = op.Nodes.Drain(ctx, record.NodeID(req.Msg.Node))
	}
	return connect.NewResponse(&tubev1.DrainResponse{}), err
}

func (s *clusterService) Undrain(ctx context.Context, req *connect.Request[tubev1.UndrainRequest]) (*connect.Response[tubev1.UndrainResponse], error) {
	op, err := s.operator()
	if err == nil {
		err = op.Nodes.Undrain(ctx, record.NodeID(req.Msg.Node))
	}
	return connect.NewResponse(&tubev1.UndrainResponse{}), err
}

func (s *clusterService) RemoveNode(ctx context.Context, req *connect.Request[tubev1.RemoveNodeRequest]) (*connect.Response[tubev1.RemoveNodeResponse], error) {
	op, err := s.operator()
	if err == nil {
		err = op.Nodes.RemoveNode(ctx, record.NodeID(req.Msg.Node), req.Msg.Force)
	}
	return connect.NewResponse(&tubev1.RemoveNodeResponse{}), err
}
