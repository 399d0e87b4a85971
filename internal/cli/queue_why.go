package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
)

func newQueueWhy(a *app) *cobra.Command {
	c := &cobra.Command{
		Use: "why GROUP", Short: "Say why a queue group is not moving", Args: exactly(1), ValidArgsFunction: a.completeQueues,
		RunE: func(c *cobra.Command, args []string) error {
			r, err := ask(c.Context(), a, a.queueAdmin().ExplainGroup, &tubev1.ExplainGroupRequest{Group: args[0]})
			if err != nil {
				return err
			}
			return a.contract(r, func(w io.Writer) error {
				fmt.Fprintln(w, printable(r.Summary))
				if len(r.Causes) < 2 {
					return nil
				}
				t := newTable("CAUSE", "PARTITION", "MESSAGES", "WHO", "UNTIL", "WHY")
				for _, k := range r.Causes {
					partition := "all"
					if k.Partition >= 0 {
						partition = fmt.Sprint(k.Partition)
					}
					t.row(k.Kind, partition, k.Messages, k.ConsumerId, stampOf(k.Until), k.Text)
				}
				return t.write(w)
			})
		},
	}
	return a.client(c)
}
