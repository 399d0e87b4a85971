package peer

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tube-mq/tube/internal/record"
)

func TestFramesArriveInOrderBothWays(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		a, b := startNode(t, n, 1, nil), startNode(t, n, 2, nil)
		defer b.stop(t)
		defer a.stop(t)
		peers(a, b)
		settle(time.Second)
		var sent tally
		var want []string
		for i := range 1000 {
			if !a.Send(2, sent.frame(3, "x", fmt.Sprint(i))) {
				t.Fatalf("frame %d was not taken", i)
			}
			want = append(want, fmt.Sprintf("1 3 x%d", i))
		}
		large := strings.Repeat("large ", 1<<19)
		b.Send(1, sent.frame(4, "to ", large))
		settle(time.Second)
		if got := b.got(); !slices.Equal(got, want) {
			t.Errorf("node 2 received %d frames, want %d in order", len(got), len(want))
		}
		if got := a.got(); len(got) != 1 || got[0] != "2 4 to "+large {
			t.Errorf("node 1 received %d frames, want the large one", len(got))
		}
		sent.check(t)
		if s := a.stats(t, 2); s.SentFrames != 1000 || s.QueueBytes != 0 || s.DroppedFrames != 0 || !s.Alive || s.ReceivedFrames != 1 || s.ConnectedSince.IsZero() {
			t.Errorf("figures: %+v", s)
		}
	})
}

func TestPeersGoUpAndDown(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		a, b := startNode(t, n, 1, nil), startNode(t, n, 2, nil)
		defer a.stop(t)
		peers(a, b)
		settle(time.Second)
		if !a.Alive(2) || !b.Alive(1) {
			t.Fatal("the nodes do not hear each other")
		}
		settle(time.Minute)
		if got := a.said(); !slices.Equal(got, []string{"up 2"}) {
			t.Fatalf("after a quiet minute: %v", got)
		}
		b.stop(t)
		stopped := time.Now()
		settle(900 * time.Millisecond)
		if !a.Alive(2) {
			t.Error("down before DeadAfter")
		}
		settle(400 * time.Millisecond)
		if got := a.said(); a.Alive(2) || !slices.Equal(got, []string{"up 2", "down 2"}) {
			t.Fatalf("after DeadAfter: %v", got)
		}
		if at, ok := a.LastHeard(2); !ok || at.After(stopped) || stopped.Sub(at) > 200*time.Millisecond {
			t.Errorf("last heard %v before the stop", stopped.Sub(at))
		}
		settle(10 * time.Second) // node 1 dials once a second at most by now
		again := newNode(n, 2, nil)
		again.id.Incarnation = "another"
		if err := again.Serve(n.listen(again.addr)); err != nil {
			t.Fatal(err)
		}
		defer again.stop(t)
		peers(a, again)
		settle(10 * time.Millisecond) // it dials, and so is dialled
		a.Send(2, Frame{Kind: 1, Parts: [][]byte{[]byte("hello")}})
		settle(100 * time.Millisecond)
		if got := a.said(); !slices.Equal(got, []string{"up 2", "down 2", "up 2"}) {
			t.Errorf("after the restart: %v", got)
		}
		if got := again.got(); !slices.Equal(got, []string{"1 1 hello"}) {
			t.Errorf("after the restart node 2 received %q", got)
		}
	})
}

func TestAShortBreakIsNotDown(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		a, b := startNode(t, n, 1, nil), startNode(t, n, 2, nil)
		defer b.stop(t)
		defer a.stop(t)
		peers(a, b)
		for range 10 {
			settle(3 * time.Second)
			b.sever(1)
		}
		settle(3 * time.Second)
		if got := a.said(); !slices.Equal(got, []string{"up 2"}) {
			t.Errorf("%v", got)
		}
	})
}

func TestARemovedPeerIsDroppedAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		var removed atomic.Bool
		a := startNode(t, n, 1, func(c *Config) {
			c.Refuse = func(id Identity) error {
				if removed.Load() {
					return fmt.Errorf("node %d is not of this cluster any more", id.Node)
				}
				return nil
			}
		})
		b := startNode(t, n, 2, nil)
		defer b.stop(t)
		defer a.stop(t)
		peers(a, b)
		settle(time.Second)
		removed.Store(true)
		a.SetPeers(nil)
		settle(0)
		if got := a.said(); a.Alive(2) || !slices.Equal(got, []string{"up 2", "down 2"}) {
			t.Errorf("%v", got)
		}
		var sent tally
		if a.Send(2, sent.frame(1)) {
			t.Error("a frame for a removed peer was taken")
		}
		sent.check(t)
		settle(30 * time.Second)
		if n := b.logs.count("node 2 is not of this cluster any more"); n != 1 {
			t.Errorf("the refusal was logged %d times", n)
		}
		if len(a.Stats()) != 0 {
			t.Errorf("still known: %+v", a.Stats())
		}
	})
}

