package cli

import (
	"context"
	"log/slog"

	"github.com/tube-mq/tube/internal/config"
	"github.com/tube-mq/tube/internal/node"
)

// runningNode is a node that was started.
type runningNode interface {
	// Addrs are the addresses that its doors really listen on.
	Addrs() config.Addrs
	// Done is closed when the node stopped, by itself or by Stop; Err then says
	// why if it was by itself.
	Done() <-chan struct{}
	Err() error
	// Stop drains until ctx ends.
	Stop(ctx context.Context) error
}

// startNode starts a node and returns when it serves.
var startNode = func(ctx context.Context, cfg *config.Config, log *slog.Logger) (runningNode, error) {
	return node.Start(ctx, cfg, version(), log)
}
