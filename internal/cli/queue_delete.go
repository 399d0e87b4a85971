package cli

import (
	"github.com/spf13/cobra"

	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
)

func newQueueDelete(a *app) *cobra.Command {
	var yes bool
	c := &cobra.Command{
		Use: "delete GROUP", Aliases: []string{"rm"}, Short: "Delete a queue group; its topics stay", Args: exactly(1), ValidArgsFunction: a.completeQueues,
		RunE: func(c *cobra.Command, args []string) error {
			if !yes && !a.confirm("Delete queue group %s and what it knows of its messages?", args[0]) {
				return &failure{exitFailed, "nothing was deleted", "--yes does not ask"}
			}
			if _, err := ask(c.Context(), a, a.queueAdmin().DeleteGroup, &tubev1.DeleteGroupRequest{Group: args[0]}); err != nil {
				return err
			}
			return a.done(deleted{args[0], true}, "Deleted queue group %s.", args[0])
		},
	}
	c.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return a.client(c)
}
