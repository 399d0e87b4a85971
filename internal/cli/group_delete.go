package cli

import "github.com/spf13/cobra"

func newGroupDelete(a *app) *cobra.Command {
	var yes bool
	c := &cobra.Command{
		Use: "delete GROUP", Aliases: []string{"rm"}, Short: "Delete a group without members, with its positions", Args: exactly(1), ValidArgsFunction: a.completeGroups,
		RunE: func(c *cobra.Command, args []string) error {
			adm, ctx, done, err := a.admin(c.Context())
			if err != nil {
				return err
			}
			defer done()
			if _, err := group(ctx, adm, args[0]); err != nil {
				return err
			}
			if !yes && !a.confirm("Delete group %s and its positions?", printable(args[0])) {
				return &failure{exitFailed, "nothing was deleted", "--yes does not ask"}
			}
			if _, err := adm.DeleteGroup(ctx, args[0]); err != nil {
				return err
			}
			return a.done(deleted{args[0], true}, "Deleted group %s.", printable(args[0]))
		},
	}
	c.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return a.client(c)
}
