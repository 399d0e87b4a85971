package cli

import "testing"

func TestTheStateOfANodeSaysWhetherItIsSick(t *testing.T) {
	for want, n := range map[string]listedNode{
		"up":             {State: "up"},
		"up, sick":       {State: "up", Sick: "its disk is slow"},
		"drained, sick":  {State: "draining", Drain: true, Drained: true, Sick: "its disk is slow"},
		"down, draining": {State: "down", Drain: true, Sick: "its disk is slow"}, // as it was when last heard of
		"draining":       {State: "draining", Drain: true},
		"draining, sick": {State: "draining", Drain: true, Sick: "its disk is slow"},
	} {
		if got := n.state(); got != want {
			t.Errorf("%+v is written as %q, want %q", n, got, want)
		}
	}
}
