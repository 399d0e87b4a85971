package replica

import (
	"log/slog"
	"testing"

	"go.etcd.io/raft/v3/raftpb"

	"github.com/tube-mq/tube/internal/record"
)

// soleLeader is the core of a group of one that has committed its first entry.
func soleLeader(t *testing.T) *core {
	t.Helper()
	c, err := newCore(startOf(Spec{Group: 1, Replica: 1, Voters: []record.ReplicaID{1}}, nil), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.campaign(); err != nil {
		t.Fatal(err)
	}
	for !c.status().Leading {
		e, ok := c.ready()
		if !ok {
			t.Fatal("nothing to do, and no leader")
		}
		carryOut(c, e)
	}
	for e, ok := c.ready(); ok; e, ok = c.ready() {
		carryOut(c, e)
	}
	return c
}

// carryOut has everything written and applied at once.
func carryOut(c *core, e effects) {
	tell(c, e.after)
	for _, en := range e.apply {
		c.finish(en.GetIndex(), en.GetTerm(), nil)
	}
	tell(c, e.applied)
}

func tell(c *core, ms []*raftpb.Message) {
	for _, m := range ms {
		c.step(m)
	}
}

func proposal(data string) []Proposal {
	return []Proposal{{Data: []byte(data), Done: func(any, error) {}}}
}

// The message of a proposal is used again, which is sound only as long as raft
// copies its entries. A version that does not fails here.
func TestRaftKeepsNothingOfAProposalsMessage(t *testing.T) {
	c := soleLeader(t)
	first := c.log.last() + 1
	c.propose(proposal("one"))
	c.propose(proposal("two"))
	if _, ok := c.ready(); !ok {
		t.Fatal("nothing to write")
	}
	for i, want := range []string{"one", "two"} {
		if got := string(c.log.at(first + uint64(i)).payload.data); got != want {
			t.Errorf("entry %d holds %q, want %q", i, got, want)
		}
	}
	if len(c.proposal.entries) != 1 {
		t.Errorf("%d entries were made for proposals of one", len(c.proposal.entries))
	}
}

// While a later write is under way, a commit asks for no write of its own only
// to hear of that one.
func TestACommitDuringAWriteAsksForNoOther(t *testing.T) {
	c := soleLeader(t)
	c.propose(proposal("one"))
	one, _ := c.ready()
	c.propose(proposal("two"))
	two, _ := c.ready()
	if len(one.after) == 0 || len(two.after) == 0 {
		t.Fatal("nobody waits for the writes")
	}
	tell(c, one.after)
	e, ok := c.ready()
	if !ok || len(e.apply) != 1 {
		t.Fatalf("%d entries to apply after the first write, want 1", len(e.apply))
	}
	if e.durable || len(e.after) > 0 || e.hard != nil {
		t.Errorf("a write was asked for: %v", e.after)
	}
	carryOut(c, e)
	tell(c, two.after)
	if e, ok = c.ready(); !ok || len(e.apply) != 1 {
		t.Fatalf("%d entries to apply after the second write, want 1", len(e.apply))
	}
	carryOut(c, e)
	if c.applied != c.log.last() {
		t.Errorf("applied up to %d of %d", c.applied, c.log.last())
	}
}
