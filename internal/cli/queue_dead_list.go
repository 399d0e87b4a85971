package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"
)

func newQueueDeadList(a *app) *cobra.Command {
	var (
		filter string
		limit  int
	)
	c := &cobra.Command{
		Use: "list GROUP", Aliases: []string{"ls"}, Short: "List a queue group's dead letters", Args: exactly(1), ValidArgsFunction: a.completeQueues,
		RunE: func(c *cobra.Command, args []string) error {
			all, err := a.deadLetters(c.Context(), args[0], filter, limit)
			if err != nil {
				return err
			}
			return a.contract(all, func(w io.Writer) error {
				t := newTable("DEAD LETTER", "DIED", "FROM", "ATTEMPTS", "KEY", "BYTES", "WHY")
				for _, m := range all.Messages {
					t.row(fmt.Sprintf("%d/%d", m.Partition, m.Offset), stampOf(m.Died), fmt.Sprintf("%s %d/%d", m.Topic, m.SourcePartition, m.SourceOffset), len(m.Attempts), string(m.Key), m.ValueSize, m.Reason)
				}
				if all.NextPageToken != "" {
					a.note("There are more; -n 0 lists all.")
				}
				return t.write(w)
			})
		},
	}
	c.Flags().StringVar(&filter, "filter", "", "only those for which this CEL expression is true")
	c.Flags().IntVarP(&limit, "limit", "n", 100, "at most so many; 0: all")
	return a.client(c)
}
