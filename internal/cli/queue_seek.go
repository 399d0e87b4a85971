package cli

import (
	"io"

	"github.com/spf13/cobra"

	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
)

func newQueueSeek(a *app) *cobra.Command {
	var (
		to  string
		yes bool
	)
	c := &cobra.Command{
		Use: "seek GROUP --to start|end|TIME|PARTITION/OFFSET", Short: "Go on from elsewhere", Args: exactly(1), ValidArgsFunction: a.completeQueues,
		Long:    "Make a queue group go on from elsewhere. What is behind that comes (again), what is before it is done\nwith. Leases that are out end.",
		Example: "  tube queue seek billing --to -2h",
		RunE: func(c *cobra.Command, args []string) error {
			if to == "" {
				return usage("usage: "+c.UseLine(), "where to? give --to")
			}
			where, err := a.position(to)
			if err != nil {
				return err
			}
			if !yes && !a.confirm("Make queue group %s go on from %s?", args[0], to) {
				return &failure{exitFailed, "nothing was changed", "--yes does not ask"}
			}
			r, err := ask(c.Context(), a, a.queueAdmin().SeekGroup, &tubev1.SeekGroupRequest{Group: args[0], To: where})
			if err != nil {
				return err
			}
			return a.contract(r, func(w io.Writer) error {
				t := newTable("PARTITION", "GOES ON AT")
				for _, p := range r.Partitions {
					t.row(p.Partition, p.Offset)
				}
				return t.write(w)
			})
		},
	}
	c.Flags().StringVar(&to, "to", "", "start, end, a time (2026-01-31T15:04:05Z, -15m), or PARTITION/OFFSET for one partition")
	c.Flags().BoolVarP(&yes, "yes", "y", false, "do not ask")
	return a.client(c)
}
