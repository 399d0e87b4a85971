package cli

import "github.com/spf13/cobra"

func newCluster(a *app) *cobra.Command {
	return parent("cluster", "Look at the cluster: status, nodes, events",
		newClusterStatus(a), newClusterNodes(a), newClusterEvents(a))
}
