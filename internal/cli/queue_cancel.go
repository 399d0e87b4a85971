package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
)

func newQueueCancel(a *app) *cobra.Command {
	c := &cobra.Command{
		Use: "cancel TOPIC MESSAGE...", Short: "Cancel delayed messages", Args: atLeast(2), ValidArgsFunction: a.completeTopics,
		Long:    "Cancel delayed messages, named as PARTITION/OFFSET or, in a topic with tube.dedupe.window, by id.\nNo queue group has them then; who reads the topic as a stream has had them already.",
		Example: "  tube queue cancel orders 0/42",
		RunE: func(c *cobra.Command, args []string) error {
			r, err := ask(c.Context(), a, a.queueAdmin().CancelDelayed, &tubev1.CancelDelayedRequest{Topic: args[0], Messages: refArgs(args[1:])})
			if err != nil {
				return err
			}
			return a.items(r, args[1:], r.Results, "cancelled")
		},
	}
	return a.client(c)
}

// items says what became of messages.
func (a *app) items(m proto.Message, names []string, rs []*tubev1.ItemResult, did string) error {
	failed := 0
	var first *tubev1.ItemError
	t := newTable("MESSAGE", "AT", "RESULT")
	for i, r := range rs {
		name, at, result := "", fmt.Sprintf("%d/%d", r.Partition, r.Offset), did
		if i < len(names) {
			name = names[i]
		}
		if r.Error != nil {
			if failed++; first == nil {
				first = r.Error
			}
			at, result = "", r.Error.Message
		}
		t.row(name, at, result)
	}
	if err := a.contract(m, func(w io.Writer) error { return t.write(w) }); err != nil {
		return err
	}
	return failedSome(failed, len(rs), first)
}
