package cli

import (
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
)

func newQueueUpdate(a *app) *cobra.Command {
	var s queueSettings
	c := &cobra.Command{
		Use: "update GROUP", Short: "Change settings of a queue group", Args: exactly(1), ValidArgsFunction: a.completeQueues,
		Long:    "Change settings of a queue group: those that are given; the others stay. Its order, mode and way of\nacknowledging cannot be changed.",
		Example: "  tube queue update billing --lease 2m --rate 50/s",
		RunE: func(c *cobra.Command, args []string) error {
			settings, err := s.read(c)
			if err != nil {
				return err
			}
			if proto.Equal(settings, &tubev1.QueueSettings{}) {
				return usage("see: tube queue update --help", "nothing is to be changed")
			}
			r, err := ask(c.Context(), a, a.queueAdmin().UpdateGroup, &tubev1.UpdateGroupRequest{Group: args[0], Settings: settings})
			if err != nil {
				return err
			}
			return a.said(r, "Changed queue group %s.", args[0])
		},
	}
	s.flags(c, false)
	return a.client(c)
}
