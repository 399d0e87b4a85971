package cli

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
)

func newClusterAddNode(a *app) *cobra.Command {
	var n newNode
	c := &cobra.Command{
		Use: "add-node", Short: "Write the command that starts a new node of this cluster", Args: exactly(0),
		Long: `Write the command that starts a new node of this cluster, with a free id, the
masters and the cluster's id filled in. Nothing is changed: run the command on
the new machine, then even things out with rebalance.`,
		Example: "  tube cluster add-node --zone b\n  tube cluster add-node --roles master,broker --host ten.example",
		RunE: func(c *cobra.Command, _ []string) error {
			if err := a.fillIn(c.Context(), &n); err != nil {
				return err
			}
			if a.json {
				return a.result(n, nil)
			}
			if _, err := fmt.Fprintln(a.out, n.Command); err != nil {
				return err
			}
			a.note("\nRun that where the new node shall be. When it is there (%s cluster nodes), move some of the load to it: %s cluster rebalance", a.program, a.program)
			return nil
		},
	}
	c.Flags().Int32Var(&n.ID, "node-id", 0, "the node's id; else the next that is free")
	c.Flags().StringVar(&n.Roles, "roles", "broker", "what it does: broker, or master,broker")
	c.Flags().StringVar(&n.Zone, "zone", "", "where it stands")
	c.Flags().StringVar(&n.Host, "host", "", "its name or address; else that of the machine the command runs on")
	c.Flags().StringVar(&n.Data, "data", "", "its data folder; else ./data/ID")
	return a.client(c)
}

type newNode struct {
	ID      int32  `json:"node_id"`
	Cluster string `json:"cluster_id"`
	Masters string `json:"masters"`
	Roles   string `json:"roles"`
	Zone    string `json:"zone,omitempty"`
	Host    string `json:"host"`
	Data    string `json:"data"`
	Command string `json:"command"`
}

func (a *app) fillIn(ctx context.Context, n *newNode) error {
	client := a.cluster()
	s, err := ask(ctx, a, client.Status, &tubev1.StatusRequest{})
	if err != nil {
		return err
	}
	r, err := ask(ctx, a, client.ListNodes, &tubev1.ListNodesRequest{})
	if err != nil {
		return err
	}
	n.Cluster = s.ClusterId
	last := int32(0)
	local := true
	var masters []string
	for _, x := range r.Nodes {
		if x.Id == n.ID {
			return conflict("leave --node-id out for the next that is free", "node %d is in the cluster already", n.ID)
		}
		last = max(last, x.Id)
		local = local && isLoopback(x.PeerAddress)
		if slices.Contains(x.Roles, "master") {
			masters = append(masters, fmt.Sprintf("%d@%s", x.Id, x.PeerAddress))
		}
	}
	n.ID = cmp.Or(n.ID, last+1)
	n.Data = cmp.Or(n.Data, fmt.Sprintf("./data/%d", n.ID))
	ports := []int{9092, 9080, 9070}
	switch {
	case n.Host != "":
		local = isLoopback(net.JoinHostPort(n.Host, "1"))
	case local:
		n.Host = "127.0.0.1"
	default:
		n.Host = "$(hostname -f)"
	}
	if local {
		ports = freePorts(r.Nodes)
	}
	at := func(i int) string { return net.JoinHostPort(n.Host, strconv.Itoa(ports[i])) }
	if strings.Contains(n.Roles, "master") {
		masters = append(masters, fmt.Sprintf("%d@%s", n.ID, at(2)))
	}
	n.Masters = strings.Join(masters, ",")
	n.Command = fmt.Sprintf("%s start --node-id %d --cluster-id %s --roles %s --data %s --masters %s --kafka %s --http %s --peer %s",
		a.program, n.ID, n.Cluster, n.Roles, quoted(n.Data), quoted(n.Masters), quoted(at(0)), quoted(at(1)), quoted(at(2)))
	if n.Zone != "" {
		n.Command += " --zone " + quoted(n.Zone)
	}
	if !local {
		n.Command += " --insecure"
	}
	return nil
}

func isLoopback(addr string) bool {
	host, _, err := net.SplitHostPort(addr)
	ip := net.ParseIP(host)
	return err == nil && (host == "localhost" || ip != nil && ip.IsLoopback())
}

// freePorts are, for a cluster on one machine, the ones after those of its nodes.
func freePorts(nodes []*tubev1.Node) []int {
	out := []int{9092, 9080, 9070}
	for _, n := range nodes {
		for i, addr := range []string{n.KafkaAddress, n.HttpAddress, n.PeerAddress} {
			if _, port, err := net.SplitHostPort(addr); err == nil {
				if p, err := strconv.Atoi(port); err == nil {
					out[i] = max(out[i], p+1)
				}
			}
		}
	}
	return out
}

// quoted writes a word as a shell takes it; $(…) stays what it is.
func quoted(s string) string {
	if !strings.ContainsAny(s, " \t\n'\"\\$`&|;<>()*?[]#~!{}") {
		return s
	}
	if strings.Contains(s, "$(hostname -f)") {
		return `"` + s + `"`
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
