package cli

import (
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
)

func newClusterStatus(a *app) *cobra.Command {
	c := &cobra.Command{
		Use: "status", Short: "Sum the cluster up", Args: exactly(0),
		RunE: func(c *cobra.Command, _ []string) error {
			m, err := ask(c.Context(), a, a.cluster().Status, &tubev1.StatusRequest{})
			if err != nil {
				return err
			}
			out := &clusterStatus{
				m.ClusterId, m.Version, m.NodeId, m.ControllerId, m.Nodes, m.NodesUp, m.Topics, m.Partitions,
				m.PartitionsWithoutLeader, m.PartitionsUnderReplicated, m.FeatureLevel, m.NextFeatureLevel, append([]int32{}, m.NodesBehind...),
				m.NodeStarted.AsTime(), append(append([]string{}, m.ClusterProblems...), m.Problems...),
			}
			return a.result(out, func(w io.Writer) error { return out.write(w, a.now()) })
		},
	}
	return a.client(c)
}

type clusterStatus struct {
	ClusterID       string    `json:"cluster_id"`
	Version         string    `json:"version"`
	Node            int32     `json:"node_id"`
	Controller      int32     `json:"controller_id"`
	Nodes           int32     `json:"nodes"`
	NodesUp         int32     `json:"nodes_up"`
	Topics          int32     `json:"topics"`
	Partitions      int32     `json:"partitions"`
	WithoutLeader   int32     `json:"partitions_without_leader"`
	UnderReplicated int32     `json:"partitions_under_replicated"`
	Level           uint32    `json:"feature_level"`
	NextLevel       uint32    `json:"next_feature_level"` // 0: none
	Behind          []int32   `json:"nodes_behind"`       // do not know it
	Started         time.Time `json:"node_started"`
	Problems        []string  `json:"problems"`
}

func (s *clusterStatus) write(w io.Writer, now time.Time) error {
	controller := "none"
	if s.Controller >= 0 {
		controller = fmt.Sprintf("node %d", s.Controller)
	}
	fmt.Fprintf(w, "Cluster     %s\nController  %s\nNodes       %d, %d up\nTopics      %d\nPartitions  %d, %d without a leader, %d with replicas missing\nLevel       %s\nAsked       node %d, %s, up for %s\n",
		s.ClusterID, controller, s.Nodes, s.NodesUp, s.Topics, s.Partitions, s.WithoutLeader, s.UnderReplicated, s.level(), s.Node, printable(s.Version), now.Sub(s.Started).Round(time.Second))
	for _, p := range s.Problems {
		fmt.Fprintf(w, "Problem     %s\n", printable(p))
	}
	return nil
}

// level says what the cluster uses, and what the next level waits for.
func (s *clusterStatus) level() string {
	switch {
	case s.NextLevel == 0:
		return fmt.Sprint(s.Level)
	case len(s.Behind) == 0:
		return fmt.Sprintf("%d, soon %d", s.Level, s.NextLevel)
	}
	return fmt.Sprintf("%d; %d once these nodes are upgraded: %s", s.Level, s.NextLevel, ids(s.Behind))
}
