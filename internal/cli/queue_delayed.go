package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
)

func newQueueDelayed(a *app) *cobra.Command {
	var limit int
	c := &cobra.Command{
		Use: "delayed TOPIC", Short: "List messages that are not due yet", Args: exactly(1), ValidArgsFunction: a.completeTopics,
		RunE: func(c *cobra.Command, args []string) error {
			all := &tubev1.ListDelayedResponse{}
			err := paged(limit, func(size int32, token string) (int, string, error) {
				r, err := ask(c.Context(), a, a.queueAdmin().ListDelayed, &tubev1.ListDelayedRequest{Topic: args[0], Limit: size, PageToken: token})
				if err != nil {
					return 0, "", err
				}
				all.Messages, all.NextPageToken = append(all.Messages, r.Messages...), r.NextPageToken
				all.Total += r.Total // the first page's
				return len(r.Messages), r.NextPageToken, nil
			})
			if err != nil {
				return err
			}
			return a.contract(all, func(w io.Writer) error {
				t := newTable("DUE", "MESSAGE", "ID", "KEY")
				for _, m := range all.Messages {
					t.row(stampOf(m.DeliverAt), fmt.Sprintf("%d/%d", m.Partition, m.Offset), m.Id, string(m.Key))
				}
				if rest := all.Total - int64(len(all.Messages)); rest > 0 {
					a.note("%s more; -n 0 lists all.", count(rest))
				}
				return t.write(w)
			})
		},
	}
	c.Flags().IntVarP(&limit, "limit", "n", 100, "at most so many, by partition and offset; 0: all")
	return a.client(c)
}
