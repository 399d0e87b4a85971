package cli

import (
	"context"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
)

// completionTimeout bounds what a press of the tab key may take.
const completionTimeout = 2 * time.Second

func newGroup(a *app) *cobra.Command {
	return parent("group", "List, describe, reset and delete consumer groups",
		newGroupList(a), newGroupDescribe(a), newGroupReset(a), newGroupDelete(a))
}

// group looks one group up, with its lag.
func group(ctx context.Context, adm *kadm.Client, name string) (kadm.DescribedGroupLag, error) {
	if g, ok, err := consumersGroup(ctx, adm, name); ok || err != nil {
		return g, err
	}
	all, err := adm.Lag(ctx, name)
	if err != nil {
		return kadm.DescribedGroupLag{}, err
	}
	g := all[name]
	gone := g.State == "Dead" && len(g.Members) == 0 && len(g.Lag) == 0
	if err := g.Error(); err != nil && explain(err).code != exitNotFound {
		return g, err
	} else if err != nil || gone {
		return g, notFound("see: tube group list", "there is no group %q", name)
	}
	return g, nil
}

// completeGroups names the groups to the shell.
func (a *app) completeGroups(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	a.quiet, a.timeout = true, completionTimeout
	adm, ctx, done, err := a.admin(c.Context())
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	defer done()
	all, err := adm.ListGroups(ctx)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return all.Groups(), cobra.ShellCompDirectiveNoFileComp
}
