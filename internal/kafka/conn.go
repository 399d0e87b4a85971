package kafka

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"runtime/debug"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tube-mq/tube/internal/record"
)

// Why the node closed a connection by itself, as metrics name it.
const (
	dropTooMany          = "too many connections"
	dropTooManyOfAddress = "too many connections of the address"
	dropStopping         = "stopping"
	dropIdle             = "idle"
	dropSlowSender       = "slow sender"
	dropSlowReader       = "slow reader"
	dropBadFrame         = "bad frame"
	dropPanic            = "internal error"
)

// conn is one connection. Its goroutine (serve) owns everything but what mu
// guards.
type conn struct {
	door   *Door
	nc     net.Conn
	client client
	head   [headBytes]byte
	// greeted: a whole request was understood, so that larger ones may follow.
	greeted bool

	mu sync.Mutex
	// changed is signalled when calls or writing change.
	changed sync.Cond
	// calls wait for their answer, in request order. Invariant: at most
	// Config.MaxInFlight.
	calls []*call
	// writing: a goroutine of writeAnswers runs.
	writing bool
	// broken: nothing can be written any more.
	broken bool
}

// serve reads and answers until the connection ends; it returns after the last
// call is over.
func (c *conn) serve() {
	for c.next() {
	}
	if c.door.ctx.Err() == nil {
		// The client is gone or to be cut off: nobody waits for answers.
		c.mu.Lock()
		c.broken = true
		c.mu.Unlock()
		_ = c.nc.Close()
	}
	c.await(0)
	_ = c.nc.Close()
	c.client.sessions.close()
	c.door.shareSessions.disconnected(&c.client)
}

// next handles one request; false ends the connection.
func (c *conn) next() bool {
	h, err := c.readHead()
	if err != nil {
		c.ended(err)
		return false
	}
	row, known := c.door.table[h.key]
	if !known {
		c.drop(dropBadFrame, "api", h.key)
		return false
	}
	charged := c.door.budgets.charge(h)
	if err := c.door.budgets.requests.Acquire(c.door.ctx, charged); err != nil {
		return false
	}
	frame, err := c.readBody(h)
	if err != nil {
		c.door.budgets.requests.Release(charged)
		c.ended(err)
		return false
	}
	c.door.cfg.Traffic.Received(h.sizeBytes + 4)
	return c.handle(row, h, frame, charged)
}

// readHead waits for the next frame, without a buffer.
func (c *conn) readHead() (head, error) {
	_ = c.nc.SetReadDeadline(time.Now().Add(c.door.cfg.IdleTimeout))
	if err := c.door.ctx.Err(); err != nil {
		return head{}, err // after setting the deadline: see wakeReader
	}
	n, err := io.ReadAtLeast(c.nc, c.head[:], 1)
	if err != nil {
		return head{}, err
	}
	if n < len(c.head) {
		_ = c.nc.SetReadDeadline(time.Now().Add(c.door.cfg.ReadTimeout))
		if n < 4 {
			m, err := io.ReadAtLeast(c.nc, c.head[n:], 4-n)
			if err != nil {
				return head{}, begun(err)
			}
			n += m
		}
	}
	limit := c.door.cfg.MaxFrameBytes
	if !c.greeted {
		limit = min(limit, maxFirstFrameBytes)
	}
	if _, err := frameSize(c.head[:], limit); err != nil {
		return head{}, err
	}
	if n < len(c.head) {
		if _, err := io.ReadFull(c.nc, c.head[n:]); err != nil {
			return head{}, begun(err)
		}
	}
	h := parseHead(c.head[:])
	if h.key != keyProduce {
		if _, err := frameSize(c.head[:], min(limit, maxOtherFrameBytes)); err != nil {
			return head{}, err
		}
	}
	return h, nil
}

// readBody reads what follows the head. Nothing is allocated before: the length
// passed its checks and the budget has room.
func (c *conn) readBody(h head) (*record.Buffer, error) {
	_ = c.nc.SetReadDeadline(time.Now().Add(c.door.cfg.ReadTimeout))
	b := record.NewBuffer(h.sizeBytes - (headBytes - 4))
	if _, err := io.ReadFull(c.nc, b.B); err != nil {
		b.Release()
		return nil, begun(err)
	}
	return b, nil
}

// errBegun marks the end of a connection within a frame.
var errBegun = errors.New("within a frame")

