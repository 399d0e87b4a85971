package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
)

func newClusterHealth(a *app) *cobra.Command {
	c := &cobra.Command{
		Use: "health", Short: "Tell what is wrong with the cluster and with each of its nodes", Args: exactly(0),
		Long: `Tell what is wrong with the cluster and with each of its nodes, the worst first,
and which partitions need help.

The exit code is 0 if all is well, 6 if something is wrong, and 4 if no node
answers.`,
		RunE: func(c *cobra.Command, _ []string) error {
			h, err := ask(c.Context(), a, a.cluster().Health, &tubev1.HealthRequest{})
			if err != nil {
				return err
			}
			sick, err := ask(c.Context(), a, a.cluster().DescribeReplicas, &tubev1.DescribeReplicasRequest{OnlyProblems: true})
			if err != nil {
				return err
			}
			out := toHealth(h, sick.Partitions)
			if err := a.result(out, out.write); err != nil || out.Healthy {
				return err
			}
			return &failure{exitUnhealthy, "the cluster needs help", ""}
		},
	}
	return a.client(c)
}

type clusterHealth struct {
	Healthy    bool              `json:"healthy"`
	Problems   []string          `json:"problems"`
	Nodes      []nodeHealth      `json:"nodes"`
	Partitions []unwellPartition `json:"partitions"`
}

type nodeHealth struct {
	Node        int32    `json:"node"`
	Unreachable bool     `json:"unreachable"`
	Problems    []string `json:"problems"`
}

type unwellPartition struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Leader    int32  `json:"leader"` // -1: none
	Health    string `json:"health"`
}

func toHealth(h *tubev1.HealthResponse, sick []*tubev1.PartitionReplicas) *clusterHealth {
	out := &clusterHealth{h.Healthy, append([]string{}, h.Problems...), []nodeHealth{}, []unwellPartition{}}
	for _, n := range h.Nodes {
		out.Nodes = append(out.Nodes, nodeHealth{n.Node, n.Unreachable, append([]string{}, n.Problems...)})
	}
	for _, p := range sick {
		out.Partitions = append(out.Partitions, unwellPartition{p.Topic, p.Partition, p.Leader, p.Health})
		// One that is only on its way somewhere is as somebody wants it.
		out.Healthy = out.Healthy && p.Health == "moving"
	}
	return out
}

// shownPartitions is how many of those that need help are written for people.
const shownPartitions = 20

func (h *clusterHealth) write(w io.Writer) error {
	if h.Healthy {
		fmt.Fprintln(w, "The cluster is well.")
	}
	for _, p := range h.Problems {
		fmt.Fprintf(w, "cluster  %s\n", printable(p))
	}
	for _, n := range h.Nodes {
		if n.Unreachable {
			fmt.Fprintf(w, "node %d   does not answer\n", n.Node)
		}
		for _, p := range n.Problems {
			fmt.Fprintf(w, "node %d   %s\n", n.Node, printable(p))
		}
	}
	if len(h.Partitions) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	t := newTable("PARTITION", "LEADER", "HEALTH")
	for _, p := range h.Partitions[:min(len(h.Partitions), shownPartitions)] {
		t.row(fmt.Sprintf("%s/%d", p.Topic, p.Partition), orNone(p.Leader), p.Health)
	}
	if err := t.write(w); err != nil {
		return err
	}
	if more := len(h.Partitions) - shownPartitions; more > 0 {
		fmt.Fprintf(w, "and %s more; --json has them all\n", count(int64(more)))
	}
	return nil
}

// orNone writes a node's id, "none" for −1.
func orNone(node int32) string {
	if node < 0 {
		return "none"
	}
	return fmt.Sprint(node)
}

// sentence begins a text from a node as a sentence does.
func sentence(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + strings.TrimSuffix(s[1:], ".") + "."
}
