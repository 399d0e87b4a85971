package broker

import "testing"

// A word that a receiver leaves without heeding goes to the next; one that cannot
// take what is there passes it on.
func TestNoWakeIsLost(t *testing.T) {
	var ws waiters
	a, b, c := ws.add(), ws.add(), ws.add()
	woken := func(w *waiter) bool { return len(w.woken) == 1 }
	ws.wakeOne(nil)
	if !woken(a) || woken(b) {
		t.Fatal("not the one that has waited longest")
	}
	ws.wakeOne(nil)
	if !woken(b) {
		t.Fatal("the second word did not go to the second")
	}
	ws.remove(b)
	if !woken(c) {
		t.Fatal("a word is lost with who left")
	}
	<-c.woken
	ws.looking(c)
	<-a.woken
	ws.looking(a)
	ws.wakeOne(a)
	if !woken(c) || woken(a) {
		t.Fatal("what the first could not take was not passed on")
	}
	ws.close()
	if !woken(a) || ws.add() != nil {
		t.Fatal("a group that is closed lets somebody wait")
	}
}
