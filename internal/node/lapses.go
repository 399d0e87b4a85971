package node

import (
	"fmt"
	"os"
	"strings"

	"github.com/tube-mq/tube/internal/record"
)

// bootIDFile has another content each time that Linux is started.
const bootIDFile = "/proc/sys/kernel/random/boot_id"

// machineRun identifies the machine's present run; "" where that cannot be told. Then only a
// folder that was closed cleanly is taken for whole.
func machineRun() string {
	b, err := os.ReadFile(bootIDFile)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

// shownLapses is how many partitions are named that wait for nodes.
const shownLapses = 5

// lapses says which partitions are out of service as a replica here may have forgotten
// the end of its log and other nodes that may have it do not answer.
func (n *Node) lapses() []string {
	im := n.meta.Image()
	var out []string
	more := 0
	for _, l := range n.broker.LapsedReplicas() {
		t := im.Topics[l.Topic]
		if t == nil || len(l.WaitsFor) == 0 {
			continue
		}
		if len(out) == shownLapses {
			more++
			continue
		}
		out = append(out, fmt.Sprintf("partition %s/%d waits for %s: the machine here stopped uncleanly, and the replica may lack the last messages that were acknowledged (tube.durability is %s); if what is waited for is lost for good, tube cluster unsafe-recover goes on without it",
			t.Name, l.Partition, nodesInWords(l.WaitsFor), t.Config.Durability))
	}
	if more > 0 {
		out = append(out, fmt.Sprintf("%d more partitions wait for nodes in the same way", more))
	}
	return out
}

func nodesInWords(ids []record.NodeID) string {
	words := make([]string, len(ids))
	for i, id := range ids {
		words[i] = fmt.Sprint(id)
	}
	if len(words) == 1 {
		return "node " + words[0]
	}
	return "nodes " + strings.Join(words, ", ")
}
