package test

import (
	"strings"
	"testing"
	"time"
)

// Three empty folders become one cluster, whichever comes last.
func TestClusterForms(t *testing.T) {
	c := prepareCluster(t, 3)
	began := time.Now()
	c.launch(2, 3)
	time.Sleep(500 * time.Millisecond)
	select {
	case <-c.node(2).exited:
		t.Fatalf("node 2 does not wait: %s", c.node(2).log)
	default:
	}
	if !c.node(2).log.contains("a new cluster needs all of its masters once") {
		t.Errorf("node 2 does not say for whom it waits: %s", c.node(2).log)
	}
	c.launch(1)
	c.waitReady(1, 2, 3)
	t.Logf("ready after %v", time.Since(began).Round(time.Millisecond))
	c.createTopic("t", 3)
	l := c.startLoad("t", 3, lightLoad)
	l.flowing(300)
	l.finish()
	for _, id := range c.order {
		if code := c.node(id).stop(); code != 0 {
			t.Errorf("node %d ends with %d", id, code)
		}
	}
	if strings.Contains(c.node(1).log.String(), "level=ERROR") {
		t.Errorf("errors were logged: %s", c.node(1).log)
	}
}