func TestAPeerThatDoesNotReadCostsOnlyTheQueue(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		hold := make(chan struct{})
		a := startNode(t, n, 1, func(c *Config) { c.QueueBytes = 1 << 20 })
		b := startNode(t, n, 2, func(c *Config) {
			c.Receive = func(record.NodeID, byte, *record.Buffer, []byte) { <-hold }
		})
		peers(a, b)
		settle(time.Second)
		var sent tally
		body := strings.Repeat("x", 100<<10)
		taken := 0
		for range 100 {
			if a.Send(2, sent.frame(1, body)) {
				taken++
			}
			settle(0)
		}
		s := a.stats(t, 2)
		if s.QueueBytes > 1<<20 || s.DroppedFrames != int64(100-taken) || taken < 10 || taken > 15 {
			t.Errorf("%d taken, figures %+v", taken, s)
		}
		since := s.ConnectedSince
		settle(writeTimeout + 100*time.Millisecond)
		if s = a.stats(t, 2); s.ConnectedSince.Equal(since) {
			t.Error("the connection was not given up")
		}
		close(hold)
		settle(5 * time.Second)
		if s = a.stats(t, 2); s.QueueBytes != 0 || s.ConnectedSince.IsZero() {
			t.Errorf("not recovered: %+v", s)
		}
		a.stop(t)
		b.stop(t)
		sent.check(t)
	})
}

func TestNothingWaitsForAPeerOutOfReach(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		a := startNode(t, n, 1, nil)
		a.SetPeers(map[record.NodeID]string{2: address(2)})
		var sent tally
		if !a.Send(2, sent.frame(1, "early")) {
			t.Error("a frame that comes before the connection was dropped")
		}
		settle(5 * time.Second)
		sent.check(t)
		if a.Send(2, sent.frame(1, "late")) {
			t.Error("a frame for a peer out of reach was taken")
		}
		if s := a.stats(t, 2); s.DroppedFrames != 2 || s.QueueBytes != 0 {
			t.Errorf("figures: %+v", s)
		}
		b := startNode(t, n, 2, nil)
		settle(2 * time.Second)
		if !a.Send(2, sent.frame(1, "in time")) {
			t.Error("a frame for a peer in reach was dropped")
		}
		settle(time.Second)
		if got := b.got(); !slices.Equal(got, []string{"1 1 in time"}) {
			t.Errorf("received %q", got)
		}
		if n := a.logs.count("connection refused"); n != 1 {
			t.Errorf("the reason was logged %d times", n)
		}
		a.stop(t)
		b.stop(t)
		sent.check(t)
	})
}

func TestFramesAreReleasedOnceWhateverBreaks(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		a := startNode(t, n, 1, func(c *Config) { c.QueueBytes = 1 << 20 })
		b := startNode(t, n, 2, nil)
		peers(a, b)
		var sent tally
		body := strings.Repeat("y", 20<<10)
		for i := range 2000 {
			a.Send(2, sent.frame(1, fmt.Sprintf("%06d", i), body))
			if i%97 == 0 {
				a.sever(2)
			}
			if i%10 == 0 {
				settle(time.Duration(i%7) * 10 * time.Millisecond)
			}
		}
		a.stop(t)
		b.stop(t)
		a.Send(2, sent.frame(1, "after the stop"))
		sent.check(t)
		got := b.got()
		if !slices.IsSorted(got) {
			t.Error("frames came out of order")
		}
		if len(got) < 200 {
			t.Errorf("only %d frames came", len(got))
		}
	})
}

func TestStopWritesWhatWaits(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		a, b := startNode(t, n, 1, nil), startNode(t, n, 2, nil)
		defer b.stop(t)
		peers(a, b)
		settle(time.Second)
		var sent tally
		for range 100 {
			a.Send(2, sent.frame(1, "last words"))
		}
		a.stop(t)
		a.stop(t)
		settle(0)
		sent.check(t)
		if n := len(b.got()); n != 100 {
			t.Errorf("%d frames came", n)
		}
		if a.Serve(n.listen("late")) == nil {
			t.Error("a stopped transport serves")
		}
	})
}

