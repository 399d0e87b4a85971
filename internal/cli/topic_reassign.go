package cli

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
)

func newTopicReassign(a *app) *cobra.Command {
	var (
		f                moveFlags
		replicas, nodes  string
		cancel, listOnly bool
	)
	c := &cobra.Command{
		Use: "reassign [TOPIC]", Short: "Move a topic's partitions to other nodes", ValidArgsFunction: a.completeTopics,
		Long: `Move a topic's partitions to other nodes. The partitions are written and read all
the while: new replicas copy first, then they vote, then the old ones go. The first
node of a list is the preferred leader; the same nodes in another order copy
nothing.

--list tells what moves, of all topics if none is named; --cancel drives back to
where it was what has not arrived yet.`,
		Example: "  tube topic reassign orders --replicas '0:1,2,3;1:2,3,1' --throttle 50MB/s --wait\n  tube topic reassign orders --nodes 1,2,3 --dry-run\n  tube topic reassign --list",
		Args: func(c *cobra.Command, args []string) error {
			if len(args) == 0 && listOnly {
				return nil
			}
			return exactly(1)(c, args)
		},
		RunE: func(c *cobra.Command, args []string) error {
			given := 0
			for _, g := range []bool{replicas != "", nodes != "", cancel, listOnly} {
				if g {
					given++
				}
			}
			if given != 1 {
				return usage("see: tube topic reassign --help", "give one of --replicas, --nodes, --list and --cancel")
			}
			switch {
			case listOnly:
				return a.listReassignments(c, strings.Join(args, ""))
			case cancel:
				return a.cancelReassign(c, args[0])
			}
			q := &tubev1.ReassignRequest{Topic: args[0], DryRun: f.dryRun}
			var err error
			if q.ThrottleBytesPerSecond, err = f.bytesPerSecond(); err != nil {
				return err
			}
			if nodes != "" {
				q.Nodes, err = nodeArgs(nodes)
			} else {
				q.Partitions, err = replicaLists(replicas)
			}
			if err != nil {
				return err
			}
			r, err := ask(c.Context(), a, a.cluster().Reassign, q)
			if err != nil {
				return err
			}
			return a.moved(c, r.Moves, &f, "All of it is there already.")
		},
	}
	c.Flags().StringVar(&replicas, "replicas", "", "where partitions shall lie, preferred leader first: '0:1,2,3;1:2,3,1'")
	c.Flags().StringVar(&nodes, "nodes", "", "spread all partitions over these nodes: 1,2,3")
	c.Flags().BoolVar(&cancel, "cancel", false, "take back what has not arrived yet")
	c.Flags().BoolVar(&listOnly, "list", false, "list what moves, and how far it is")
	f.add(c.Flags())
	return a.client(c)
}

// replicaLists reads "0:1,2,3;1:2,3,1".
func replicaLists(s string) ([]*tubev1.PartitionNodes, error) {
	var out []*tubev1.PartitionNodes
	seen := map[int64]bool{}
	for _, part := range strings.Split(s, ";") {
		if strings.TrimSpace(part) == "" {
			continue
		}
		number, list, ok := strings.Cut(part, ":")
		n, err := strconv.ParseInt(strings.TrimSpace(number), 10, 32)
		if !ok || err != nil || n < 0 {
			return nil, usage("for example: --replicas '0:1,2,3;1:2,3,1'", "%q is not PARTITION:NODE,NODE,…", part)
		}
		if seen[n] {
			return nil, usage("", "partition %d is given twice", n)
		}
		seen[n] = true
		nodes, err := nodeArgs(list)
		if err != nil {
			return nil, err
		}
		out = append(out, &tubev1.PartitionNodes{Partition: int32(n), Nodes: nodes})
	}
	if len(out) == 0 {
		return nil, usage("for example: --replicas '0:1,2,3;1:2,3,1'", "--replicas names no partition")
	}
	return out, nil
}

func (a *app) cancelReassign(c *cobra.Command, topic string) error {
	r, err := ask(c.Context(), a, a.cluster().CancelReassign, &tubev1.CancelReassignRequest{Topic: topic})
	if err != nil {
		return err
	}
	out := cancelledReassign{topic, append([]int32{}, r.Partitions...)}
	if len(r.Partitions) == 0 {
		return a.done(out, "Nothing of topic %s is moving.", topic)
	}
	return a.done(out, "Going back to where they were: partitions %s of topic %s.", ids(r.Partitions), topic)
}

type cancelledReassign struct {
	Topic      string  `json:"topic"`
	Partitions []int32 `json:"partitions"`
}

type listedReassignment struct {
	Topic     string  `json:"topic"`
	Partition int32   `json:"partition"`
	Replicas  []int32 `json:"replicas"`
	Adding    []int32 `json:"adding"`
	Removing  []int32 `json:"removing"`
	Cause     string  `json:"cause"`
	Throttle  int64   `json:"throttle_bytes_per_second"`
	Needed    uint64  `json:"entries_needed"`
	There     uint64  `json:"entries_there"`
}

func (a *app) listReassignments(c *cobra.Command, topic string) error {
	r, err := ask(c.Context(), a, a.cluster().ListReassignments, &tubev1.ListReassignmentsRequest{Topic: topic})
	if err != nil {
		return err
	}
	out := []listedReassignment{}
	for _, m := range r.Reassignments {
		out = append(out, listedReassignment{
			m.Topic, m.Partition, append([]int32{}, m.Replicas...), append([]int32{}, m.Adding...), append([]int32{}, m.Removing...),
			m.Cause, m.ThrottleBytesPerSecond, m.EntriesNeeded, m.EntriesThere,
		})
	}
	return a.result(out, func(w io.Writer) error {
		if len(out) == 0 {
			a.note("Nothing is moving.")
		}
		t := newTable("PARTITION", "REPLICAS", "ADDING", "REMOVING", "WHY", "THROTTLE", "COPIED")
		for _, m := range out {
			throttle, copied := "", "?"
			if m.Throttle > 0 {
				throttle = count(m.Throttle) + " B/s"
			}
			if m.Needed > 0 {
				copied = fmt.Sprintf("%d %%", m.There*100/m.Needed)
			}
			t.row(fmt.Sprintf("%s/%d", m.Topic, m.Partition), ids(m.Replicas), ids(m.Adding), ids(m.Removing), m.Cause, throttle, copied)
		}
		return t.write(w)
	})
}
