package cli

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"

	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
)

func newTopicAlter(a *app) *cobra.Command {
	var (
		partitions int
		pairs      []string
		reset      []string
		factor     int32
		f          moveFlags
	)
	c := &cobra.Command{
		Use: "alter NAME", Short: "Change a topic's settings or replication factor, or add partitions", Args: exactly(1), ValidArgsFunction: a.completeTopics,
		Example: "  tube topic alter orders --config retention.ms=3600000 --reset max.message.bytes\n  tube topic alter orders --partitions 16\n  tube topic alter orders --replication-factor 3 --wait",
		Long: `Change a topic's settings or replication factor, or add partitions.

The replication factor is changed by copying or dropping replicas while the topic
is used; --throttle and --wait are for that. It is the node at --http that is asked
for it.`,
		RunE: func(c *cobra.Command, args []string) error {
			set, err := settings(pairs)
			if err != nil {
				return err
			}
			if len(set)+len(reset) == 0 && !c.Flags().Changed("partitions") && !c.Flags().Changed("replication-factor") {
				return usage("give --config NAME=VALUE, --reset NAME, --partitions N or --replication-factor N", "nothing to change")
			}
			if c.Flags().Changed("replication-factor") {
				if len(set)+len(reset) > 0 || c.Flags().Changed("partitions") {
					return usage("one after the other", "--replication-factor does not go with other changes")
				}
				return a.alterFactor(c, args[0], factor, &f)
			}
			adm, ctx, done, err := a.admin(c.Context())
			if err != nil {
				return err
			}
			defer done()
			if _, err := topic(ctx, adm, args[0]); err != nil {
				return err
			}
			changes := []string{}
			if len(set)+len(reset) > 0 {
				var ops []kadm.AlterConfig
				for _, k := range slices.Sorted(maps.Keys(set)) {
					ops = append(ops, kadm.AlterConfig{Op: kadm.SetConfig, Name: k, Value: set[k]})
					changes = append(changes, k+"="+*set[k])
				}
				for _, k := range reset {
					ops = append(ops, kadm.AlterConfig{Op: kadm.DeleteConfig, Name: k})
					changes = append(changes, k+" back to its default")
				}
				alter := adm.AlterTopicConfigs
				if f.dryRun {
					alter = adm.ValidateAlterTopicConfigs
				}
				rs, err := alter(ctx, ops, args[0])
				if err != nil {
					return err
				}
				for _, r := range rs {
					if r.Err != nil {
						return fmt.Errorf("topic %q: %w", args[0], serverSays(r.Err, r.ErrMessage))
					}
				}
			}
			if c.Flags().Changed("partitions") {
				update := adm.UpdatePartitions
				if f.dryRun {
					update = adm.ValidateUpdatePartitions
				}
				rs, err := update(ctx, partitions, args[0])
				if err != nil {
					return err
				}
				for _, r := range rs {
					if r.Err != nil {
						return fmt.Errorf("topic %q: %w", args[0], serverSays(r.Err, r.ErrMessage))
					}
				}
				changes = append(changes, plural(int64(partitions), "partition"))
			}
			verb := "Changed"
			if f.dryRun {
				verb = "Would change"
			}
			return a.done(alteredTopic{args[0], changes, f.dryRun}, "%s topic %s: %s.", verb, args[0], strings.Join(changes, ", "))
		},
	}
	c.Flags().IntVar(&partitions, "partitions", 0, "new number of partitions; more than now")
	c.Flags().StringArrayVar(&pairs, "config", nil, "topic setting as NAME=VALUE; may be repeated")
	c.Flags().StringArrayVar(&reset, "reset", nil, "setting to put back to its default; may be repeated")
	c.Flags().Int32Var(&factor, "replication-factor", 0, "new number of copies of each partition")
	f.add(c.Flags())
	c.Flags().Lookup("dry-run").Usage = "only say whether it could be done, and what would move"
	return a.client(c)
}

func (a *app) alterFactor(c *cobra.Command, name string, factor int32, f *moveFlags) error {
	throttle, err := f.bytesPerSecond()
	if err != nil {
		return err
	}
	r, err := ask(c.Context(), a, a.cluster().AlterReplicationFactor, &tubev1.AlterReplicationFactorRequest{
		Topic: name, ReplicationFactor: factor, DryRun: f.dryRun, ThrottleBytesPerSecond: throttle,
	})
	if err != nil {
		return err
	}
	return a.moved(c, r.Moves, f, fmt.Sprintf("Each partition of %s has %s already.", name, plural(int64(factor), "replica")))
}

type alteredTopic struct {
	Name    string   `json:"name"`
	Changes []string `json:"changes"`
	DryRun  bool     `json:"dry_run"`
}
