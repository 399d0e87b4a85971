package test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"
)

// firstWrite waits until a partition takes a write again, asking the nodes that
// run who leads, and returns how long it took from since.
func (c *cluster) firstWrite(p *prober, partition int32, since time.Time) time.Duration {
	c.t.Helper()
	ctx := timeout(c.t, 60*time.Second)
	var err error
	for i := 0; ctx.Err() == nil; i++ {
		ask := c.running()
		id := ask[i%len(ask)]
		try, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
		err = p.write(try, c, id, partition)
		cancel()
		if err == nil {
			return time.Since(since)
		}
		time.Sleep(5 * time.Millisecond)
	}
	c.t.Fatalf("partition %d took no write within a minute: %v", partition, err)
	return 0
}

func (c *cluster) running() []int {
	var out []int
	for _, id := range c.order {
		if c.nodes[id].up() {
			out = append(out, id)
		}
	}
	return out
}

// Leaders are killed under load, again and again: writing goes on in seconds, and
// nothing acknowledged is lost, repeated or reordered.
func TestKilledLeadersAreReplacedAndNothingIsLost(t *testing.T) {
	const partitions = 3
	kills := 20
	if testing.Short() {
		kills = 4
	}
	c := newCluster(t, 3)
	c.createTopic("t", partitions)
	c.createTopic("probe", 1)
	l := c.startLoad("t", partitions, lightLoad)
	p := c.prober("probe")
	var took []time.Duration
	for range kills {
		l.flowing(200)
		id := c.leader("probe", 0)
		at := time.Now()
		c.node(id).kill()
		took = append(took, c.firstWrite(p, 0, at))
		l.flowing(100)
		c.start(id)
		if t.Failed() {
			break
		}
	}
	waits := l.latencies()
	l.finish()
	t.Logf("%d kills: writes again after p50 %v, p99 %v; all: %v", len(took), percentile(took, 0.5), percentile(took, 0.99), rounded(took))
	t.Logf("acknowledgements meanwhile: p50 %v, p99 %v, max %v", percentile(waits, 0.5), percentile(waits, 0.99), percentile(waits, 1))
	if p50, p99 := percentile(took, 0.5), percentile(took, 0.99); p50 > 3*time.Second || p99 > 10*time.Second {
		t.Errorf("a killed leader was replaced after p50 %v, p99 %v", p50, p99)
	}
}

func rounded(d []time.Duration) []time.Duration {
	out := make([]time.Duration, len(d))
	for i := range d {
		out[i] = d[i].Round(time.Millisecond)
	}
	return out
}

// The active master dies: another takes over, and who writes does not notice.
func TestKilledActiveMasterIsReplaced(t *testing.T) {
	c := newCluster(t, 3)
	c.createTopic("t", 3)
	l := c.startLoad("t", 3, lightLoad)
	var took []time.Duration
	for i := range 3 {
		l.flowing(100)
		id := c.controller()
		at := time.Now()
		c.node(id).kill()
		name := "after-" + string(rune('a'+i))
		ask := c.others(id)[i%2]
		// A topic is created by way of whichever node, as soon as a master is active.
		for deadline := time.Now().Add(30 * time.Second); ; {
			adm, done := c.admin(ask)
			_, err := adm.CreateTopic(timeout(t, 10*time.Second), 2, 3, nil, name)
			done()
			if err == nil {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("create %s: %v", name, err)
			}
		}
		took = append(took, time.Since(at))
		c.waitLed(name, 2)
		c.start(id)
		c.waitLed(name, 2)
	}
	l.finish()
	t.Logf("a topic was created after %v", rounded(took))
}

// All three die at once: all that was acknowledged is there.
func TestAllKilledAtOnceLoseNothing(t *testing.T) {
	c := newCluster(t, 3)
	c.createTopic("t", 4)
	l := c.startLoad("t", 4, lightLoad)
	rounds := 4
	if testing.Short() {
		rounds = 1
	}
	for range rounds {
		l.flowing(300)
		var dying sync.WaitGroup
		for _, id := range c.order {
			dying.Go(c.node(id).kill)
		}
		dying.Wait()
		c.start(c.order...)
	}
	l.flowing(100)
	l.finish()
}

