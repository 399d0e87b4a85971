package courier

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/queue"
	"github.com/tube-mq/tube/internal/record"
)

// Receive waits up to r.Wait for a first message and returns what is there then.
//
// All nodes that lead partitions of the topic are asked at first for what is there,
// then all at once to wait. The first that has something ends the others' waiting;
// what they give all the same beyond r.Max is released (but see awaitTrusting).
func (c *Courier) Receive(ctx context.Context, r queue.Receiving) ([]queue.Delivery, error) {
	until := time.Now().Add(r.Wait)
	for {
		g, t, err := c.Group(r.Group)
		if err != nil {
			return nil, err
		}
		by, _ := c.Led(t)
		got, err := c.takeOrWait(ctx, g, r, by, time.Until(until))
		if len(got) > 0 || err != nil && !errors.Is(err, queue.ErrUnavailable) {
			return got, err
		}
		left := time.Until(until)
		if left <= 0 || ctx.Err() != nil {
			if err == nil && len(by) == 0 {
				err = fmt.Errorf("%w: no partition of topic %s has a leader", queue.ErrUnavailable, t.Name)
			}
			return nil, err
		}
		if err != nil || len(by) == 0 {
			pause(ctx, min(tryAgain, left))
		}
	}
}

func (c *Courier) takeOrWait(ctx context.Context, g *meta.QueueGroup, r queue.Receiving, by map[record.NodeID][]record.Partition, wait time.Duration) ([]queue.Delivery, error) {
	ids := c.inTurn(by)
	if len(ids) > 1 {
		if at := c.bound(ctx, g, r, ids); at >= 0 {
			ids, wait = []record.NodeID{at}, min(wait, aloneRound)
		}
	}
	if len(ids) == 1 { // the usual case: nobody else to wait for
		n, err := c.cfg.Node(ids[0])
		if err != nil {
			return nil, fmt.Errorf("%w: %w", queue.ErrUnavailable, err)
		}
		r.Wait = max(0, min(wait, round))
		if id := ids[0]; len(by) > 1 {
			return c.receive(ctx, n, id, g, r)
		}
		return c.receive(ctx, n, nobodyElse, g, r)
	}
	got, err := c.take(ctx, g, r, ids)
	if len(got) > 0 || wait <= 0 || c.hands.bound(g.ID, r.Member.Session, ids) >= 0 {
		return got, err
	}
	r.Wait = min(wait, round)
	if g.Settings.AutoAck {
		return c.awaitTrusting(ctx, g, r, ids)
	}
	return c.await(ctx, g, r, ids, r.Max)
}

// aloneRound is how long the node of a message that is alone, or to be alone, in the
// consumer's hand is waited for before it is looked anew what the consumer holds where.
const aloneRound = 100 * time.Millisecond

// bound is the node that alone may give the session anything now, which is looked up
// anew; −1: any may.
func (c *Courier) bound(ctx context.Context, g *meta.QueueGroup, r queue.Receiving, ids []record.NodeID) record.NodeID {
	if c.hands.bound(g.ID, r.Member.Session, ids) < 0 {
		return -1
	}
	r.Max, r.Wait = 0, 0
	for _, id := range ids {
		if n, err := c.cfg.Node(id); err == nil {
			_, _ = c.receiveFrom(ctx, n, id, g, r, 0) // who does not answer holds what it did
		}
	}
	return c.hands.bound(g.ID, r.Member.Session, ids)
}

// nobodyElse stands for a node beside which there is none that a session may hold
// something from.
const nobodyElse record.NodeID = -1

// receiveFrom has a node take messages, knowing what the session holds from others.
func (c *Courier) receiveFrom(ctx context.Context, n Node, id record.NodeID, g *meta.QueueGroup, r queue.Receiving, token uint64) ([]queue.Delivery, error) {
	if id != nobodyElse {
		r.Held = c.hands.elsewhere(g.ID, r.Member.Session, id)
	}
	got, holding, err := n.Receive(ctx, g, r, token)
	if t := c.cfg.Image().Topics[g.Topic]; t != nil {
		for i := range got {
			got[i].Topic = t.Name // nodes leave it to who asks
		}
	}
	if err == nil && id != nobodyElse {
		c.hands.told(g.ID, r.Member.Session, id, holding)
	}
	return got, err
}

// alone picks the message that is to be alone in the consumer's hand, if there is one
// among those that several nodes gave at once, and releases the others.
func (c *Courier) alone(group string, got []queue.Delivery) []queue.Delivery {
	i := slices.IndexFunc(got, func(d queue.Delivery) bool { return d.Alone })
	if i < 0 || len(got) == 1 {
		return got
	}
	c.release(group, slices.Concat(got[:i], got[i+1:]))
	return got[i : i+1]
}

// trustRound is how long one node is waited for before the others are looked at.
const trustRound = 100 * time.Millisecond

