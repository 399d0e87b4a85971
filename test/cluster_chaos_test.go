package test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"
)

// chaosRound is how long a load runs before everything is compared.
const chaosRound = 30 * time.Second

// Everything at random for as long as CHAOS says (10m), from the seed CHAOS_SEED or
// a new one: kills of one, two and all nodes, pauses, restarts, emptied folders, and
// as root pulled cables and one-way cuts, under writers, followers and a group.
// The order of faults comes from the seed; when exactly they hit does not.
func TestChaos(t *testing.T) {
	if os.Getenv("CHAOS") == "" {
		t.Skip("runs for long: make chaos")
	}
	total, err := time.ParseDuration(os.Getenv("CHAOS"))
	if err != nil {
		t.Fatalf("CHAOS: %v", err)
	}
	seed := uint64(time.Now().UnixNano())
	if s := os.Getenv("CHAOS_SEED"); s != "" {
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatalf("CHAOS_SEED: %v", err)
		}
	}
	t.Logf("seed %d", seed)
	x := &chaos{random: rand.New(rand.NewPCG(seed, 0)), counts: map[string]int{}}
	flags := append([]string{"--replace-after=3s"}, smallDisks...)
	if os.Getuid() == 0 {
		x.cluster = newClusterOn(t, newNetwork(t), 3, flags...)
	} else {
		x.cluster = newCluster(t, 3, flags...)
	}
	for began, round := time.Now(), 0; time.Since(began) < total && !t.Failed(); round++ {
		x.round(t, round)
	}
	t.Logf("seed %d: %v", seed, x.counts)
}

type chaos struct {
	*cluster
	random *rand.Rand
	counts map[string]int
}

// round has faults under load, lets all heal, and compares.
func (x *chaos) round(t *testing.T, n int) {
	topic, partitions := fmt.Sprint("chaos-", n), 1+x.random.IntN(6)
	x.createTopic(topic, int32(partitions))
	l := x.startLoad(topic, partitions, lightLoad)
	g := x.startGroup(topic, "group-"+topic, 2)
	l.flowing(50)
	for until := time.Now().Add(chaosRound); time.Now().Before(until) && !t.Failed(); {
		x.fault(topic)
		x.wait(200, 1500)
	}
	x.waitLed(topic, partitions)
	l.flowing(50)
	l.finish()
	g.waitFor(t, l.book.count())
	g.check(t)
	adm, done := x.admin(0)
	defer done()
	if _, err := adm.DeleteTopic(timeout(t, 30*time.Second), topic); err != nil {
		t.Errorf("delete %s: %v", topic, err)
	}
}

func (x *chaos) wait(from, to int) {
	time.Sleep(time.Duration(from+x.random.IntN(to-from)) * time.Millisecond)
}

func (x *chaos) any() int { return x.order[x.random.IntN(len(x.order))] }

// fault makes one, lets it last for a moment, and mends it.
func (x *chaos) fault(topic string) {
	faults := []struct {
		name string
		do   func()
	}{
		{"kill one", func() { id := x.any(); x.node(id).kill(); x.wait(0, 3000); x.start(id) }},
		{"kill a leader", func() { id := x.leader(topic, 0); x.node(id).kill(); x.wait(0, 3000); x.start(id) }},
		{"kill the active master", func() { id := x.controller(); x.node(id).kill(); x.wait(0, 3000); x.start(id) }},
		{"kill two", func() {
			two := x.others(x.any())
			for _, id := range two {
				x.node(id).kill()
			}
			x.wait(0, 2000)
			x.launch(two...)
			x.waitReady(two...)
		}},
		{"kill all", func() {
			var dying sync.WaitGroup
			for _, id := range x.order {
				dying.Go(x.node(id).kill)
			}
			dying.Wait()
			x.start(x.order...)
		}},
		{"restart", func() { id := x.any(); x.node(id).stop(); x.start(id) }},
		{"pause", func() { id := x.any(); x.node(id).pause(); x.wait(100, 5000); x.node(id).resume() }},
		{"pause two", func() {
			two := x.others(x.any())
			for _, id := range two {
				x.node(id).pause()
			}
			x.wait(100, 3000)
			for _, id := range two {
				x.node(id).resume()
			}
		}},
		{"kill while another pauses", func() {
			two := x.others(x.any())
			x.node(two[0]).pause()
			x.node(two[1]).kill()
			x.wait(0, 2000)
			x.node(two[0]).resume()
			x.start(two[1])
		}},
		{"empty disk", func() {
			x.waitWhole(topic, 3)
			id := x.any()
			x.node(id).kill()
			x.node(id).wipe()
			x.waitDown(id)
			x.start(id)
			x.waitWhole(topic, 3)
		}},
	}
	if x.net != nil {
		faults = append(faults, []struct {
			name string
			do   func()
		}{
			{"pull a cable", func() { id := x.any(); x.net.pull(id); x.wait(100, 4000); x.net.plug(id) }},
			{"one way", func() {
				from := x.any()
				to := x.others(from)[x.random.IntN(2)]
				x.net.mute(from, to)
				x.wait(100, 4000)
				x.net.unmute(from, to)
			}},
			{"deaf", func() {
				id := x.any()
				for _, other := range x.others(id) {
					x.net.mute(other, id)
				}
				x.wait(100, 4000)
				for _, other := range x.others(id) {
					x.net.unmute(other, id)
				}
			}},
			{"kill behind a cut", func() {
				two := x.others(x.any())
				x.net.pull(two[0])
				x.node(two[1]).kill()
				x.wait(0, 2000)
				x.net.plug(two[0])
				x.start(two[1])
			}},
		}...)
	}
	f := faults[x.random.IntN(len(faults))]
	x.counts[f.name]++
	x.t.Logf("%s %s", time.Now().UTC().Format("15:04:05.000"), f.name)
	f.do()
}
