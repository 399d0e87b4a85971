package kafka

import (
	"context"
	"errors"
	"net"
	"time"
)

// acceptPause is the wait after the system could not give a connection, mostly
// for want of file descriptors.
const acceptPause = 50 * time.Millisecond

// keepAlive finds clients that vanished without a word.
var keepAlive = net.KeepAliveConfig{Enable: true, Idle: time.Minute, Interval: 15 * time.Second, Count: 4}

// Start serves connections of l, which the door closes when it stops. It returns
// at once. It may be called for several listeners.
func (d *Door) Start(l net.Listener) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stopped {
		return errors.Join(errors.New("kafka door: stopped"), l.Close())
	}
	d.listeners = append(d.listeners, l)
	d.running.Go(func() { d.accept(l) })
	return nil
}

func (d *Door) accept(l net.Listener) {
	for {
		nc, err := l.Accept()
		if err == nil {
			d.open(nc)
			continue
		}
		if errors.Is(err, net.ErrClosed) || d.ctx.Err() != nil {
			return
		}
		d.cfg.Logger.Warn("cannot accept a Kafka connection; will try again", "err", err)
		select {
		case <-time.After(acceptPause):
		case <-d.ctx.Done():
			return
		}
	}
}

// open gives a connection its goroutine, or closes it when there are too many.
func (d *Door) open(nc net.Conn) {
	if tc, ok := nc.(*net.TCPConn); ok {
		_ = tc.SetKeepAliveConfig(keepAlive) // TCP_NODELAY is Go's default
	}
	host := hostOf(nc.RemoteAddr())
	c := &conn{door: d, nc: nc, client: client{host: host}}
	c.client.sessions.door = d
	c.changed.L = &c.mu
	d.mu.Lock()
	refused := ""
	switch {
	case d.stopped:
		refused = dropStopping
	case len(d.conns) >= d.cfg.MaxConnections:
		refused = dropTooMany
	case d.cfg.MaxConnectionsPerAddress > 0 && d.perHost[host] >= d.cfg.MaxConnectionsPerAddress:
		refused = dropTooManyOfAddress
	default:
		d.conns[c] = struct{}{}
		d.perHost[host]++
		d.running.Go(func() { d.serve(c) })
	}
	d.mu.Unlock()
	if refused != "" {
		d.cfg.Traffic.Dropped(refused)
		_ = nc.Close()
	}
}

func (d *Door) serve(c *conn) {
	d.cfg.Traffic.Opened()
	c.serve()
	d.mu.Lock()
	delete(d.conns, c)
	if d.perHost[c.client.host]--; d.perHost[c.client.host] == 0 {
		delete(d.perHost, c.client.host)
	}
	d.mu.Unlock()
	d.cfg.Traffic.Closed()
}

// Stop closes the listeners, lets what is under way be answered, and closes the
// connections; when ctx ends it cuts them off, and returns ctx's error. It may be
// called twice.
func (d *Door) Stop(ctx context.Context) error {
	d.mu.Lock()
	d.stopped = true
	for _, l := range d.listeners {
		_ = l.Close()
	}
	d.listeners = nil
	d.cancel()
	for c := range d.conns {
		c.wakeReader()
	}
	d.mu.Unlock()

	done := make(chan struct{})
	go func() {
		d.running.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
	}
	d.mu.Lock()
	for c := range d.conns {
		_ = c.nc.Close()
	}
	d.mu.Unlock()
	return ctx.Err()
}

// Connections is how many are open.
func (d *Door) Connections() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.conns)
}

func hostOf(a net.Addr) string {
	if t, ok := a.(*net.TCPAddr); ok {
		return t.IP.String()
	}
	host, _, err := net.SplitHostPort(a.String())
	if err != nil {
		return a.String()
	}
	return host
}
