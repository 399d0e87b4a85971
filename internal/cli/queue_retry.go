package cli

import (
	"github.com/spf13/cobra"

	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
)

func newQueueRetry(a *app) *cobra.Command {
	skip := false
	c := &cobra.Command{
		Use: "retry GROUP MESSAGE...", Short: "Hand out again at once what failed or is parked, or skip it", Args: atLeast(2), ValidArgsFunction: a.completeQueues,
		Long: `Hand messages out again at once that failed or are parked, as if they had never failed.
With --skip they go to the dead letters instead, and what waits behind their key goes on.
They are named by PARTITION/OFFSET or by id; tube queue pending lists them.`,
		Example: "  tube queue retry billing 0/17\n  tube queue retry billing 0/17 --skip",
		RunE: func(c *cobra.Command, args []string) error {
			r, err := ask(c.Context(), a, a.queueAdmin().RetryPending, &tubev1.RetryPendingRequest{Group: args[0], Messages: refArgs(args[1:]), Skip: skip})
			if err != nil {
				return err
			}
			return a.items(r, args[1:], r.Results, map[bool]string{false: "handed out again", true: "skipped: to the dead letters"}[skip])
		},
	}
	c.Flags().BoolVar(&skip, "skip", false, "to the dead letters instead")
	return a.client(c)
}
