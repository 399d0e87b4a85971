package peer

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tube-mq/tube/internal/record"
)

func TestWrongIdentitiesAreRefusedWithASentence(t *testing.T) {
	for _, c := range []struct {
		name     string
		caller   func(*Identity)
		callee   func(*Identity)
		refuse   func(Identity) error
		sentence string
		gone     bool // and who asked is told that it is for good
	}{
		{name: "another cluster", caller: func(id *Identity) { id.ClusterID = "other" },
			sentence: "refused: wrong cluster id: node 2 is of cluster c, and who asks is of cluster other"},
		{name: "another node at the address", callee: func(id *Identity) { id.Node = 7 },
			sentence: "refused: this is node 7, not node 2"},
		{name: "the same node id", caller: func(id *Identity) { id.Node = 2; id.Incarnation = "twin" },
			sentence: "refused: node id 2 is in use by another process"},
		{name: "refused by the owner", refuse: func(id Identity) error {
			return fmt.Errorf("node %d is not registered under incarnation %s", id.Node, id.Incarnation)
		}, sentence: "refused: node 1 is not registered under incarnation i1"},
		{name: "removed", refuse: func(Identity) error { return Gone(errors.New("node 1 was removed")) },
			sentence: "refused: node 1 was removed", gone: true},
		{name: "removed, says who does not know this cluster", callee: func(id *Identity) { id.ClusterID = "" },
			refuse: func(Identity) error { return Gone(errors.New("node 1 was removed")) }, sentence: "refused: node 1 was removed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, n *network) {
				a, b := newNode(n, 1, nil), newNode(n, 2, func(cfg *Config) { cfg.Refuse = c.refuse })
				if c.caller != nil {
					c.caller(&a.id)
				}
				if c.callee != nil {
					c.callee(&b.id)
				}
				if err := b.Serve(n.listen(b.addr)); err != nil {
					t.Fatal(err)
				}
				defer b.stop(t)
				defer a.stop(t)
				// SetPeers leaves the node itself out, so the twin is linked by hand.
				a.mu.Lock()
				l := newLink(a.Transport, 2, b.addr, &source{node: 2})
				a.links[2] = l
				a.running.Go(l.run)
				a.mu.Unlock()
				settle(10 * time.Second)
				if n := a.logs.count(c.sentence); n != 1 {
					t.Errorf("logged %d times; log:\n%s", n, a.logs.b.String())
				}
				if gone := slices.Contains(a.said(), "gone, says 2: node 1 was removed"); gone != c.gone {
					t.Errorf("told that it is for good: %v", gone)
				}
				if b.Alive(a.id.Node) || len(b.Stats()) != 0 {
					t.Errorf("the refused node is known: %+v", b.Stats())
				}
			})
		})
	}
}

func TestAClusterIsFoundedWithoutAClusterID(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		a, b := newNode(n, 1, nil), newNode(n, 2, nil)
		a.id.ClusterID = ""
		for _, tn := range []*testNode{a, b} {
			if err := tn.Serve(n.listen(tn.addr)); err != nil {
				t.Fatal(err)
			}
			defer tn.stop(t)
		}
		peers(a, b)
		settle(time.Second)
		if !a.Alive(2) || !b.Alive(1) {
			t.Errorf("not connected: %s", a.logs.b.String())
		}
	})
}

// dialRaw sends a handshake as node 1 and returns the answer.
func dialRaw(t *testing.T, n *network, to *testNode, change func(http.Header)) (net.Conn, *http.Response) {
	t.Helper()
	conn, err := n.dial(context.Background(), to.addr)
	if err != nil {
		t.Fatal(err)
	}
	h := http.Header{"Connection": {"Upgrade"}, "Upgrade": {upgradeTo}}
	Identity{ClusterID: "c", Node: 1, Incarnation: "i1"}.writeTo(h)
	h.Set(headerTarget, formatNode(to.id.Node))
	if change != nil {
		change(h)
	}
	req, err := http.NewRequest(http.MethodPost, "http://"+to.addr+messagesPath, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header = h
	if err := req.Write(conn); err != nil {
		t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), req)
	if err != nil {
		t.Fatal(err)
	}
	return conn, resp
}

func sentence(t *testing.T, resp *http.Response) string {
	t.Helper()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(string(b))
}

func frameBytes(kind byte, body string) []byte {
	b := make([]byte, headerBytes, headerBytes+len(body))
	putHeader(b, kind, [][]byte{[]byte(body)})
	return append(b, body...)
}

func TestMalformedHandshakesAreRefused(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		b := startNode(t, n, 2, nil)
		defer b.stop(t)
		for _, c := range []struct {
			header, value, sentence string
			status                  int
		}{
			{headerProtocol, "2", `peer protocol "2" is not spoken here, only 1`, 409},
			{headerNode, "-1", `"-1" is not a node id`, 409},
			{headerNode, "4294967296", `"4294967296" is not a node id`, 409},
			{headerNode, "", `"" is not a node id`, 409},
			{"Upgrade", "websocket", "this path wants POST with an upgrade of HTTP/1.1 to tube-peer/1", 426},
		} {
			conn, resp := dialRaw(t, n, b, func(h http.Header) { h.Set(c.header, c.value) })
			if got := sentence(t, resp); resp.StatusCode != c.status || got != c.sentence {
				t.Errorf("%s %q: %d %s", c.header, c.value, resp.StatusCode, got)
			}
			_ = conn.Close()
		}
	})
}

