package group

import (
	"testing"
)

// checkSizes compares the sums that are kept with what is there.
func checkSizes(t *testing.T, c *Coordinator) {
	t.Helper()
	stored := 0
	for name, g := range c.m.groups {
		stored += groupBytes + len(name)
		if g.consumers != nil {
			for _, m := range g.consumers.members {
				stored += m.bytes()
			}
			for id, target := range g.consumers.targets {
				stored += len(id) + target.bytes()
			}
		}
		for _, to := range g.topics {
			stored += topicBytes + len(to.name)
			for _, o := range to.partitions {
				stored += positionBytes + len(o.Metadata)
			}
		}
	}
	if c.m.Bytes() != stored {
		t.Fatalf("the machine says %d bytes, it holds %d", c.m.Bytes(), stored)
	}
	held := 0
	for name, g := range c.groups {
		held += liveBytes + len(name)
		sum := 0
		for _, m := range g.members {
			sum += m.bytes()
			held += memberBytes + 2*m.bytes()
		}
		for id := range g.pending {
			held += promiseBytes + len(id)
		}
		if g.bytes != sum {
			t.Fatalf("group %q says %d bytes, its members have %d", name, g.bytes, sum)
		}
	}
	for name, g := range c.consumers {
		held += liveBytes + len(name)
		for id := range g.sessions {
			held += sessionBytes + len(id)
		}
	}
	if c.bytes != held {
		t.Fatalf("the coordinator says %d bytes, it holds %d", c.bytes, held)
	}
	if c.reserved < 0 || len(c.calls) == 0 && c.reserved != 0 {
		t.Fatalf("%d bytes are reserved for %d proposals", c.reserved, len(c.calls))
	}
}
