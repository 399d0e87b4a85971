package cli

import (
	"io"

	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
)

func newQueueAck(a *app) *cobra.Command {
	c := &cobra.Command{
		Use: "ack GROUP LEASE...", Short: "Acknowledge: done with", Args: atLeast(2), ValidArgsFunction: a.completeQueues,
		RunE: func(c *cobra.Command, args []string) error {
			r, err := ask(c.Context(), a, a.queues(0).Acknowledge, &tubev1.AcknowledgeRequest{Group: args[0], LeaseIds: args[1:]})
			if err != nil {
				return err
			}
			return a.settled(r, r.Results, "acknowledged")
		},
	}
	return a.client(c)
}

// settled says what became of leases.
func (a *app) settled(m proto.Message, rs []*tubev1.LeaseResult, did string) error {
	err := a.contract(m, func(w io.Writer) error {
		t := newTable("LEASE", "RESULT")
		for _, r := range rs {
			if r.Error != nil {
				t.row(r.LeaseId, r.Error.Message)
			} else {
				t.row(r.LeaseId, did)
			}
		}
		return t.write(w)
	})
	if err != nil {
		return err
	}
	failed, first := refusedLeases(rs)
	return failedSome(failed, len(rs), first)
}

func refusedLeases(rs []*tubev1.LeaseResult) (failed int, first *tubev1.ItemError) {
	for _, r := range rs {
		if r.Error != nil {
			if failed++; first == nil {
				first = r.Error
			}
		}
	}
	return failed, first
}
