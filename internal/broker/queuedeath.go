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
	running bool
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
	if !r.running {
		r.running = true
		d.g.q.goes(r.run)
	}
}

func (r *deathRow) run() {
	for {
		r.mu.Lock()
		n := min(len(r.list), deathsAtOnce)
		if n == 0 {
			r.list, r.running = nil, false
			r.mu.Unlock()
			return
		}
		batch := r.list[:n:n]
		r.list = r.list[n:]
		r.mu.Unlock()
		var all sync.WaitGroup
		for _, x := range batch {
			all.Go(x.write)
		}
		all.Wait()
	}
}

// write writes one dead letter and tells the desk.
func (x death) write() {
	g := x.d.g
	err := x.letter()
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

func (x death) letter() error {
	g, p := x.d.g, x.d.p
	g.mu.Lock()
	spec, gone := g.spec, x.d.closed
	g.mu.Unlock()
	if gone {
		return ErrNotLeader
	}
	m, err := messages{p}.one(x.o)
	if errors.Is(err, queue.ErrGone) {
		return nil
	}
	if err != nil {
		return err
	}
	d := queue.DeadLetter{
		Group: g.id, Name: spec.Name, Member: x.d.key.member, Topic: g.topicName(), To: spec.Settings.DeadLetter,
		Source: p.id, Message: m,
	}
	p.machine.mu.Lock()
	d.Attempts, d.Records = p.machine.queues.Attempts(g.id, x.d.key.member, x.o)
	p.machine.mu.Unlock()
	if g.q.hooks.DeadLetters == nil || d.To == "" {
		p.logger.Warn("dead message dropped: its group has no dead-letter topic", "group", uint64(g.id), "offset", int64(x.o), "attempts", d.Attempts)
		return nil
	}
	ctx, cancel := context.WithTimeout(g.q.ctx, deathTimeout)
	defer cancel()
	return g.q.hooks.DeadLetters.Write(ctx, d)
}
