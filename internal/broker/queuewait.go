package broker

import "sync"

// waiters are who waits for messages of one group, longest first. Something new
// wakes one of them; who got something wakes the next, who could not take what is
// there passes the word on.
type waiters struct {
	mu     sync.Mutex
	list   []*waiter
	closed bool
}

type waiter struct {
	woken chan struct{} // has room for one
	told  bool
}

func (ws *waiters) count() int {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return len(ws.list)
}

// add puts a waiter at the end; nil if the group is closed.
func (ws *waiters) add() *waiter { return ws.addWith(make(chan struct{}, 1)) }

// addWith is add for who waits in several places with one channel.
func (ws *waiters) addWith(woken chan struct{}) *waiter {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.closed {
		return nil
	}
	w := &waiter{woken: woken}
	ws.list = append(ws.list, w)
	return w
}

// remove takes a waiter out; a word that it has not heeded goes to another.
func (ws *waiters) remove(w *waiter) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	defer func() {
		if w.told {
			ws.wakeFirst(nil)
		}
	}()
	for i, x := range ws.list {
		if x == w {
			ws.list = append(ws.list[:i:i], ws.list[i+1:]...)
			return
		}
	}
}

func (w *waiter) wake() {
	w.told = true
	select {
	case w.woken <- struct{}{}:
	default:
	}
}

// wakeOne wakes the first that was not; behind says after whom, nil for all.
func (ws *waiters) wakeOne(behind *waiter) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.wakeFirst(behind)
}

func (ws *waiters) wakeFirst(behind *waiter) {
	found := behind == nil
	for _, w := range ws.list {
		if found && !w.told {
			w.wake()
			return
		}
		found = found || w == behind
	}
}

func (ws *waiters) wakeAll() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	for _, w := range ws.list {
		w.wake()
	}
}

// looking says that a waiter is about to look: what comes from now on wakes it anew.
func (ws *waiters) looking(w *waiter) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	w.told = false
}

func (ws *waiters) isClosed() bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return ws.closed
}

func (ws *waiters) close() {
	ws.mu.Lock()
	ws.closed = true
	ws.mu.Unlock()
	ws.wakeAll()
}

// wake has one receiver look; of a broadcast group, in which each has a cursor of
// its own, all of them.
func (g *queueGroup) wake() {
	if g.broadcast.Load() {
		g.waiters.wakeAll()
		return
	}
	g.waiters.wakeOne(nil)
}

func (g *queueGroup) wakeAll() { g.waiters.wakeAll() }
