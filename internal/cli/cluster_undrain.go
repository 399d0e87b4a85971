package cli

import (
	"github.com/spf13/cobra"

	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
)

func newClusterUndrain(a *app) *cobra.Command {
	c := &cobra.Command{
		Use: "undrain NODE", Short: "Let a node take replicas again", Args: exactly(1), ValidArgsFunction: a.completeNodes,
		RunE: func(c *cobra.Command, args []string) error {
			id, err := nodeArg(args[0])
			if err != nil {
				return err
			}
			if _, err := a.findNode(c.Context(), id); err != nil {
				return err
			}
			if _, err := ask(c.Context(), a, a.cluster().Undrain, &tubev1.UndrainRequest{Node: id}); err != nil {
				return err
			}
			return a.done(struct {
				Node int32 `json:"node"`
			}{id}, "Node %d takes replicas again. What has moved away stays there; to even things out: %s cluster rebalance", id, a.program)
		},
	}
	return a.client(c)
}