// awaitTrusting waits for messages that are done with once they are handed out: as
// none can be given back, all nodes together are asked for no more than is wanted.
// If that is less than one of each, one after the other is.
func (c *Courier) awaitTrusting(ctx context.Context, g *meta.QueueGroup, r queue.Receiving, ids []record.NodeID) ([]queue.Delivery, error) {
	if share := r.Max / len(ids); share > 0 {
		return c.await(ctx, g, r, ids, share)
	}
	n, err := c.cfg.Node(ids[0])
	if err != nil {
		return nil, fmt.Errorf("%w: %w", queue.ErrUnavailable, err)
	}
	r.Wait = min(r.Wait, trustRound)
	return c.receive(ctx, n, ids[0], g, r)
}

// take asks one node after the other for what is there.
func (c *Courier) take(ctx context.Context, g *meta.QueueGroup, r queue.Receiving, ids []record.NodeID) (got []queue.Delivery, err error) {
	r.Wait = 0
	for _, id := range ids {
		n, nerr := c.cfg.Node(id)
		if nerr != nil {
			err = fmt.Errorf("%w: %w", queue.ErrUnavailable, nerr)
			continue
		}
		more, rerr := c.receiveFrom(ctx, n, id, g, r, 0)
		if rerr != nil {
			err = rerr
			continue
		}
		got = append(got, more...)
		r.Max -= len(more)
		for i := range more {
			r.MaxBytes -= size(&more[i])
		}
		if r.Max <= 0 || r.MaxBytes <= 0 || len(more) > 0 && more[0].Alone {
			break
		}
	}
	if len(got) > 0 {
		err = nil
	}
	return got, err
}

// await has all nodes wait at the same time, each for up to share messages.
func (c *Courier) await(ctx context.Context, g *meta.QueueGroup, r queue.Receiving, ids []record.NodeID, share int) (got []queue.Delivery, err error) {
	type answer struct {
		got []queue.Delivery
		err error
	}
	answers := make(chan answer, len(ids))
	// Nobody is cut off in the middle of an answer: what is in it would be lost until
	// its leases run out. They are told to stop instead.
	working, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.Wait+round)
	defer cancel()
	tokens := make([]uint64, len(ids))
	nodes := make([]Node, len(ids))
	asked := 0
	most := r.Max
	r.Max = share
	for i, id := range ids {
		n, nerr := c.cfg.Node(id)
		if nerr != nil {
			err = fmt.Errorf("%w: %w", queue.ErrUnavailable, nerr)
			continue
		}
		nodes[i], tokens[i] = n, c.token.Add(1)
		asked++
		go func() {
			got, err := c.receiveFrom(working, n, id, g, r, tokens[i])
			answers <- answer{got, err}
		}()
	}
	stopped := false
	stop := func() {
		if stopped {
			return
		}
		stopped = true
		for i, n := range nodes {
			if n != nil {
				go n.StopReceiving(working, tokens[i])
			}
		}
	}
	gone := ctx.Done()
	for range asked {
		var a answer
		select {
		case a = <-answers:
		case <-gone:
			gone = nil
			stop()
			a = <-answers
		}
		if a.err != nil {
			err = a.err
		}
		if a.err != nil || len(a.got) > 0 {
			stop()
		}
		got = append(got, a.got...)
	}
	if ctx.Err() != nil {
		c.release(g.Name, got)
		return nil, ctx.Err()
	}
	got = c.alone(g.Name, got)
	if len(got) > most {
		c.release(g.Name, got[most:])
		got = got[:most]
	}
	if len(got) > 0 {
		err = nil
	}
	return got, err
}

// receive is a single node's Receive, ended without losing what it gives.
func (c *Courier) receive(ctx context.Context, n Node, id record.NodeID, g *meta.QueueGroup, r queue.Receiving) ([]queue.Delivery, error) {
	token := c.token.Add(1)
	working, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.Wait+round)
	defer cancel()
	defer context.AfterFunc(ctx, func() { n.StopReceiving(working, token) })()
	got, err := c.receiveFrom(working, n, id, g, r, token)
	if ctx.Err() != nil {
		c.release(g.Name, got)
		return nil, ctx.Err()
	}
	return got, err
}

// release gives back what nobody takes any more. It is not waited for: should it
// fail, the leases run out.
func (c *Courier) release(group string, list []queue.Delivery) {
	if len(list) == 0 {
		return
	}
	s := make([]queue.Settlement, len(list))
	for i := range list {
		s[i] = queue.Settlement{Lease: list[i].Lease, Verdict: queue.Release}
	}
	go func() { _, _ = c.Settle(context.Background(), group, s) }()
}

func size(d *queue.Delivery) int {
	n := len(d.Key) + len(d.Value)
	for i := range d.Headers {
		n += len(d.Headers[i].Key) + len(d.Headers[i].Value)
	}
	return n
}
