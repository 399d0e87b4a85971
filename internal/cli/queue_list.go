package cli

import (
	"io"

	"github.com/spf13/cobra"

	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
)

func newQueueList(a *app) *cobra.Command {
	var topic string
	c := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List queue groups", Args: exactly(0),
		RunE: func(c *cobra.Command, _ []string) error {
			all := &tubev1.ListGroupsResponse{}
			err := paged(0, func(size int32, token string) (int, string, error) {
				r, err := ask(c.Context(), a, a.queueAdmin().ListGroups, &tubev1.ListGroupsRequest{Topic: topic, Limit: size, PageToken: token})
				if err != nil {
					return 0, "", err
				}
				all.Groups = append(all.Groups, r.Groups...)
				return len(r.Groups), r.NextPageToken, nil
			})
			if err != nil {
				return err
			}
			return a.contract(all, func(w io.Writer) error {
				t := newTable("GROUP", "TOPIC", "MODE", "ORDER", "ACK", "DEAD LETTERS", "")
				for _, g := range all.Groups {
					s := g.Settings
					t.row(g.Group, g.Topic, s.GetMode(), s.GetOrder(), s.GetAck(), s.GetDeadLetter(), map[bool]string{true: "paused"}[g.Paused])
				}
				return t.write(w)
			})
		},
	}
	c.Flags().StringVar(&topic, "topic", "", "only of this topic")
	return a.client(c)
}
