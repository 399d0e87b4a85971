package kafka

import (
	"errors"
	"net"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// answered takes a call's answer. It may come from a partition's loop, so it
// only starts the writer when the call is the first in line.
func (c *conn) answered(cl *call, o outcome) {
	c.mu.Lock()
	if cl.answered {
		c.mu.Unlock()
		panic("kafka: a call was answered twice")
	}
	cl.answered, cl.out = true, o
	write := !c.writing && c.calls[0] == cl
	if write {
		c.writing = true
	}
	c.mu.Unlock()
	if write {
		go c.writeAnswers() // serve waits for its end
	}
}

// writeAnswers writes what is answered, in request order, until the first call
// in line has no answer.
func (c *conn) writeAnswers() {
	for {
		ready := c.takeAnswered()
		if len(ready) == 0 {
			return
		}
		c.writeCalls(ready)
		for _, cl := range ready {
			c.finish(cl)
		}
	}
}

// takeAnswered removes the answered calls from the front of the line; none ends
// the writer.
func (c *conn) takeAnswered() []*call {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for n < len(c.calls) && c.calls[n].answered {
		n++
	}
	ready := c.calls[:n:n]
	if c.calls = c.calls[n:]; len(c.calls) == 0 {
		c.calls = nil // an idle connection holds no memory
	}
	if n == 0 {
		c.writing = false
	}
	c.changed.Signal()
	return ready
}

// writeCalls writes the answers together.
func (c *conn) writeCalls(ready []*call) {
	buf := responseBufs.Get().(*responseBuf)
	defer buf.put()
	buf.b = buf.b[:0]
	hangUp := false
	for _, cl := range ready {
		if cl.out.response != nil {
			buf.b = appendResponse(buf.b, cl.correlation, cl.out.response)
		}
		if hangUp = cl.out.hangUp; hangUp {
			break
		}
	}
	if len(buf.b) > 0 {
		c.write(net.Buffers{buf.b})
	}
	if hangUp {
		c.broke(nil)
	}
}

// finish gives back what a call held.
func (c *conn) finish(cl *call) {
	c.door.cfg.Calls.Request(kmsg.NameForKey(cl.api.key), time.Since(cl.began))
	c.door.budgets.requests.Release(cl.charged)
	cl.frame.Release()
}

// broke closes a connection that cannot be written to; its reader ends by that.
func (c *conn) broke(err error) {
	c.mu.Lock()
	first := !c.broken
	c.broken = true
	c.mu.Unlock()
	if first && errors.Is(err, os.ErrDeadlineExceeded) {
		c.drop(dropSlowReader)
	}
	_ = c.nc.Close()
}
