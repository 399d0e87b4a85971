package cli

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/tube-mq/tube/internal/record"
)

func newTopicList(a *app) *cobra.Command {
	c := &cobra.Command{
		Use: "list", Aliases: []string{"ls"}, Short: "List topics", Args: exactly(0),
		RunE: func(c *cobra.Command, _ []string) error {
			adm, ctx, done, err := a.admin(c.Context())
			if err != nil {
				return err
			}
			defer done()
			all, err := adm.ListTopics(ctx)
			if err != nil {
				return err
			}
			out := []listedTopic{}
			for _, t := range all.Sorted() {
				l := listedTopic{Name: t.Topic, ID: record.TopicID(t.ID).String(), Partitions: len(t.Partitions), ReplicationFactor: t.Partitions.NumReplicas()}
				for _, p := range t.Partitions {
					if p.Leader < 0 {
						l.WithoutLeader++
					}
				}
				out = append(out, l)
			}
			return a.result(out, func(w io.Writer) error {
				if len(out) == 0 {
					a.note("There are no topics yet. Create one with: tube topic create NAME")
				}
				t := newTable("NAME", "PARTITIONS", "REPLICAS", "WITHOUT LEADER")
				for _, l := range out {
					t.row(l.Name, l.Partitions, l.ReplicationFactor, l.WithoutLeader)
				}
				return t.write(w)
			})
		},
	}
	return a.client(c)
}

type listedTopic struct {
	Name              string `json:"name"`
	ID                string `json:"id"`
	Partitions        int    `json:"partitions"`
	ReplicationFactor int    `json:"replication_factor"`
	WithoutLeader     int    `json:"partitions_without_leader"`
}
