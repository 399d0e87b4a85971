package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
)

func newQueuePending(a *app) *cobra.Command {
	var (
		limit int
		state string
	)
	c := &cobra.Command{
		Use: "pending GROUP", Short: "List messages in hand, failed or held back", Args: exactly(1), ValidArgsFunction: a.completeQueues,
		RunE: func(c *cobra.Command, args []string) error {
			all := &tubev1.ListPendingResponse{}
			err := paged(limit, func(size int32, token string) (int, string, error) {
				r, err := ask(c.Context(), a, a.queueAdmin().ListPending, &tubev1.ListPendingRequest{Group: args[0], Limit: size, PageToken: token, State: state})
				if err != nil {
					return 0, "", err
				}
				all.Messages, all.NextPageToken = append(all.Messages, r.Messages...), r.NextPageToken
				return len(r.Messages), r.NextPageToken, nil
			})
			if err != nil {
				return err
			}
			return a.contract(all, func(w io.Writer) error { return writePending(w, all.Messages) })
		},
	}
	c.Flags().IntVarP(&limit, "limit", "n", 100, "at most so many; 0: all")
	c.Flags().StringVar(&state, "state", "", "only those: ready, leased, backing-off, blocked, parked, suspect, dying; without: all that are not plainly ready")
	return a.client(c)
}

func writePending(w io.Writer, ms []*tubev1.PendingMessage) error {
	t := newTable("MESSAGE", "STATE", "FAILED", "WHO", "UNTIL", "LEASE", "")
	for _, m := range ms {
		who := m.ConsumerId
		if m.Address != "" && m.Address != who {
			who += " at " + m.Address
		}
		remark := m.LastReason
		if m.State == "blocked" {
			remark = fmt.Sprintf("by %d/%d of the same key", m.Partition, m.BlockedBy)
		}
		t.row(fmt.Sprintf("%d/%d", m.Partition, m.Offset), m.State, m.Attempts, who, stampOf(m.Until), m.LeaseId, remark)
	}
	return t.write(w)
}
