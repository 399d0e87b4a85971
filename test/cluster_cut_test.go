package test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// newClusterOn starts a cluster whose nodes stand in network namespaces.
func newClusterOn(t *testing.T, w *network, size int, flags ...string) *cluster {
	t.Helper()
	c := prepareClusterOn(t, w, size, flags...)
	c.start(c.order...)
	return c
}

// clientBeside is a client on the machine of a node: cut off together with it.
func (c *cluster) clientBeside(id int, opts ...kgo.Opt) *kgo.Client {
	c.t.Helper()
	return c.client(append([]kgo.Opt{kgo.Dialer(c.net.dialFrom(id))}, opts...)...)
}

// A leader is cut off with clients beside it: they get no acknowledgement there,
// the others go on, and when the cable is back the clients' records are stored
// once.
func TestMinorityCutOffAcknowledgesNothing(t *testing.T) {
	c := newClusterOn(t, newNetwork(t), 3)
	c.createTopic("t", 3)
	c.createTopic("probe", 1)
	l := c.startLoad("t", 3, lightLoad)
	p := c.prober("probe")
	l.flowing(200)
	id := c.leader("probe", 0)
	beside := &prober{cl: c.clientBeside(id, kgo.RequestRetries(0)), topic: "probe"}
	if err := beside.writeTo(timeout(t, 5*time.Second), id, 0); err != nil {
		t.Fatal(err)
	}
	// An ordinary producer stands there too.
	producer := c.clientBeside(id, kgo.DefaultProduceTopic("probe"), kgo.RequestTimeoutOverhead(2*time.Second), kgo.RetryTimeout(time.Minute))
	if err := producer.ProduceSync(timeout(t, 5*time.Second), kgo.StringRecord("before")).FirstErr(); err != nil {
		t.Fatal(err)
	}

	c.net.pull(id)
	c.node(id).away = true
	at := time.Now()
	var delivered atomic.Int64
	const sent = 50
	for range sent {
		producer.Produce(context.Background(), kgo.StringRecord("while cut off"), func(_ *kgo.Record, err error) {
			if err != nil {
				t.Errorf("a client that was cut off gives up: %v", err)
			}
			delivered.Add(1)
		})
	}
	stale := make(chan int, 1)
	go func() {
		acked := 0
		for time.Since(at) < 6*time.Second {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			if beside.writeTo(ctx, id, 0) == nil {
				acked++
			}
			cancel()
			time.Sleep(20 * time.Millisecond)
		}
		stale <- acked
	}()
	took := c.firstWrite(p, 0, at)
	end, err := endAt(timeout(t, 5*time.Second), beside.cl, id, "probe", 0)
	if err == nil {
		t.Errorf("the node that is cut off says that the partition ends at %d", end)
	}
	l.flowing(200)
	if n := <-stale; n > 0 || delivered.Load() > 0 {
		t.Errorf("a node that is cut off acknowledged %d and %d writes", n, delivered.Load())
	}
	if !c.net.healthy(id, c.node(id)) {
		t.Error("the node that is cut off is not alive any more")
	}
	c.net.plug(id)
	c.node(id).away = false
	if err := producer.Flush(timeout(t, 30*time.Second)); err != nil {
		t.Errorf("the client that was cut off: %v; %d of %d delivered", err, delivered.Load(), sent)
	}
	c.waitLed("t", 3)
	l.finish()
	stored := 0
	for _, r := range c.readAll("probe")[0] {
		if string(r.Value) == "while cut off" {
			stored++
		}
	}
	if stored != sent {
		t.Errorf("%d records of the client that was cut off are stored, it sent %d", stored, sent)
	}
	t.Logf("the others write again after %v", took.Round(time.Millisecond))
}