func TestStopDoesNotWaitForAPeerThatDoesNotRead(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		hold := make(chan struct{})
		a := startNode(t, n, 1, nil)
		b := startNode(t, n, 2, func(c *Config) {
			c.Receive = func(record.NodeID, byte, *record.Buffer, []byte) { <-hold }
		})
		peers(a, b)
		settle(time.Second)
		var sent tally
		for range 100 {
			a.Send(2, sent.frame(1, strings.Repeat("z", 100<<10)))
		}
		began := time.Now()
		a.stop(t)
		if d := time.Since(began); d > 2*time.Second {
			t.Errorf("stop took %v", d)
		}
		sent.check(t)
		close(hold)
		b.stop(t)
	})
}

func TestAFrameBeyondTheLimitIsNotSent(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		a := startNode(t, n, 1, func(c *Config) { c.MaxFrameBytes = 10 })
		b := startNode(t, n, 2, nil)
		defer b.stop(t)
		defer a.stop(t)
		peers(a, b)
		settle(time.Second)
		var sent tally
		if a.Send(2, sent.frame(1, "12345", "67890X")) || !a.Send(2, sent.frame(1, "12345", "67890")) {
			t.Error("the limit is not kept")
		}
		settle(time.Second)
		sent.check(t)
		if got := b.got(); !slices.Equal(got, []string{"1 1 1234567890"}) {
			t.Errorf("received %q", got)
		}
	})
}

// flipper changes one byte of what is written, once.
type flipper struct {
	net.Conn
	armed *atomic.Bool
}

func (f flipper) Write(b []byte) (int, error) {
	if len(b) > 40 && f.armed.CompareAndSwap(true, false) {
		b = slices.Clone(b)
		b[len(b)-1] ^= 0x10
	}
	return f.Conn.Write(b)
}

func TestADamagedFrameClosesAndTheLinkRecovers(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		var armed atomic.Bool
		n.wrapWith(func(c net.Conn) net.Conn { return flipper{c, &armed} })
		a, b := startNode(t, n, 1, nil), startNode(t, n, 2, nil)
		defer b.stop(t)
		defer a.stop(t)
		peers(a, b)
		settle(time.Second)
		armed.Store(true)
		var sent tally
		a.Send(2, sent.frame(1, strings.Repeat("damaged", 10)))
		settle(2 * time.Second)
		a.Send(2, sent.frame(1, "sound"))
		settle(time.Second)
		sent.check(t)
		if got := b.got(); !slices.Equal(got, []string{"1 1 sound"}) {
			t.Errorf("received %q", got)
		}
		if n := b.logs.count("level=ERROR msg=\"peer payload damaged: rejected by checksum\""); n != 1 {
			t.Errorf("logged %d times: %s", n, b.logs.b.String())
		}
		if s := b.stats(t, 1); s.DamagedFrames != 1 || !s.Alive {
			t.Errorf("figures: %+v", s)
		}
		if got := b.said(); !slices.Equal(got, []string{"up 1"}) {
			t.Errorf("%v", got)
		}
	})
}

func TestAnOversizeFrameClosesTheConnection(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		a := startNode(t, n, 1, nil)
		b := startNode(t, n, 2, func(c *Config) { c.MaxFrameBytes = 100 })
		defer b.stop(t)
		defer a.stop(t)
		peers(a, b)
		settle(time.Second)
		a.Send(2, Frame{Kind: 1, Parts: [][]byte{make([]byte, 101)}})
		settle(2 * time.Second)
		if got := b.got(); len(got) != 0 {
			t.Errorf("received %q", got)
		}
		if n := b.logs.count("101 bytes are more than the limit of 100"); n != 1 {
			t.Errorf("logged %d times", n)
		}
		if s := a.stats(t, 2); s.ConnectedSince.IsZero() {
			t.Error("not connected again")
		}
	})
}

func TestTheRoundTripIsMeasured(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		n.wrapWith(func(c net.Conn) net.Conn { return slow{c, 3 * time.Millisecond} })
		a, b := startNode(t, n, 1, nil), startNode(t, n, 2, nil)
		defer b.stop(t)
		defer a.stop(t)
		peers(a, b)
		settle(5 * time.Second)
		if d := a.stats(t, 2).RoundTrip; d != 6*time.Millisecond {
			t.Errorf("round trip %v, want 3 ms each way", d)
		}
	})
}

type slow struct {
	net.Conn
	delay time.Duration
}

func (s slow) Write(b []byte) (int, error) {
	time.Sleep(s.delay)
	return s.Conn.Write(b)
}
