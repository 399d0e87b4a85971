package cli

import (
	"context"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
)

func newCluster(a *app) *cobra.Command {
	return parent("cluster", "Look at the cluster and change it: nodes, health, where partitions lie",
		newClusterStatus(a), newClusterHealth(a), newClusterNodes(a), newClusterEvents(a),
		newClusterAddNode(a), newClusterDrain(a), newClusterUndrain(a), newClusterRemoveNode(a),
		newClusterRebalance(a), newClusterTransferLeader(a), newClusterUnsafeRecover(a), newClusterLocal(a), newClusterCertificates(a))
}

// nodeArg reads a node's id.
func nodeArg(s string) (int32, error) {
	n, err := strconv.ParseInt(s, 10, 32)
	if err != nil || n < 1 {
		return 0, usage("see: tube cluster nodes", "%q is not the id of a node", s)
	}
	return int32(n), nil
}

// nodeArgs reads ids with commas between them.
func nodeArgs(s string) ([]int32, error) {
	var out []int32
	for _, part := range strings.Split(s, ",") {
		n, err := nodeArg(strings.TrimSpace(part))
		if err != nil {
			return nil, err
		}
		out = append(out, n)
	}
	return out, nil
}

// partitionArg reads TOPIC/PARTITION.
func partitionArg(s string) (topic string, partition int32, err error) {
	topic, number, ok := strings.Cut(s, "/")
	n, perr := strconv.ParseInt(number, 10, 32)
	if !ok || topic == "" || perr != nil || n < 0 {
		return "", 0, usage("for example: orders/0", "%q is not TOPIC/PARTITION", s)
	}
	return topic, int32(n), nil
}

// findNode looks one node up.
func (a *app) findNode(ctx context.Context, id int32) (*tubev1.Node, error) {
	r, err := ask(ctx, a, a.cluster().ListNodes, &tubev1.ListNodesRequest{})
	if err != nil {
		return nil, err
	}
	for _, n := range r.Nodes {
		if n.Id == id {
			return n, nil
		}
	}
	return nil, notFound("see: tube cluster nodes", "there is no node %d", id)
}

// completeNodes names the nodes to the shell, for the first argument.
func (a *app) completeNodes(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	a.quiet, a.timeout = true, completionTimeout
	r, err := ask(c.Context(), a, a.cluster().ListNodes, &tubev1.ListNodesRequest{})
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var out []string
	for _, n := range r.Nodes {
		out = append(out, strconv.Itoa(int(n.Id))+"\t"+n.State+" "+n.KafkaAddress)
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}

// completePartition names topics up to the slash, then their partitions, and
// nodes for the second argument.
func (a *app) completePartition(c *cobra.Command, args []string, typed string) ([]string, cobra.ShellCompDirective) {
	topic, _, slash := strings.Cut(typed, "/")
	switch {
	case len(args) == 1:
		return a.completeNodes(c, nil, typed)
	case len(args) > 1:
		return nil, cobra.ShellCompDirectiveNoFileComp
	case !slash:
		names, _ := a.completeTopics(c, nil, typed)
		for i := range names {
			names[i] += "/"
		}
		return names, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
	a.quiet, a.timeout = true, completionTimeout
	r, err := ask(c.Context(), a, a.cluster().DescribeReplicas, &tubev1.DescribeReplicasRequest{Topic: topic})
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var out []string
	for _, p := range r.Partitions {
		out = append(out, topic+"/"+strconv.Itoa(int(p.Partition)))
	}
	return out, cobra.ShellCompDirectiveNoFileComp
}
