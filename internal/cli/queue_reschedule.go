package cli

import (
	"github.com/spf13/cobra"

	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
)

func newQueueReschedule(a *app) *cobra.Command {
	var when later
	c := &cobra.Command{
		Use: "reschedule TOPIC MESSAGE... --delay D|--at TIME", Short: "Make delayed messages due at another time", Args: atLeast(2), ValidArgsFunction: a.completeTopics,
		Long: "Make delayed messages due at another time. They are named as for cancel.",
		RunE: func(c *cobra.Command, args []string) error {
			delay, at, err := when.read(a.now())
			if err != nil {
				return err
			}
			q := &tubev1.RescheduleDelayedRequest{Topic: args[0], Messages: refArgs(args[1:])}
			switch {
			case delay != nil:
				q.When = &tubev1.RescheduleDelayedRequest_Delay{Delay: delay}
			case at != nil:
				q.When = &tubev1.RescheduleDelayedRequest_DeliverAt{DeliverAt: at}
			default:
				return usage("usage: "+c.UseLine(), "when? give --delay or --at")
			}
			r, err := ask(c.Context(), a, a.queueAdmin().RescheduleDelayed, q)
			if err != nil {
				return err
			}
			return a.items(r, args[1:], r.Results, "rescheduled")
		},
	}
	when.flags(c, "deliver")
	return a.client(c)
}