func TestASecondProcessOfANodeIDIsRefusedWhileTheFirstIsAlive(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		b := startNode(t, n, 2, nil)
		defer b.stop(t)
		twin := func(h http.Header) { h.Set(headerIncarnation, "twin") }
		first, resp := dialRaw(t, n, b, nil)
		if resp.StatusCode != http.StatusSwitchingProtocols || resp.Header.Get(headerNode) != "2" || resp.Header.Get(headerIncarnation) != "i2" || resp.Header.Get(headerCluster) != "c" {
			t.Fatalf("answer %+v", resp)
		}
		settle(500 * time.Millisecond)
		second, resp := dialRaw(t, n, b, twin)
		if got := sentence(t, resp); resp.StatusCode != http.StatusConflict || got != "node id 1 is in use by another process" {
			t.Errorf("before the first frame: %d %s", resp.StatusCode, got)
		}
		_ = second.Close()
		if _, err := first.Write(frameBytes(1, "alive")); err != nil {
			t.Fatal(err)
		}
		settle(900 * time.Millisecond)
		second, resp = dialRaw(t, n, b, twin)
		if got := sentence(t, resp); resp.StatusCode != http.StatusConflict {
			t.Errorf("while it is alive: %d %s", resp.StatusCode, got)
		}
		_ = second.Close()
		settle(200 * time.Millisecond)
		second, resp = dialRaw(t, n, b, twin)
		if resp.StatusCode != http.StatusSwitchingProtocols {
			t.Errorf("when it is silent: %d", resp.StatusCode)
		}
		if _, err := first.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("the first connection: %v, want it closed", err)
		}
		_ = second.Close()
	})
}

func TestASecondConnectionOfAProcessReplacesTheFirst(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		slowly := make(chan struct{})
		var b *testNode
		b = startNode(t, n, 2, func(c *Config) {
			c.Receive = func(from record.NodeID, kind byte, _ *record.Buffer, body []byte) {
				if kind == 9 {
					<-slowly
				}
				b.note(&b.received, string(body))
			}
		})
		defer b.stop(t)
		first, _ := dialRaw(t, n, b, nil)
		if _, err := first.Write(append(frameBytes(1, "one"), frameBytes(9, "two")...)); err != nil {
			t.Fatal(err)
		}
		answered := make(chan net.Conn)
		go func() {
			second, _ := dialRaw(t, n, b, nil)
			_, _ = second.Write(frameBytes(1, "three"))
			answered <- second
		}()
		settle(time.Second)
		select {
		case <-answered:
			t.Error("the second connection was let in while a frame of the first was being received")
		default:
		}
		close(slowly)
		second := <-answered
		settle(0)
		if got := b.got(); !slices.Equal(got, []string{"one", "two", "three"}) {
			t.Errorf("received %q", got)
		}
		if _, err := first.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
			t.Errorf("the first connection: %v, want it closed", err)
		}
		if got := b.said(); !slices.Equal(got, []string{"up 1"}) {
			t.Errorf("%v", got)
		}
		_ = second.Close()
	})
}

// What comes in the same packet as the handshake is read by the HTTP server and
// must not be lost.
func TestFramesBehindTheHandshakeAreNotLost(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		b := startNode(t, n, 2, nil)
		defer b.stop(t)
		conn, err := n.dial(context.Background(), b.addr)
		if err != nil {
			t.Fatal(err)
		}
		head := "POST " + messagesPath + " HTTP/1.1\r\nHost: b\r\nConnection: Upgrade\r\nUpgrade: tube-peer/1\r\nContent-Length: 0\r\n" +
			"Tube-Peer-Protocol: 1\r\nTube-Node: 1\r\nTube-Incarnation: i1\r\n\r\n"
		go func() { _, _ = conn.Write(append([]byte(head), frameBytes(1, "early")...)) }()
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || resp.StatusCode != http.StatusSwitchingProtocols {
			t.Fatal(resp, err)
		}
		settle(0)
		if got := b.got(); !slices.Equal(got, []string{"1 1 early"}) {
			t.Errorf("received %q", got)
		}
		_ = conn.Close()
	})
}

// A dialler checks who answers, whatever the other side thinks.
func TestTheAnswerersIdentityIsChecked(t *testing.T) {
	for _, c := range []struct {
		name     string
		answer   func(http.ResponseWriter)
		sentence string
	}{
		{"another node", func(w http.ResponseWriter) { answerAs(w, Identity{"c", 3, "i3"}) }, "the address is that of node 3, not of node 2"},
		{"another cluster", func(w http.ResponseWriter) { answerAs(w, Identity{"d", 2, "i2"}) }, "wrong cluster id: the peer is in cluster d, this node is in c"},
		{"something else", func(w http.ResponseWriter) { answerAs(w, Identity{}, headerProtocol) }, "the address answers, but not as a peer"},
		{"a web server", func(w http.ResponseWriter) { http.Error(w, "no such page", 404) }, "refused: no such page (404 Not Found)"},
		{"silence", func(http.ResponseWriter) { time.Sleep(time.Minute) }, "no answer to the handshake within 3s"},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, n *network) {
				l := n.listen(address(2))
				server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { c.answer(w) })}
				go func() { _ = server.Serve(l) }()
				defer settle(time.Minute) // for the silent ones to end
				defer func() { _ = server.Close() }()
				a := startNode(t, n, 1, nil)
				defer a.stop(t)
				a.SetPeers(map[record.NodeID]string{2: address(2)})
				settle(20 * time.Second)
				if n := a.logs.count(c.sentence); n != 1 {
					t.Errorf("logged %d times; log:\n%s", n, a.logs.b.String())
				}
			})
		})
	}
}

func answerAs(w http.ResponseWriter, id Identity, without ...string) {
	conn, _, err := http.NewResponseController(w).Hijack()
	if err != nil {
		panic(err)
	}
	resp := welcome(id)
	for _, h := range without {
		resp.Header.Del(h)
	}
	_ = resp.Write(conn)
	_ = conn.Close()
}
