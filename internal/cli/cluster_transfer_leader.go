package cli

import (
	"github.com/spf13/cobra"

	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
)

func newClusterTransferLeader(a *app) *cobra.Command {
	c := &cobra.Command{
		Use: "transfer-leader TOPIC/PARTITION NODE", Short: "Let another replica lead a partition", Args: exactly(2), ValidArgsFunction: a.completePartition,
		Long: `Let the replica on NODE lead a partition. It is the preferred leader from then
on, so that the lead stays there. "any" lets some other replica lead for now.`,
		Example: "  tube cluster transfer-leader orders/0 2\n  tube cluster transfer-leader orders/0 any",
		RunE: func(c *cobra.Command, args []string) error {
			topic, partition, err := partitionArg(args[0])
			if err != nil {
				return err
			}
			node := int32(-1)
			if args[1] != "any" {
				if node, err = nodeArg(args[1]); err != nil {
					return err
				}
			}
			r, err := ask(c.Context(), a, a.cluster().TransferLeader, &tubev1.TransferLeaderRequest{Topic: topic, Partition: partition, Node: node})
			if err != nil {
				return err
			}
			out := transferredLeader{topic, partition, r.Leader, r.Previous}
			if r.Leader == r.Previous {
				return a.done(out, "Node %d leads %s already.", r.Leader, args[0])
			}
			return a.done(out, "Node %d leads %s now; before, node %d did.", r.Leader, args[0], r.Previous)
		},
	}
	return a.client(c)
}

type transferredLeader struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Leader    int32  `json:"leader"`
	Previous  int32  `json:"previous"`
}
