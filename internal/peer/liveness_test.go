package peer

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tube-mq/tube/internal/pulse"
)

// A watch that looks late was not running: what the peers sent meanwhile is
// unread, and nobody is down for it.
func TestAPauseOfThisProcessIsNotTheSilenceOfOthers(t *testing.T) {
	tn := newNode(nil, 1, nil)
	s := tn.sourceLocked(2)
	s.current = &inbound{}
	w := &tn.watch
	at := func(d time.Duration) int64 { return int64(d) + 1 }
	look := func(d time.Duration) {
		w.look(at(d))
		w.last = at(d)
	}
	w.last = at(0)
	s.heard.Store(at(0))
	look(100 * time.Millisecond)
	look(700 * time.Millisecond) // late by DeadAfter/2: not yet a pause
	s.heard.Store(at(700 * time.Millisecond))
	look(10 * time.Second)
	if !tn.Alive(2) {
		t.Error("down at once after the pause")
	}
	for d := 10100 * time.Millisecond; d <= 11*time.Second; d += 100 * time.Millisecond {
		look(d)
	}
	if !tn.Alive(2) {
		t.Error("down within DeadAfter after the pause")
	}
	look(11100 * time.Millisecond)
	if tn.Alive(2) {
		t.Error("up though silent for DeadAfter after the pause")
	}
	if got, want := tn.said(), []string{"up 2", "paused 9.2s", "down 2"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

func TestALargeFrameOnASlowWayIsASignOfLife(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		b := startNode(t, n, 2, nil)
		defer b.stop(t)
		conn, _ := dialRaw(t, n, b, nil)
		frame := append(frameBytes(1, "first"), frameBytes(1, string(make([]byte, 200<<10)))...)
		for len(frame) > 0 {
			k, err := conn.Write(frame[:min(10<<10, len(frame))])
			if err != nil {
				t.Fatal(err)
			}
			frame = frame[k:]
			settle(900 * time.Millisecond)
		}
		if got := b.said(); !slices.Equal(got, []string{"up 1"}) || len(b.got()) != 2 {
			t.Errorf("%v, %d frames", got, len(b.got()))
		}
		_ = conn.Close()
	})
}

func TestAHandshakeAloneIsNotASignOfLife(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		b := startNode(t, n, 2, nil)
		defer b.stop(t)
		conn, _ := dialRaw(t, n, b, nil)
		if _, err := conn.Write(frameBytes(1, "whole")[:8]); err != nil {
			t.Fatal(err)
		}
		settle(time.Second)
		if _, heard := b.LastHeard(1); heard || b.Alive(1) {
			t.Error("up without a frame")
		}
		_ = conn.Close()
	})
}

// A node that is alone looks seldom; that somebody asks it to look at once does not make
// its rest a pause, at whatever moment of it.
func TestARestIsNoPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := startNode(t, newNetwork(), 1, func(c *Config) { c.DeadAfter = time.Second })
		defer a.stop(t)
		for i := range 10 {
			time.Sleep(3*pulse.Calm + time.Duration(i)*100*time.Millisecond)
			a.SetPeers(nil)
			synctest.Wait()
		}
		if got := a.said(); len(got) > 0 {
			t.Errorf("heard %q", got)
		}
	})
}
