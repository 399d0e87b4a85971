package cli

import (
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/types/known/durationpb"

	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
)

func newQueueRelease(a *app) *cobra.Command {
	var delay string
	c := &cobra.Command{
		Use: "release GROUP LEASE...", Short: "Give messages back, uncounted", Args: atLeast(2), ValidArgsFunction: a.completeQueues,
		RunE: func(c *cobra.Command, args []string) error {
			var d *durationpb.Duration
			if delay != "" {
				var err error
				if d, err = flagDuration("--delay", delay); err != nil {
					return err
				}
			}
			r, err := ask(c.Context(), a, a.queues(0).Release, &tubev1.ReleaseRequest{Group: args[0], LeaseIds: args[1:], Delay: d})
			if err != nil {
				return err
			}
			return a.settled(r, r.Results, "released")
		},
	}
	c.Flags().StringVar(&delay, "delay", "", "not before that has passed (30s); without: at once")
	return a.client(c)
}
