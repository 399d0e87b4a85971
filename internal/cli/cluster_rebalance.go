package cli

import (
	"github.com/spf13/cobra"

	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
)

func newClusterRebalance(a *app) *cobra.Command {
	var f moveFlags
	c := &cobra.Command{
		Use: "rebalance", Short: "Even out replicas and leaders over the brokers", Args: exactly(0),
		Long: `Even out replicas and leaders over the brokers, and put replicas of a partition
into different zones. Nothing more is copied than that takes. Partitions that are
moving already are left alone.`,
		Example: "  tube cluster rebalance --dry-run\n  tube cluster rebalance --throttle 50MB/s --wait",
		RunE: func(c *cobra.Command, _ []string) error {
			throttle, err := f.bytesPerSecond()
			if err != nil {
				return err
			}
			r, err := ask(c.Context(), a, a.cluster().Rebalance, &tubev1.RebalanceRequest{DryRun: f.dryRun, ThrottleBytesPerSecond: throttle})
			if err != nil {
				return err
			}
			return a.moved(c, r.Moves, &f, "Replicas and leaders are spread evenly already.")
		},
	}
	f.add(c.Flags())
	return a.client(c)
}