func begun(err error) error { return errors.Join(errBegun, err) }

// wakeReader ends the wait for the next frame. The reader looks at ctx after it
// set its deadline, so that this one, which comes after the end of ctx, is last.
func (c *conn) wakeReader() { _ = c.nc.SetReadDeadline(time.Unix(1, 0)) }

// handle decodes a frame and runs its handler. It gives back frame and budget.
func (c *conn) handle(row *api, h head, frame *record.Buffer, charged int64) (goOn bool) {
	began, cost := time.Now(), charged
	release := func() {
		c.door.budgets.requests.Release(charged)
		charged = 0
	}
	defer func() {
		if p := recover(); p != nil {
			c.door.cfg.Logger.Error("a Kafka request could not be handled; its connection is closed",
				"api", kmsg.NameForKey(h.key), "version", h.version, "client", c.client.host, "panic", p, "stack", string(debug.Stack()))
			c.door.cfg.Traffic.Dropped(dropPanic)
			goOn = false
		}
		release()
		frame.Release()
	}()
	if h.version < row.min || h.version > row.max {
		c.await(0)
		return c.refuseVersion(h)
	}
	if h.key == keyProduce {
		if err := checkProduceShape(h.version, frame.B); err != nil {
			c.ended(err)
			return false
		}
	}
	req, id, err := decode(h, frame.B, row.start != nil)
	if err != nil {
		c.ended(err)
		return false
	}
	c.greeted = true
	if string(id) != c.client.id {
		c.client.id = string(id)
	}
	if row.start != nil {
		cl := &call{api: row, version: h.version, correlation: h.correlation, began: began, frame: frame.Retain(), charged: charged}
		charged = 0
		c.begin(cl, req)
		return true
	}
	// Requests of one connection take effect one after the other.
	c.await(0)
	ctx := c.door.ctx
	if row.waits {
		release()
		var done func()
		ctx, done = c.door.park(cost)
		defer done()
	}
	resp := row.handle(c.door, ctx, &c.client, req)
	c.door.cfg.Calls.Request(kmsg.NameForKey(h.key), time.Since(began))
	if resp == nil {
		return false
	}
	if h.key != keyFetch { // it counts itself
		countErrors(c.door.cfg.Calls, kmsg.NameForKey(h.key), resp)
	}
	goOn = c.respond(h.correlation, resp)
	if f, ok := resp.(*fetchResponse); ok && goOn {
		f.readAhead()
	}
	return goOn
}

// park accounts for a request that waits for others. When there is no memory
// for that, the context has ended: it is answered with what there is.
func (d *Door) park(charged int64) (context.Context, func()) {
	if d.budgets.parked.TryAcquire(charged) {
		return d.ctx, func() { d.budgets.parked.Release(charged) }
	}
	ctx, cancel := context.WithCancel(d.ctx)
	cancel()
	return ctx, func() {}
}

// begin starts a call, when there is room for it among those in flight.
func (c *conn) begin(cl *call, req kmsg.Request) {
	c.await(c.door.cfg.MaxInFlight - 1)
	c.mu.Lock()
	c.calls = append(c.calls, cl)
	c.mu.Unlock()
	cl.api.start(c.door, &c.client, req, cl.frame, func(o outcome) { c.answered(cl, o) })
}

// await waits until at most n calls are unanswered, and for n = 0 until their
// answers are written.
func (c *conn) await(n int) {
	c.mu.Lock()
	for len(c.calls) > n || n == 0 && c.writing {
		c.changed.Wait()
	}
	c.mu.Unlock()
}

// ended logs why a connection ends, if it is worth it.
func (c *conn) ended(err error) {
	late := errors.Is(err, os.ErrDeadlineExceeded)
	switch {
	case c.door.ctx.Err() != nil:
	case errors.Is(err, errFrame):
		c.drop(dropBadFrame, "err", err)
	case late && errors.Is(err, errBegun):
		c.drop(dropSlowSender)
	case late:
		c.drop(dropIdle)
	default:
		// The client closed it, or the network did.
	}
}

// drop counts and logs a connection that the node closes by itself.
func (c *conn) drop(reason string, args ...any) {
	c.door.cfg.Traffic.Dropped(reason)
	c.door.cfg.Logger.Debug("Kafka connection closed", append([]any{"reason", reason, "client", c.client.host, "id", c.client.id}, args...)...)
}