// Two of three come back and work; with one alone nothing is acknowledged.
func TestTwoOfThreeAreEnoughAndOneIsNot(t *testing.T) {
	c := newCluster(t, 3)
	c.createTopic("t", 2)
	l := c.startLoad("t", 2, lightLoad)
	l.flowing(100)
	for _, id := range c.order {
		c.node(id).kill()
	}
	c.launch(3)
	p := c.prober("t")
	eventually(t, 30*time.Second, func() error {
		_, err := c.node(3).metric("go_goroutines")
		return err
	})
	time.Sleep(2 * time.Second)
	ctx := timeout(t, 3*time.Second)
	if err := p.writeTo(ctx, 3, 0); err == nil {
		t.Error("one node of three acknowledged a write")
	}
	c.node(3).alive()
	eventually(t, 15*time.Second, func() error {
		if !c.node(3).log.contains("waiting for a majority of the masters") {
			return errors.New("node 3 does not say what is missing")
		}
		return nil
	})
	c.start(1)
	c.waitReady(1, 3)
	l.flowing(200)
	c.start(2)
	l.finish()
}

// Nodes restart one after the other by SIGTERM: clients see nothing that they do
// not retry by themselves.
func TestRollingRestartIsUnnoticed(t *testing.T) {
	c := newCluster(t, 3)
	c.createTopic("t", 6)
	c.createTopic("probe", 1)
	l := c.startLoad("t", 6, lightLoad)
	l.flowing(500)
	quiet := l.latencies()
	p := c.prober("probe")
	var handed, stopped []time.Duration
	for _, id := range c.order {
		leads := c.leader("probe", 0) == id
		at, wrote := time.Now(), make(chan time.Duration, 1)
		if leads {
			go func() { wrote <- c.gap(p, 0, at, id) }()
		}
		if code := c.node(id).stop(); code != 0 {
			t.Errorf("node %d ends with %d", id, code)
		}
		stopped = append(stopped, time.Since(at))
		if leads {
			handed = append(handed, <-wrote)
		}
		c.start(id)
		c.waitLed("t", 6)
	}
	waits := l.latencies()
	l.finish()
	t.Logf("acknowledgements before: p50 %v, p99 %v; during the restarts: p50 %v, p99 %v, max %v", percentile(quiet, 0.5), percentile(quiet, 0.99), percentile(waits, 0.5), percentile(waits, 0.99), percentile(waits, 1))
	for _, d := range handed {
		if d > 2*time.Second {
			t.Errorf("a leader that was asked to end left %v without a write", d)
		}
	}
	t.Logf("without a write for at most %v; processes ended after %v", rounded(handed), rounded(stopped))
}

// gap writes all the time, for three seconds, and returns the longest time
// between two acknowledged writes.
func (c *cluster) gap(p *prober, partition int32, since time.Time, leaving int) time.Duration {
	longest, last := time.Duration(0), since
	ask := c.others(leaving)
	for i := 0; time.Since(since) < 3*time.Second; i++ {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		if p.write(ctx, c, ask[i%len(ask)], partition) == nil {
			longest, last = max(longest, time.Since(last)), time.Now()
		}
		cancel()
		time.Sleep(2 * time.Millisecond)
	}
	return max(longest, time.Since(last))
}

// A leader is paused for longer than an election takes and goes on: what it then
// says is not older than what others have said.
func TestPausedLeaderWakesUpHarmless(t *testing.T) {
	c := newCluster(t, 3)
	c.createTopic("t", 3)
	c.createTopic("probe", 1)
	l := c.startLoad("t", 3, lightLoad)
	p := c.prober("probe")
	l.flowing(100)
	id := c.leader("probe", 0)
	n := c.node(id)
	if err := p.writeTo(timeout(t, 5*time.Second), id, 0); err != nil {
		t.Fatal(err)
	}
	direct := c.client() // its connection to the paused node is there before
	old, err := endAt(timeout(t, 5*time.Second), direct, id, "probe", 0)
	if err != nil {
		t.Fatal(err)
	}
	n.pause()
	n.away = true
	at := time.Now()
	took := c.firstWrite(p, 0, at)
	time.Sleep(max(0, 5*time.Second-time.Since(at)))
	// Both wait in its sockets when it wakes.
	var asking sync.WaitGroup
	asking.Go(func() {
		end, err := endAt(timeout(t, 10*time.Second), direct, id, "probe", 0)
		if err == nil && end <= old {
			t.Errorf("a leader that was paused says that the partition ends at %d; another has acknowledged more", end)
		}
		t.Logf("end asked at once: %d (before: %d), %v", end, old, err)
	})
	asking.Go(func() {
		err := p.writeTo(timeout(t, 10*time.Second), id, 0)
		t.Logf("write tried at once: %v", err)
	})
	time.Sleep(50 * time.Millisecond)
	n.away = false
	n.resume()
	asking.Wait()
	t.Logf("writes again after %v", took.Round(time.Millisecond))
	c.waitLed("t", 3)
	l.finish()
	c.checkProbe("probe", p)
}
