package replica

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tube-mq/tube/internal/record"
)

// A new replica that never catches up does not vote, however long it is wanted; once it
// does, it is.
func TestALearnerThatNeverCatchesUpIsNotPromoted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrew(t, 4, nil)
		tm := c.found(7, 1, 2, 3)
		c.write(tm, 20)
		c.agree(tm, 20)
		c.mu.Lock()
		tm.peers = map[record.ReplicaID]record.NodeID{1: 1, 2: 2, 3: 3, 104: 4}
		for _, g := range tm.groups {
			g.SetPeers(tm.peers)
		}
		c.mu.Unlock()
		c.isolate(4, true)
		c.join(7, tm, 4)
		drive := func() (done bool) {
			lead := c.leader(tm)
			done, _ = tm.groups[lead].Drive(t.Context(), []record.ReplicaID{1, 2, 3, 104}, nil)
			return done
		}
		for range 200 {
			if drive() {
				t.Fatal("it is done, although the learner has nothing")
			}
			time.Sleep(20 * time.Millisecond) // of the bubble
			if conf := c.conf(tm, c.leader(tm)); slices.Contains(conf.GetVoters(), 104) {
				t.Fatalf("it votes: %v", conf)
			}
		}
		if conf := c.conf(tm, c.leader(tm)); !slices.Contains(conf.GetLearners(), 104) {
			t.Fatalf("it is no learner: %v", conf)
		}
		c.isolate(4, false)
		c.eventually("it is promoted once it has all", drive)
	})
}
