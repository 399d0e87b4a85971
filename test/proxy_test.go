package test

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
)

// proxy stands between a client and a node and can be cut, as a network is.
type proxy struct {
	ln net.Listener
	to string
	wg sync.WaitGroup

	mu    sync.Mutex
	conns []net.Conn // guarded by mu
	off   bool       // guarded by mu
}

func newProxy(t *testing.T, to string) *proxy {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{ln: ln, to: to}
	p.wg.Go(p.accept)
	t.Cleanup(func() { p.cut(); ln.Close(); p.wg.Wait() })
	return p
}

func (p *proxy) addr() string { return p.ln.Addr().String() }

// dial brings a client to the proxy whatever address it was told.
func (p *proxy) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	p.mu.Lock()
	off := p.off
	p.mu.Unlock()
	if off {
		return nil, errors.New("the network is cut")
	}
	var d net.Dialer
	return d.DialContext(ctx, network, p.addr())
}

func (p *proxy) accept() {
	for {
		client, err := p.ln.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.to)
		if err != nil || !p.keep(client, server) {
			client.Close()
			continue
		}
		p.wg.Go(func() { _, _ = io.Copy(server, client); server.Close() })
		p.wg.Go(func() { _, _ = io.Copy(client, server); client.Close() })
	}
}

func (p *proxy) keep(conns ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.off {
		for _, c := range conns {
			c.Close()
		}
		return false
	}
	p.conns = append(p.conns, conns...)
	return true
}

// cut closes every connection and lets none come again.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.off = true
	for _, c := range p.conns {
		c.Close()
	}
}
