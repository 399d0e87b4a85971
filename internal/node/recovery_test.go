package node

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/tube-mq/tube/internal/config"
	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/peer"
	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/vfs"
)

// A recovery that was cut short must not be taken for none, nor for a whole one.
func TestAFolderWhoseRecoveryWasBegunDoesNotStart(t *testing.T) {
	id := identity{
		Format: formatVersion, ClusterID: "c", Node: 1, Incarnation: "i", MetaReplica: 1, Founders: []record.NodeID{1, 2, 3}, Starts: 4, Run: "r", Registered: true, Anew: true,
		Recovery: recovery{ID: "word", Lost: []meta.LostMaster{{Node: 2, Incarnation: "b"}, {Node: 3}}},
	}
	fsys := vfs.NewMem()
	if err := fsys.MkdirAll("d"); err != nil {
		t.Fatal(err)
	}
	if err := id.write(fsys, "d"); err != nil {
		t.Fatal(err)
	}
	got, err := readIdentity(fsys, "d", 1, "")
	if err != nil || !reflect.DeepEqual(got, id) {
		t.Fatalf("read back: %+v, %v", got, err)
	}
	if _, _, err := claim(fsys, "d", 1, ""); err == nil || !strings.Contains(err.Error(), "give the command once more") {
		t.Fatalf("a node starts on it: %v", err)
	}
	id.Recovery.Forced = true
	if err := id.write(fsys, "d"); err != nil {
		t.Fatal(err)
	}
	if got, _, err := claim(fsys, "d", 1, ""); err != nil || got.Recovery.ID != "word" {
		t.Fatalf("once it is forced: %+v, %v", got, err)
	}
}

// A master that was given up is no stranger that --masters vouches for.
func TestAMasterThatWasGivenUpIsNotHeard(t *testing.T) {
	n := &Node{cfg: &config.Config{Masters: []config.Master{{ID: 1}, {ID: 2}}}, meta: newMetaMachine(1)}
	now := time.Unix(1, 0)
	commands := [][]byte{meta.Bootstrap(now, "c", meta.Founder{Node: 1, Replica: 1}, meta.Founder{Node: 2, Replica: 2})}
	for id, incarnation := range map[record.NodeID]string{1: "a", 2: "b"} {
		commands = append(commands, meta.RegisterNode(now, meta.Node{ID: id, Incarnation: incarnation, Kafka: "k:1", Roles: []string{meta.RoleMaster}}))
	}
	commands = append(commands, meta.RecoverMasters(now, "word", 1, []meta.LostMaster{{Node: 2, Incarnation: "b"}}))
	for i, c := range commands {
		if r := n.meta.machine.Apply(record.Index(i+1), c); r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	n.meta.publish()
	if err := n.refusePeer(peer.Identity{Node: 2, ClusterID: "c", Incarnation: "b/1/run/boot"}); err == nil || !strings.Contains(err.Error(), "given up") {
		t.Errorf("its messages are taken: %v", err)
	} else if peer.IsGone(err) {
		t.Error("it is told to end, though it may have been given up by mistake")
	}
	if err := n.refusePeer(peer.Identity{Node: 2, ClusterID: "c", Incarnation: "new/1/run/boot"}); err != nil {
		t.Errorf("a new one in its place is refused: %v", err)
	}
}
