package cli

import (
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
)

func newQueueExtend(a *app) *cobra.Command {
	var by string
	c := &cobra.Command{
		Use: "extend GROUP LEASE...", Short: "Keep leases for longer, from now on", Args: atLeast(2), ValidArgsFunction: a.completeQueues,
		RunE: func(c *cobra.Command, args []string) error {
			var d *durationpb.Duration
			if by != "" {
				var err error
				if d, err = flagDuration("--duration", by); err != nil {
					return err
				}
			}
			r, err := ask(c.Context(), a, a.queues(0).Extend, &tubev1.ExtendRequest{Group: args[0], LeaseIds: args[1:], Duration: d})
			if err != nil {
				return err
			}
			return a.settled(r, r.Results, "extended")
		},
	}
	c.Flags().StringVar(&by, "duration", "", "how long from now on; without: the group's lease")
	return a.client(c)
}
