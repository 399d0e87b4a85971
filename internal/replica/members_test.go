package replica

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/tube-mq/tube/internal/record"
)

// widen tells a group of nodes 1, 2 and 3 of replicas on nodes 4 and 5, and returns the
// membership of 3, 4 and 5.
func (c *crew) widen(tm *team) (target []record.ReplicaID) {
	c.t.Helper()
	c.mu.Lock()
	tm.peers = map[record.ReplicaID]record.NodeID{1: 1, 2: 2, 3: 3, 104: 4, 105: 5}
	for _, g := range tm.groups {
		g.SetPeers(tm.peers)
	}
	c.mu.Unlock()
	c.join(7, tm, 4)
	c.join(7, tm, 5)
	return []record.ReplicaID{3, 104, 105}
}

func (c *crew) groupOn(tm *team, n record.NodeID) *Group {
	c.mu.Lock()
	defer c.mu.Unlock()
	return tm.groups[n]
}

// drive has whoever leads take steps until the membership is the target.
func (c *crew) drive(tm *team, target []record.ReplicaID) {
	c.t.Helper()
	c.eventually("membership is the target", func() bool {
		done, err := c.groupOn(tm, c.leader(tm)).Drive(c.t.Context(), target, nil)
		if err != nil && !errors.Is(err, ErrNotLeader) {
			c.t.Logf("drive: %v", err)
		}
		return done
	})
}

// dismiss removes the replicas of nodes that are no members any more.
func (c *crew) dismiss(tm *team, nodes ...record.NodeID) {
	c.t.Helper()
	for _, n := range nodes {
		c.mu.Lock()
		g := tm.groups[n]
		delete(tm.groups, n)
		delete(tm.machines, n)
		h := c.hosts[n]
		c.mu.Unlock()
		if err := h.Remove(g); err != nil {
			c.t.Fatal(err)
		}
	}
}

// stage is how far a change of membership has come, as a replica sees it.
func stage(g *Group) string {
	told := make(chan string, 1)
	if !g.Do(func() {
		switch conf := g.core.log.conf; {
		case len(conf.GetVotersOutgoing()) > 0:
			told <- "joint"
		case slices.Contains(conf.GetVoters(), 104):
			told <- "moved"
		default:
			told <- fmt.Sprintf("%d learners", len(conf.GetLearners()))
		}
	}) {
		return "stopped"
	}
	return <-told
}

// A leader loses its power in the middle of a change of membership: before each of the
// messages of such a change, so at each of its steps. Whoever leads next ends it; then those
// that went are not needed, also if the others lose their power; nothing that was
// acknowledged is lost, and no joint membership stays.
func TestAMembershipChangeThatIsInterruptedGoesOn(t *testing.T) {
	stages := map[string]int{}
	// How many messages a change takes differs a little.
	for at, missed := int64(0), 0; missed < 5; at++ {
		synctest.Test(t, func(t *testing.T) {
			c := newCrew(t, 5, nil)
			tm := c.found(7, 1, 2, 3)
			c.write(tm, 20)
			target := c.widen(tm)
			var sent, leads atomic.Int64 // leads: who does, of late; one that goes hands over first
			cut := make(chan struct{})
			c.watch(func(Message) {
				if sent.Add(1) == at+1 {
					c.isolate(record.NodeID(leads.Load()), true)
					close(cut)
				}
			})
			struck, ended := false, false
			c.eventually("the leader is cut off, or the change is made", func() bool {
				select {
				case <-cut:
					struck = true
				default:
					leads.Store(int64(c.leader(tm)))
					done, err := c.groupOn(tm, record.NodeID(leads.Load())).Drive(t.Context(), target, nil)
					ended = err == nil && done
				}
				return struck || ended
			})
			c.watch(nil)
			lead := record.NodeID(leads.Load())
			if struck {
				stages[stage(c.groupOn(tm, lead))]++
			} else {
				missed++
			}
			c.kill(lead)
			c.isolate(lead, false)
			c.start(lead)
			c.drive(tm, target)
			c.dismiss(tm, 1, 2) // nobody needs them any more, whatever happens
			for n := record.NodeID(3); n <= 5; n++ {
				c.kill(n)
			}
			for n := record.NodeID(3); n <= 5; n++ {
				c.start(n)
			}
			c.write(tm, 10)
			c.agree(tm, 30)
			m, err := tm.groups[c.leader(tm)].Membership(t.Context())
			var voters []record.ReplicaID
			for _, member := range m.Members {
				if member.Voter {
					voters = append(voters, member.Replica)
				}
			}
			if err != nil || m.Changing || !slices.Equal(voters, target) || len(m.Members) != len(target) {
				t.Errorf("cut off before message %d: the members are %+v, %v", at, m, err)
			}
		})
		if t.Failed() {
			return
		}
	}
	t.Logf("interrupted as the leader saw: %v", stages)
	for _, s := range []string{"0 learners", "1 learners", "2 learners", "joint", "moved"} {
		if stages[s] == 0 {
			t.Errorf("never interrupted with %s, only in %v", s, slices.Sorted(maps.Keys(stages)))
		}
	}
}
