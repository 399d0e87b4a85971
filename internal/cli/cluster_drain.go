package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
)

func newClusterDrain(a *app) *cobra.Command {
	var wait bool
	c := &cobra.Command{
		Use: "drain NODE", Short: "Move everything away from a node", Args: exactly(1), ValidArgsFunction: a.completeNodes,
		Long: `Move everything away from a node: its replicas to other brokers, its leaders
first. It takes no new ones until undrain. Once it is drained it can be stopped
and removed, and nothing has fewer copies for it.`,
		Example: "  tube cluster drain 4 --wait && tube cluster nodes",
		RunE: func(c *cobra.Command, args []string) error {
			id, err := nodeArg(args[0])
			if err != nil {
				return err
			}
			if _, err := a.findNode(c.Context(), id); err != nil {
				return err
			}
			if _, err := ask(c.Context(), a, a.cluster().Drain, &tubev1.DrainRequest{Node: id}); err != nil {
				return err
			}
			if wait {
				if err := a.awaitDrain(c.Context(), id); err != nil {
					return err
				}
			}
			n, err := a.findNode(c.Context(), id)
			if err != nil {
				return err
			}
			out := drainedNode{id, n.Drained, n.ReplicasLeft}
			if n.Drained {
				return a.done(out, "Node %d is drained. Stop it, then: %s cluster remove-node %d", id, a.program, id)
			}
			return a.done(out, "Node %d is draining: %s left. See how far it is with: %s cluster nodes", id, plural(int64(n.ReplicasLeft), "replica"), a.program)
		},
	}
	c.Flags().BoolVar(&wait, "wait", false, "return when nothing is left on it; shows progress on a terminal")
	return a.client(c)
}

type drainedNode struct {
	Node    int32 `json:"node"`
	Drained bool  `json:"drained"`
	Left    int32 `json:"replicas_left"`
}

// stuckFor is how long a drain may find no place for replicas, or what is copied wait for
// a node that is down, before the wait for it ends: a broker may just be restarting.
const stuckFor = 10 * time.Second

func (a *app) awaitDrain(ctx context.Context, id int32) error {
	p, client := a.newProgress("replica", 0), a.cluster()
	defer p.end()
	var most int32
	var stuck time.Time // since
	err := a.poll(ctx, func() (bool, error) {
		n, err := a.findNode(ctx, id)
		if err != nil {
			return false, err
		}
		most = max(most, n.ReplicasLeft)
		p.share(1-float64(n.ReplicasLeft)/float64(max(most, 1)), plural(int64(n.ReplicasLeft), "replica")+" left")
		if n.Drained || !n.Drain {
			return true, nil
		}
		s, err := ask(ctx, a, client.Status, &tubev1.StatusRequest{})
		if err != nil {
			return false, err
		}
		problem := drainStuck(s.ClusterProblems, id)
		switch {
		case problem == "":
			stuck = time.Time{}
		case stuck.IsZero():
			stuck = a.now()
		case a.now().Sub(stuck) > stuckFor:
			return false, conflict(fmt.Sprintf("add a broker (%s cluster add-node) or lower the topics' replication factor\nit goes on draining; to end that: %s cluster undrain %d", a.program, a.program, id), "%s", problem)
		}
		return false, nil
	})
	p.end()
	if errors.Is(err, context.Canceled) {
		return &failure{exitFailed, "interrupted: the node goes on draining", fmt.Sprintf("to end that: %s cluster undrain %d", a.program, id)}
	}
	return err
}

// drainStuck is the problem that says why a drain cannot go on.
func drainStuck(problems []string, id int32) string {
	for _, p := range problems {
		if strings.HasPrefix(p, fmt.Sprintf("node %d is draining", id)) && strings.Contains(p, "no other broker can take") {
			return p
		}
	}
	return ""
}
