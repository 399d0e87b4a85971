package replica

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/tube-mq/tube/internal/record"
)

func (c *crew) host(n record.NodeID) *Host {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.hosts[n]
}

// rests reports whether a host comes round as seldom as one that is alone.
func (h *Host) rests() bool {
	return h.lateAt.Load() > int64(time.Since(h.started)+calmSteps*h.cfg.TickInterval)
}

// A host looks up seldom while nobody else takes part in any of its groups. One that does
// has its clock run within a tick all the same.
func TestAHostThatIsAloneRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrew(t, 3, nil)
		own := c.found(7, 1)
		c.write(own, 10)
		h := c.host(1)
		c.eventually("the host rests", h.rests)
		shared := c.found(8, 1, 2, 3)
		synctest.Wait()
		if h.rests() {
			t.Fatal("the host rests although a clock runs")
		}
		was := h.lateAt.Load()
		time.Sleep(h.cfg.TickInterval + time.Millisecond)
		synctest.Wait()
		if h.lateAt.Load() == was {
			t.Error("the clock did not move within a tick")
		}
		c.write(shared, 10)
		c.agree(shared, 10)
		c.eventually("all replicas are quiet", func() bool { return c.quiet(shared, 1) && c.quiet(shared, 2) && c.quiet(shared, 3) })
		if steps := h.tick(time.Since(h.started)); steps != quietSteps {
			t.Errorf("a host with a quiet group of several comes round every %d ticks, want %d", steps, quietSteps)
		}
	})
}

// A host's only group gets other members: it looks as often as theirs do from then on, and
// takes its rest for no pause.
func TestAHostThatIsNotAloneAnyMoreRestsNoLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrew(t, 3, nil)
		tm := c.found(7, 1)
		c.write(tm, 10)
		h := c.host(1)
		c.eventually("the host rests", h.rests)
		c.mu.Lock()
		tm.peers = map[record.ReplicaID]record.NodeID{1: 1, 102: 2, 103: 3}
		tm.groups[1].SetPeers(tm.peers)
		c.mu.Unlock()
		c.join(7, tm, 2)
		c.join(7, tm, 3)
		c.drive(tm, []record.ReplicaID{1, 102, 103})
		if within := time.Duration(h.lateAt.Load()) - time.Since(h.started); within > doubtAfter*h.cfg.TickInterval {
			t.Errorf("a pause is noticed after %v only", within)
		}
		if n := h.pauses.Load(); n > 0 {
			t.Errorf("%d pauses", n)
		}
		c.write(tm, 10)
		c.agree(tm, 20)
	})
}

// That a clock begins to run makes no pause unseen.
func TestTheEndOfARestHidesNoPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrew(t, 1, nil)
		h := c.host(1)
		time.Sleep(time.Second)
		h.lateAt.Store(1)
		h.endCalm()
		if !h.late() {
			t.Error("the pause is forgotten")
		}
	})
}

// A pause that comes while the clocks are moved is one, too.
func TestAPauseWithinATickCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCrew(t, 3, nil)
		tm := c.found(7, 1, 2, 3)
		c.write(tm, 10)
		h := c.host(1)
		began := time.Since(h.started)
		time.Sleep(2 * doubtAfter * h.cfg.TickInterval)
		h.tick(began)
		if !h.late() {
			t.Error("the pause is not seen")
		}
	})
}

// What the log has grown by counts at once, and not when somebody comes round.
func TestACheckpointIsMadeOnceTheLogHasGrown(t *testing.T) {
	for _, by := range []struct {
		name string
		cfg  func(*Config)
	}{
		{"entries", func(c *Config) { c.CheckpointEntries = 50 }},
		{"bytes", func(c *Config) { c.CheckpointBytes = 4 << 10 }},
	} {
		t.Run(by.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCrew(t, 1, by.cfg)
				tm := c.found(7, 1)
				c.leader(tm)
				synctest.Wait()
				h := c.host(1)
				h.checkpoint.mu.Lock()
				before := h.checkpoint.seq
				h.checkpoint.mu.Unlock()
				began := time.Now()
				c.write(tm, 200)
				synctest.Wait()
				h.checkpoint.mu.Lock()
				defer h.checkpoint.mu.Unlock()
				if time.Since(began) != 0 {
					t.Fatal("the writing took time: nothing is shown")
				}
				if h.checkpoint.seq == before {
					t.Error("no checkpoint")
				}
			})
		})
	}
}
