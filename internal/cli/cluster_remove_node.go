package cli

import (
	"github.com/spf13/cobra"

	"connectrpc.com/connect"

	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
)

func newClusterRemoveNode(a *app) *cobra.Command {
	var force, yes bool
	c := &cobra.Command{
		Use: "remove-node NODE", Short: "Forget a node that will not come back", Args: exactly(1), ValidArgsFunction: a.completeNodes,
		Long: `Forget a node that will not come back. Its data folder can never join again; a
new one can, also with the same id.

A node that runs or has replicas is refused: drain and stop it first. With
--force what is on it is given up, and made anew from the other replicas.`,
		Example: "  tube cluster drain 4 --wait\n  # stop it\n  tube cluster remove-node 4",
		RunE: func(c *cobra.Command, args []string) error {
			id, err := nodeArg(args[0])
			if err != nil {
				return err
			}
			if _, err := a.findNode(c.Context(), id); err != nil {
				return err
			}
			if force && !yes && !a.confirm("Remove node %d and give up what is on it?", id) {
				return &failure{exitFailed, "nothing was removed", "--yes does not ask"}
			}
			_, err = ask(c.Context(), a, a.cluster().RemoveNode, &tubev1.RemoveNodeRequest{Node: id, Force: force})
			if isCode(err, connect.CodeFailedPrecondition) {
				return conflict("first: "+a.program+" cluster drain "+args[0]+" --wait, then stop it\nif it is gone for good, --force gives up what is on it", "%s", explain(err).text)
			}
			if err != nil {
				return err
			}
			return a.done(removedNode{id, true}, "Removed node %d.", id)
		},
	}
	c.Flags().BoolVar(&force, "force", false, "also if it runs or has replicas, which are given up")
	c.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return a.client(c)
}

type removedNode struct {
	Node    int32 `json:"node"`
	Removed bool  `json:"removed"`
}
