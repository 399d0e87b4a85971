package broker

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/tube-mq/tube/internal/queue"
	"github.com/tube-mq/tube/internal/record"
)

// deathRow writes a partition's dead letters. A message is let go only once its dead
// letter is committed where it goes to; after a failover it is written again, with
// the same message id.
type deathRow struct {
	mu      sync.Mutex
	list    []death // bounded by what the desks know as dying
	writing int
}

type death struct {
	d *desk
	o record.Offset
}

const (
	deathsAtOnce = 16
	deathTimeout = 30 * time.Second
)

func (r *deathRow) add(d *desk, list []record.Offset) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range list {
		r.list = append(r.list, death{d, o})
	}
	r.start()
}

// start has dead letters written, so many at once. The caller holds mu.
func (r *deathRow) start() {
	for r.writing < deathsAtOnce && len(r.list) > 0 {
		x := r.list[0]
		r.list = r.list[1:]
		r.writing++
		x.d.g.q.goes(func() { x.letter(func(err error) { r.written(x, err) }) })
	}
}

// written goes on with the next and tells the desk.
func (r *deathRow) written(x death, err error) {
	r.mu.Lock()
	r.writing--
	r.start()
	r.mu.Unlock()
	g := x.d.g
	g.post(func() {
		if x.d.closed {
			return
		}
		if err != nil {
			x.d.p.logger.Warn("dead letter not written; will try again", "group", uint64(g.id), "offset", int64(x.o), "err", err)
			x.d.DeadFailed(g.q.nowMillis(), x.o, err)
		} else {
			x.d.DeadWritten([]record.Offset{x.o})
		}
		g.carry(x.d, nil)
	})
}

// letter writes a dead letter; done is called when that is committed, or failed.
func (x death) letter(done func(error)) {
	d, err := x.message()
	if err != nil || d == nil {
		done(err)
		return
	}
	q := x.d.g.q
	ctx, cancel := context.WithTimeout(q.ctx, deathTimeout)
	q.hooks.DeadLetters.Write(ctx, *d, func(err error) {
		cancel()
		done(err)
	})
}

// message is the dead letter; nil if there is none to be written.
func (x death) message() (*queue.DeadLetter, error) {
	g, p := x.d.g, x.d.p
	g.mu.Lock()
	spec, gone := g.spec, x.d.closed
	g.mu.Unlock()
	if gone {
		return nil, ErrNotLeader
	}
	m, err := messages{p}.one(x.o)
	if errors.Is(err, queue.ErrGone) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	d := &queue.DeadLetter{
		Group: g.id, Name: spec.Name, Member: x.d.key.member, Topic: g.topicName(), To: spec.Settings.DeadLetter,
		Source: p.id, Message: m,
	}
	p.machine.mu.Lock()
	d.Attempts, d.Records = p.machine.queues.Attempts(g.id, x.d.key.member, x.o)
	p.machine.mu.Unlock()
	if g.q.hooks.DeadLetters == nil || d.To == "" {
		p.logger.Warn("dead message dropped: its group has no dead-letter topic", "group", uint64(g.id), "offset", int64(x.o), "attempts", d.Attempts)
		return nil, nil
	}
	return d, nil
}
