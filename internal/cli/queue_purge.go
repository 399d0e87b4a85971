package cli

import (
	"github.com/spf13/cobra"

	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
)

func newQueuePurge(a *app) *cobra.Command {
	var yes bool
	c := &cobra.Command{
		Use: "purge GROUP", Short: "Be done with all that is there now", Args: exactly(1), ValidArgsFunction: a.completeQueues,
		RunE: func(c *cobra.Command, args []string) error {
			if !yes && !a.confirm("Let queue group %s never have what is there now?", args[0]) {
				return &failure{exitFailed, "nothing was purged", "--yes does not ask"}
			}
			r, err := askWithin(c.Context(), a, a.timeout+queueAdminTime, a.queueAdmin().PurgeGroup, &tubev1.PurgeGroupRequest{Group: args[0]})
			if err != nil {
				return err
			}
			return a.said(r, "Purged %s of queue group %s.", plural(r.Purged, "message"), args[0])
		},
	}
	c.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return a.client(c)
}
