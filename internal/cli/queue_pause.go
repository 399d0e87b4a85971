package cli

import (
	"github.com/spf13/cobra"

	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
)

func newQueuePause(a *app) *cobra.Command {
	c := &cobra.Command{
		Use: "pause GROUP", Short: "Hand nothing out until it is resumed", Args: exactly(1), ValidArgsFunction: a.completeQueues,
		RunE: func(c *cobra.Command, args []string) error {
			r, err := ask(c.Context(), a, a.queueAdmin().PauseGroup, &tubev1.PauseGroupRequest{Group: args[0]})
			if err != nil {
				return err
			}
			return a.said(r, "Queue group %s is paused. What is in hand can be settled. To go on: %s queue resume %s", args[0], a.program, args[0])
		},
	}
	return a.client(c)
}
