package cli

import (
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/spf13/cobra"

	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
)

func newQueueDeadShow(a *app) *cobra.Command {
	c := &cobra.Command{
		Use: "show GROUP PARTITION/OFFSET", Short: "Show a dead letter and every attempt to handle it", Args: exactly(2), ValidArgsFunction: a.completeQueues,
		RunE: func(c *cobra.Command, args []string) error {
			m, err := a.deadLetter(c.Context(), args[0], args[1])
			if err != nil {
				return err
			}
			return a.contract(m, func(w io.Writer) error { return writeDead(w, m) })
		},
	}
	return a.client(c)
}

func writeDead(w io.Writer, m *tubev1.DeadMessage) error {
	fmt.Fprintf(w, "Dead letter:  %d/%d\nFrom:         %s %d/%d\nSent:         %s\nDied:         %s, %s\n", m.Partition, m.Offset,
		printable(m.Topic), m.SourcePartition, m.SourceOffset, stampOf(m.Time), stampOf(m.Died), printable(m.Reason))
	if m.Id != "" {
		fmt.Fprintf(w, "Id:           %s\n", printable(m.Id))
	}
	if m.Key != nil {
		fmt.Fprintf(w, "Key:          %s\n", printable(string(m.Key)))
	}
	for _, k := range slices.Sorted(maps.Keys(m.Headers)) {
		fmt.Fprintf(w, "Header:       %s=%s\n", printable(k), printable(m.Headers[k]))
	}
	t := newTable("ATTEMPT", "TIME", "WHO", "FROM", "ERROR")
	for i, x := range m.Attempts {
		t.row(i+1, stampOf(x.Time), x.ConsumerId, x.Address, x.Error)
	}
	if err := t.write(w); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "Value, %s:\n%s\n", plural(m.ValueSize, "byte"), m.Value)
	return err
}
