package cli

import (
	"io"
	"strings"

	"github.com/spf13/cobra"

	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
)

func newClusterNodes(a *app) *cobra.Command {
	c := &cobra.Command{
		Use: "nodes", Short: "List the nodes", Args: exactly(0),
		RunE: func(c *cobra.Command, _ []string) error {
			r, err := ask(c.Context(), a, a.cluster().ListNodes, &tubev1.ListNodesRequest{})
			if err != nil {
				return err
			}
			out := []listedNode{}
			for _, n := range r.Nodes {
				out = append(out, listedNode{n.Id, n.State, n.Roles, n.Zone, n.KafkaAddress, n.HttpAddress, n.PeerAddress, n.Version, n.Controller, n.Leaders, n.Replicas, n.Drain, n.Drained, n.ReplicasLeft, n.Sick})
			}
			return a.result(out, func(w io.Writer) error {
				t := newTable("NODE", "STATE", "ROLES", "ZONE", "KAFKA", "HTTP", "LEADS", "REPLICAS", "VERSION", "")
				for _, n := range out {
					t.row(n.ID, n.state(), strings.Join(n.Roles, ","), n.Zone, n.Kafka, n.HTTP, n.Leaders, n.Replicas, n.Version, map[bool]string{true: "controller"}[n.Controller])
				}
				return t.write(w)
			})
		},
	}
	return a.client(c)
}

type listedNode struct {
	ID         int32    `json:"id"`
	State      string   `json:"state"`
	Roles      []string `json:"roles"`
	Zone       string   `json:"zone"`
	Kafka      string   `json:"kafka_address"`
	HTTP       string   `json:"http_address"`
	Peer       string   `json:"peer_address"`
	Version    string   `json:"version"`
	Controller bool     `json:"controller"`
	Leaders    int32    `json:"leaders"`
	Replicas   int32    `json:"replicas"`
	Drain      bool     `json:"drain"`
	Drained    bool     `json:"drained"`
	Left       int32    `json:"replicas_left"` // moves under way count
	Sick       string   `json:"sick"`          // why it should not lead; empty: it is well
}

// state is that of the node, how far its drain is, and whether it is sick.
func (n *listedNode) state() string {
	state := n.State
	switch {
	case n.Drained && n.State == "draining":
		state = "drained"
	case n.Drain && n.State != "draining":
		state += ", draining"
	}
	if n.Sick != "" && n.State != "down" {
		state += ", sick"
	}
	return state
}
