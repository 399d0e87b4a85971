package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
)

func newMessageTrace(a *app) *cobra.Command {
	var id, at string
	c := &cobra.Command{
		Use: "trace TOPIC --id ID|--offset PARTITION/OFFSET", Short: "Say where a message is, in all queue groups", Args: exactly(1), ValidArgsFunction: a.completeTopics,
		Long:    "Say where a message is: stored where, due when, and in each queue group of its topic waiting for what,\nin whose hand, done or dead. By --id if the topic has tube.dedupe.window.",
		Example: "  tube message trace orders --offset 0/42",
		RunE: func(c *cobra.Command, args []string) error {
			ref := &tubev1.MessageRef{Ref: &tubev1.MessageRef_Id{Id: id}}
			switch p, ok := placeArg(at); {
			case (id == "") == (at == ""):
				return usage("usage: "+c.UseLine(), "which message? give --id or --offset")
			case at != "" && !ok:
				return usage("for example: --offset 0/42", "--offset %q is not PARTITION/OFFSET", at)
			case ok:
				ref.Ref = &tubev1.MessageRef_At{At: p}
			}
			r, err := ask(c.Context(), a, a.queueAdmin().TraceMessage, &tubev1.TraceMessageRequest{Topic: args[0], Message: ref})
			if err != nil {
				return err
			}
			return a.contract(r, func(w io.Writer) error { return writeTrace(w, r) })
		},
	}
	c.Flags().StringVar(&id, "id", "", "the message's id")
	c.Flags().StringVar(&at, "offset", "", "its place, PARTITION/OFFSET")
	return a.client(c)
}

func writeTrace(w io.Writer, r *tubev1.TraceMessageResponse) error {
	fmt.Fprintf(w, "Message:      %s %d/%d\n", printable(r.Topic), r.Partition, r.Offset)
	if r.Id != "" {
		fmt.Fprintf(w, "Id:           %s\n", printable(r.Id))
	}
	if r.Key != nil {
		fmt.Fprintf(w, "Key:          %s\n", printable(string(r.Key)))
	}
	switch {
	case !r.Stored:
		fmt.Fprintln(w, "Stored:       no more: retention has taken it")
	default:
		fmt.Fprintf(w, "Stored:       %s, sent %s, %s\n", onNodes(r.Nodes), stampOf(r.Time), plural(r.Size, "byte"))
	}
	if r.Cancelled {
		fmt.Fprintln(w, "Cancelled:    no queue group has it")
	} else if r.DeliverAt != nil {
		fmt.Fprintf(w, "Due:          %s\n", stampOf(r.DeliverAt))
	}
	t := newTable("GROUP", "STATE", "FAILED", "WHO", "UNTIL", "WHY")
	for _, g := range r.Groups {
		why := g.Text
		if g.LastReason != "" {
			why += " (last failure: " + g.LastReason + ")"
		}
		if g.DeadLetter != "" {
			why += " (dead letter " + g.DeadLetter + ")"
		}
		t.row(g.Group, g.State, g.Attempts, g.ConsumerId, stampOf(g.Until), why)
	}
	return t.write(w)
}

func onNodes(nodes []int32) string {
	if len(nodes) == 0 {
		return "on nodes that are not known"
	}
	out := plural(int64(len(nodes)), "node")
	for i, n := range nodes {
		out += map[bool]string{true: ": ", false: ", "}[i == 0] + fmt.Sprint(n)
	}
	return "on " + out
}
