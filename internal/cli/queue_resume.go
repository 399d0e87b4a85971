package cli

import (
	"github.com/spf13/cobra"

	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
)

func newQueueResume(a *app) *cobra.Command {
	c := &cobra.Command{
		Use: "resume GROUP", Short: "Hand messages out again", Args: exactly(1), ValidArgsFunction: a.completeQueues,
		RunE: func(c *cobra.Command, args []string) error {
			r, err := ask(c.Context(), a, a.queueAdmin().ResumeGroup, &tubev1.ResumeGroupRequest{Group: args[0]})
			if err != nil {
				return err
			}
			return a.said(r, "Queue group %s goes on.", args[0])
		},
	}
	return a.client(c)
}
