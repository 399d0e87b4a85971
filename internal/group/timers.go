package group

import (
	"container/heap"
	"time"
)

// timer is one thing to do at a time. A heartbeat does not touch the heap: it
// moves the member's deadline, which is looked at when the timer fires.
type timer struct {
	at    time.Time
	index int // position in the heap + 1; 0: not set
	fire  func()
}

// timers is a heap of set timers, earliest first.
type timers []*timer

func (h timers) Len() int           { return len(h) }
func (h timers) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h timers) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i+1, j+1
}

// Push and Pop are for container/heap.
func (h *timers) Push(x any) {
	t := x.(*timer)
	*h = append(*h, t)
	t.index = len(*h)
}

func (h *timers) Pop() any {
	old := *h
	t := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	t.index = 0
	return t
}

// set moves the timer to at, setting it if it was not.
func (h *timers) set(t *timer, at time.Time) {
	t.at = at
	if t.index == 0 {
		heap.Push(h, t)
		return
	}
	heap.Fix(h, t.index-1)
}

func (h *timers) stop(t *timer) {
	if t.index != 0 {
		heap.Remove(h, t.index-1)
	}
}

// next takes the earliest timer that is due; nil if none is.
func (h *timers) next(now time.Time) *timer {
	if len(*h) == 0 || (*h)[0].at.After(now) {
		return nil
	}
	return heap.Pop(h).(*timer)
}
