package cli

import (
	"github.com/spf13/cobra"

	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
)

func newQueueNack(a *app) *cobra.Command {
	var (
		when   later
		reason string
		dead   bool
	)
	c := &cobra.Command{
		Use: "nack GROUP LEASE...", Short: "Say that handling failed: the message comes again later", Args: atLeast(2), ValidArgsFunction: a.completeQueues,
		Long:    "Say that handling failed. The message comes again after the group's back-off, or as --delay or --at says;\nthis counts as an attempt. With --dead it is set aside at once.",
		Example: "  tube queue nack billing 0-42-1-200000007-9c04f3aa --delay 5m --reason 'payment service is down'",
		RunE: func(c *cobra.Command, args []string) error {
			delay, at, err := when.read(a.now())
			if err != nil {
				return err
			}
			if dead && (delay != nil || at != nil) {
				return usage("", "--dead with a time: a dead message is not delivered again")
			}
			q := &tubev1.NackRequest{Group: args[0]}
			for _, id := range args[1:] {
				e := &tubev1.NackEntry{LeaseId: id, Reason: reason, Dead: dead}
				switch {
				case delay != nil:
					e.When = &tubev1.NackEntry_Delay{Delay: delay}
				case at != nil:
					e.When = &tubev1.NackEntry_DeliverAt{DeliverAt: at}
				}
				q.Entries = append(q.Entries, e)
			}
			r, err := ask(c.Context(), a, a.queues(0).Nack, q)
			if err != nil {
				return err
			}
			return a.settled(r, r.Results, map[bool]string{false: "again later", true: "set aside"}[dead])
		},
	}
	when.flags(c, "again")
	c.Flags().StringVar(&reason, "reason", "", "what went wrong, for the record of attempts")
	c.Flags().BoolVar(&dead, "dead", false, "never again: to the dead letters")
	return a.client(c)
}
