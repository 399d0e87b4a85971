package peer

import (
	"fmt"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/tube-mq/tube/internal/record"
)

func echoCaller(w http.ResponseWriter, r *http.Request) {
	id, ok := Caller(r.Header)
	_, _ = fmt.Fprintf(w, "%s %v %v", r.Proto, id, ok)
}

func get(t *testing.T, c *http.Client, url string) (int, string) {
	t.Helper()
	resp, err := c.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

func TestControlCallsSayWhoCalls(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		a := startNode(t, n, 1, nil)
		b := startNode(t, n, 2, func(c *Config) { c.Handler = http.HandlerFunc(echoCaller) })
		defer b.stop(t)
		defer a.stop(t)
		if _, _, err := a.Client(2); err == nil {
			t.Error("a client of no peer")
		}
		peers(a, b)
		base, c, err := a.Client(2)
		if err != nil {
			t.Fatal(err)
		}
		if code, got := get(t, c, base+"/x"); code != 200 || got != "HTTP/2.0 {c 1 i1} true" {
			t.Errorf("%d %s", code, got)
		}
		base, seeds := a.ClientAt(b.addr)
		if code, got := get(t, seeds, base+"/x"); code != 200 || got != "HTTP/2.0 {c 1 i1} true" {
			t.Errorf("%d %s", code, got)
		}
		// A tool that is no node, on HTTP/1.1.
		plain := &http.Client{Transport: &http.Transport{DialContext: seeds.Transport.(*introduced).base.DialContext}}
		defer plain.CloseIdleConnections()
		if code, got := get(t, plain, base+"/x"); code != 200 || got != "HTTP/1.1 { 0 } false" {
			t.Errorf("%d %s", code, got)
		}
		if code, _ := get(t, seeds, base+messagesPath); code != http.StatusUpgradeRequired {
			t.Errorf("messages over HTTP/2: %d", code)
		}
	})
}

func TestControlCallsForAnotherNodeOrClusterAreRefused(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		a := startNode(t, n, 1, nil)
		b := startNode(t, n, 2, func(c *Config) { c.Handler = http.HandlerFunc(echoCaller) })
		defer b.stop(t)
		defer a.stop(t)
		a.SetPeers(map[record.NodeID]string{3: b.addr})
		base, c, err := a.Client(3)
		if err != nil {
			t.Fatal(err)
		}
		if code, got := get(t, c, base+"/x"); code != 400 || got != `{"code":"failed_precondition","message":"this is node 2, not node 3"}` {
			t.Errorf("%d %s", code, got)
		}
		d := newNode(n, 4, nil)
		d.id.ClusterID = "d"
		defer d.stop(t)
		base, c = d.ClientAt(b.addr)
		if code, got := get(t, c, base+"/x"); code != 400 || got != `{"code":"failed_precondition","message":"wrong cluster id: node 2 is of cluster c, and who asks is of cluster d"}` {
			t.Errorf("%d %s", code, got)
		}
	})
}

func TestStopLetsControlCallsEnd(t *testing.T) {
	bubble(t, func(t *testing.T, n *network) {
		a := startNode(t, n, 1, nil)
		defer a.stop(t)
		b := startNode(t, n, 2, func(c *Config) {
			c.Handler = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				time.Sleep(2 * time.Second)
				_, _ = io.WriteString(w, "done")
			})
		})
		peers(a, b)
		settle(time.Second)
		answered := make(chan string)
		go func() {
			base, c, _ := a.Client(2)
			_, s := get(t, c, base)
			answered <- s
		}()
		settle(100 * time.Millisecond)
		go b.stop(t)
		if s := <-answered; s != "done" {
			t.Errorf("answer %q", s)
		}
		settle(time.Second)
	})
}
