package node

import "context"

// steer does what the active master has to.
func (n *Node) steer(ctx context.Context) { <-ctx.Done() }
