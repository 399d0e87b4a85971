package cli

import (
	"github.com/spf13/cobra"

	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
)

func newQueueDeadDrop(a *app) *cobra.Command {
	var filter string
	var all, dry, yes bool
	c := &cobra.Command{
		Use: "drop GROUP [PARTITION/OFFSET...]", Short: "Forget dead letters", Args: atLeast(1), ValidArgsFunction: a.completeQueues,
		RunE: func(c *cobra.Command, args []string) error {
			places, err := placesArg(args[1:])
			if err != nil {
				return err
			}
			if len(places) == 0 && filter == "" && !all {
				return usage("usage: "+c.UseLine(), "which? name them, or give --filter or --all")
			}
			if !dry && !yes && !a.confirm("Forget dead letters of %s for good?", args[0]) {
				return &failure{exitFailed, "nothing was dropped", "--yes does not ask"}
			}
			q := &tubev1.DropDeadRequest{Group: args[0], Messages: places, Filter: filter, DryRun: dry}
			sum := &tubev1.DropDeadResponse{}
			for {
				r, err := askWithin(c.Context(), a, a.timeout+queueAdminTime, a.queueAdmin().DropDead, q)
				if err != nil {
					return err
				}
				sum.Matched, sum.Dropped = sum.Matched+r.Matched, sum.Dropped+r.Dropped
				if q.PageToken = r.NextPageToken; q.PageToken == "" {
					break
				}
			}
			if dry {
				return a.said(sum, "%s would be dropped.", plural(sum.Matched, "dead letter"))
			}
			return a.said(sum, "Dropped %s.", plural(sum.Dropped, "dead letter"))
		},
	}
	c.Flags().StringVar(&filter, "filter", "", "only those for which this CEL expression is true")
	c.Flags().BoolVar(&all, "all", false, "all of them")
	c.Flags().BoolVar(&dry, "dry-run", false, "only count them")
	c.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return a.client(c)
}
