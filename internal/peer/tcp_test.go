package peer

import (
	"encoding/binary"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tube-mq/tube/internal/record"
)

// onTCP starts a node on a socket, which stops with the test.
func onTCP(t testing.TB, node record.NodeID, change func(*Config)) *testNode {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	tn := newNode(nil, node, change)
	tn.addr = l.Addr().String()
	if err := tn.Serve(l); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tn.stop(t) })
	return tn
}

// eventually polls: sockets are outside of any bubble.
func eventually(t testing.TB, what string, done func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !done(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

func TestOverSocketsWithRestarts(t *testing.T) {
	a, b := onTCP(t, 1, nil), onTCP(t, 2, nil)
	peers(a, b)
	var sent tally
	large := strings.Repeat("large", 1<<20)
	for i := range 3 {
		eventually(t, "both up", func() bool { return a.Alive(2) && b.Alive(1) })
		eventually(t, "connected", func() bool { return !a.stats(t, 2).ConnectedSince.IsZero() })
		have := len(b.got())
		for k := range 200 {
			a.Send(2, sent.frame(1, fmt.Sprintf("%d %03d", i, k)))
		}
		a.Send(2, sent.frame(1, "~", large))
		eventually(t, "all frames came", func() bool { return len(b.got()) == have+201 })
		if got := b.got()[have:]; !slices.IsSorted(got) || got[200] != "1 1 ~"+large {
			t.Error("frames came out of order or damaged")
		}
		b.stop(t)
		b = onTCP(t, 2, nil)
		b.id.Incarnation = fmt.Sprint("b", i)
		peers(a, b)
	}
	a.stop(t) // a frame is released after it was written, when it may have come already
	sent.check(t)
}

func TestMutualTLSOverSockets(t *testing.T) {
	ca := newAuthority(t)
	a, b := onTCP(t, 1, withTLS(ca.mutual([]string{"node-1.tube"}))), onTCP(t, 2, withTLS(ca.mutual([]string{"node-2.tube"})))
	peers(a, b)
	eventually(t, "both up", func() bool { return a.Alive(2) && b.Alive(1) })
	body := strings.Repeat("secret", 1<<18)
	for range 20 {
		a.Send(2, Frame{Kind: 1, Parts: [][]byte{[]byte("x"), []byte(body)}})
	}
	eventually(t, "all frames came", func() bool { return len(b.got()) == 20 })
	if b.got()[19] != "1 1 x"+body {
		t.Error("the frame changed on the way")
	}
}

// Everything at once: senders, breaks, peers that leave and come, and a stop in
// the middle. No frame is released twice or never, and each sender's stay in order.
func TestOrderAndReleasesHoldUnderChaos(t *testing.T) {
	record.PoisonReleased(true)
	defer record.PoisonReleased(false)
	var mu sync.Mutex
	last, came := map[byte]uint64{}, 0
	a := onTCP(t, 1, func(c *Config) { c.QueueBytes = 1 << 20 })
	b := onTCP(t, 2, func(c *Config) {
		c.Receive = func(_ record.NodeID, kind byte, _ *record.Buffer, body []byte) {
			mu.Lock()
			defer mu.Unlock()
			n := binary.LittleEndian.Uint64(body)
			if n <= last[kind] {
				t.Errorf("sender %d: frame %d after frame %d", kind, n, last[kind])
			}
			last[kind] = n
			came++
		}
	})
	peers(a, b)
	const senders, frames = 4, 4000
	var sent tally
	var sending, breaking sync.WaitGroup
	done := make(chan struct{})
	for s := range senders {
		sending.Go(func() {
			for i := range frames {
				body := make([]byte, 8+(i%100)*700)
				binary.LittleEndian.PutUint64(body, uint64(i+1))
				f := sent.frame(byte(s + 1))
				f.Parts = [][]byte{body[:5], body[5:]}
				if !a.Send(2, f) {
					time.Sleep(time.Millisecond) // a pace, so that some come through
				}
			}
		})
	}
	breaking.Go(func() {
		for i := 0; !isClosed(done); i++ {
			switch i % 3 {
			case 0:
				a.sever(2)
			case 1:
				a.SetPeers(nil)
				a.SetPeers(map[record.NodeID]string{2: b.addr})
			case 2:
				b.sever(1)
			}
			time.Sleep(30 * time.Millisecond)
		}
	})
	sending.Wait()
	close(done)
	breaking.Wait()
	a.stop(t)
	b.stop(t)
	sent.check(t)
	if came < 1000 {
		t.Errorf("only %d of %d frames came", came, senders*frames)
	}
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// BenchmarkSend measures frames over loopback, sender and receiver in one process.
func BenchmarkSend(b *testing.B) {
	for _, size := range []int{100, 4 << 10, 64 << 10, 1 << 20} {
		for _, secured := range []bool{false, true} {
			name := fmt.Sprint(size)
			if secured {
				name += "-TLS"
			}
			b.Run(name, func(b *testing.B) { benchmarkSend(b, size, secured) })
		}
	}
}

func benchmarkSend(b *testing.B, size int, secured bool) {
	var received atomic.Int64
	count := func(c *Config) {
		c.Receive = func(record.NodeID, byte, *record.Buffer, []byte) { received.Add(1) }
		c.Logger = slog.New(slog.DiscardHandler)
	}
	one, two := count, count
	if secured {
		ca := newAuthority(b)
		one, two = securedBy(count, ca, "node-1.tube"), securedBy(count, ca, "node-2.tube")
	}
	from, to := onTCP(b, 1, one), onTCP(b, 2, two)
	peers(from, to)
	eventually(b, "both up", func() bool { return from.Alive(2) && to.Alive(1) })
	body := make([]byte, size)
	binary.LittleEndian.PutUint64(body, 1)
	// As many frames are under way as a busy node has, not as many as the queue holds.
	window := make(chan struct{}, max(16, min(4096, 8<<20/size)))
	f := Frame{Kind: 1, Parts: [][]byte{body}, Release: func() { <-window }}
	b.SetBytes(int64(size))
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		window <- struct{}{}
		if !from.Send(2, f) {
			b.Fatal("dropped")
		}
	}
	eventually(b, "all frames came", func() bool { return received.Load() == int64(b.N) })
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "frames/s")
}

func securedBy(change func(*Config), ca *authority, name string) func(*Config) {
	return func(c *Config) {
		change(c)
		c.TLS = ca.mutual([]string{name})
	}
}
