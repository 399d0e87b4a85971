package cli

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/tube-mq/tube/internal/record"
)

func newTopicCreate(a *app) *cobra.Command {
	var (
		partitions  int32
		replication int16
		pairs       []string
		unless      bool
	)
	c := &cobra.Command{
		Use: "create NAME", Short: "Create a topic", Args: exactly(1),
		Example: "  tube topic create orders --partitions 8 --config retention.ms=86400000",
		RunE: func(c *cobra.Command, args []string) error {
			configs, err := settings(pairs)
			if err != nil {
				return err
			}
			if partitions < 1 && partitions != -1 || replication < 1 && replication != -1 {
				return usage("", "--partitions and --replication-factor must be at least 1")
			}
			adm, ctx, done, err := a.admin(c.Context())
			if err != nil {
				return err
			}
			defer done()
			// The call's error and the topic's are the same one; the topic's has the node's words.
			r, err := adm.CreateTopic(ctx, partitions, replication, configs, args[0])
			if unless && errors.Is(r.Err, kerr.TopicAlreadyExists) {
				return a.done(createdTopic{Name: args[0]}, "Topic %s is there already.", args[0])
			}
			if err != nil {
				return fmt.Errorf("topic %q: %w", args[0], serverSays(err, r.ErrMessage))
			}
			out := createdTopic{args[0], true, record.TopicID(r.ID).String(), r.NumPartitions, r.ReplicationFactor}
			return a.done(out, "Created topic %s with %s, replication factor %d.", out.Name, plural(int64(out.Partitions), "partition"), out.ReplicationFactor)
		},
	}
	c.Flags().Int32Var(&partitions, "partitions", -1, "number of partitions; -1: as the node's default-partitions says")
	c.Flags().Int16Var(&replication, "replication-factor", -1, "copies of each partition; -1: the cluster's default")
	c.Flags().StringArrayVar(&pairs, "config", nil, "topic setting as NAME=VALUE; may be repeated")
	c.Flags().BoolVar(&unless, "if-not-exists", false, "succeed if the topic is there already")
	return a.client(c)
}

type createdTopic struct {
	Name              string `json:"name"`
	Created           bool   `json:"created"`
	ID                string `json:"id,omitempty"`
	Partitions        int32  `json:"partitions,omitempty"`
	ReplicationFactor int16  `json:"replication_factor,omitempty"`
}