// Cuts in one direction, of every kind that three nodes can have: somebody leads,
// and it does not change all the time.
func TestOneWayCutsStopNobodyForLong(t *testing.T) {
	c := newClusterOn(t, newNetwork(t), 3)
	c.createTopic("t", 3)
	c.createTopic("probe", 1)
	l := c.startLoad("t", 3, lightLoad)
	p := c.prober("probe")
	type arrow struct{ from, to int }
	for _, cut := range []struct {
		name string
		make func(leader, a, b int) []arrow
	}{
		{"the leader does not hear one", func(l, a, _ int) []arrow { return []arrow{{a, l}} }},
		{"one does not hear the leader", func(l, a, _ int) []arrow { return []arrow{{l, a}} }},
		{"the leader hears nobody", func(l, a, b int) []arrow { return []arrow{{a, l}, {b, l}} }},
		{"nobody hears the leader", func(l, a, b int) []arrow { return []arrow{{l, a}, {l, b}} }},
		{"a bridge: the leader and one do not see each other", func(l, a, _ int) []arrow { return []arrow{{l, a}, {a, l}} }},
		{"a ring: each hears one other", func(l, a, b int) []arrow { return []arrow{{l, a}, {a, b}, {b, l}} }},
	} {
		l.flowing(50)
		id := c.leader("probe", 0)
		rest := c.others(id)
		arrows := cut.make(id, rest[0], rest[1])
		at := time.Now()
		for _, a := range arrows {
			c.net.mute(a.from, a.to)
		}
		// A route that leads nowhere stops TCP in both directions after a while, as
		// acknowledgements are lost: a ring leaves nobody a majority.
		isRing := len(arrows) == 3
		took := time.Duration(0)
		if !isRing {
			took = c.firstWrite(p, 0, at)
		}
		ok, tries := 0, 0
		for until := time.Now().Add(1500 * time.Millisecond); time.Now().Before(until); tries++ {
			ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
			if p.write(ctx, c, c.order[tries%3], 0) == nil {
				ok++
			}
			cancel()
			time.Sleep(10 * time.Millisecond)
		}
		for _, a := range arrows {
			c.net.unmute(a.from, a.to)
		}
		healed := time.Now()
		again := c.firstWrite(p, 0, healed)
		t.Logf("%s: writes after %v, then %d of %d tries; after healing %v", cut.name, took.Round(time.Millisecond), ok, tries, again.Round(time.Millisecond))
		if !isRing && ok == 0 {
			t.Errorf("%s: no write in a second and a half", cut.name)
		}
		c.waitLed("t", 3)
	}
	l.finish()
	c.checkProbe("probe", p)
}

// The cable of one node after the other is pulled and put back, quickly.
func TestFlappingCablesLoseNothing(t *testing.T) {
	c := newClusterOn(t, newNetwork(t), 3)
	c.createTopic("t", 3)
	l := c.startLoad("t", 3, lightLoad)
	l.flowing(100)
	for i := range 4 {
		id := c.order[i%3]
		c.net.pull(id)
		time.Sleep(time.Duration(200+i*300) * time.Millisecond)
		c.net.plug(id)
		time.Sleep(300 * time.Millisecond)
	}
	l.flowing(200)
	l.finish()
}

// Groups whose coordinator is cut off go on with another; see cluster_group_test.go
// for the killed one.
func TestGroupOfACutOffCoordinatorGoesOn(t *testing.T) {
	c := newClusterOn(t, newNetwork(t), 3)
	c.createTopic("t", 3)
	l := c.startLoad("t", 3, lightLoad)
	g := c.startGroup("t", "g", 2)
	g.waitFor(t, 200)
	id := c.coordinator("g")
	c.net.pull(id)
	c.node(id).away = true
	before := g.commits()
	eventually(t, 30*time.Second, func() error { return g.committedMore(before + 5) })
	c.net.plug(id)
	c.node(id).away = false
	var done sync.WaitGroup
	done.Go(l.finish)
	done.Wait()
	g.waitFor(t, l.book.count())
	g.check(t)
}
