package broker

import (
	"context"
	"sync"
	"time"

	"github.com/tube-mq/tube/internal/commitlog"
	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/pulse"
	"github.com/tube-mq/tube/internal/record"
)

// retentionClock is the time that retention goes by. A wall clock that jumps
// forward must delete nothing early, so this one starts at the newest time that
// the logs know, advances with the time that the process runs, and catches up
// with a wall clock that is ahead by at most one more second per second. A node
// that was off for a day therefore takes a day to delete what has become too
// old, and an operator has as long to notice a wrong clock as the clock is wrong by.
// A wall clock that is behind is believed at once: that deletes later.
type retentionClock struct {
	mu      sync.Mutex
	known   time.Time     // the clock; zero before the first observation
	running time.Duration // the process's monotonic time at the last observation
}

// atLeast tells the clock of a time that the logs know. It counts only before
// the first observation.
func (c *retentionClock) atLeast(t time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running == 0 && t.After(c.known) {
		c.known = t
	}
}

// observe returns the clock, given the wall clock and how long the process has
// been running.
func (c *retentionClock) observe(wall time.Time, running time.Duration) time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	passed := max(0, running-c.running)
	c.running = max(running, 1)
	switch {
	case c.known.IsZero() || wall.Before(c.known):
		c.known = wall
	default:
		c.known = c.known.Add(passed)
		if ahead := wall.Sub(c.known); ahead > 0 {
			c.known = c.known.Add(min(ahead, passed))
		} else {
			c.known = wall
		}
	}
	return c.known
}

// retentionLoop looks at every partition's retention now and then.
func (b *Broker) retentionLoop(ctx context.Context) {
	pulse.Every(ctx, b.cfg.RetentionInterval, func() {
		now := b.retention.observe(b.clock(), b.running())
		b.queues.expireMembers()
		for _, p := range b.all() {
			if err := p.retain(ctx, now); err != nil && ctx.Err() == nil {
				p.logger.Warn("retention not carried out; will try again", "err", err)
			}
		}
	})
}

// retain moves the log start past what the topic's settings no longer keep.
// Only the leader decides; the others follow the log.
func (p *Partition) retain(ctx context.Context, now time.Time) error {
	cfg := p.config.Load()
	b, err := p.Bounds()
	if err != nil {
		return nil //nolint:nilerr // another replica's work, or damaged and reported
	}
	limits := retentionLimits{p.log, cfg, p.queue.retainFloor()}
	to := limits.start(now, 100)
	p.queue.risk(ctx, now, limits, b.HighWatermark)
	if to <= b.LogStart {
		return nil
	}
	_, err = p.proposeStart(ctx, to)
	return err
}

// retentionLimits say where a log should begin.
type retentionLimits struct {
	log   commitLog
	cfg   *meta.TopicConfig
	floor record.Offset // what retain-until-consumed groups are done with; −1: there are none
}

// start is where the log should begin, were the limits a percentage of what they are.
func (l retentionLimits) start(now time.Time, percent int64) record.Offset {
	part := func(limit int64) int64 {
		if limit < 0 {
			return limit
		}
		return limit/100*percent + limit%100*percent/100
	}
	at := func(age time.Duration, bytes int64) record.Offset {
		return l.log.RetentionCandidate(now, time.Duration(part(int64(age))), part(bytes))
	}
	to := at(l.cfg.Retention, l.cfg.RetentionBytes)
	if l.floor >= 0 && to > l.floor {
		to = max(l.floor, at(l.cfg.QueueRetain, l.cfg.QueueRetainBytes))
	}
	return to
}

// bound keeps a memory log within its size between two looks at retention.
func (p *Partition) bound() {
	m, ok := p.log.(*commitlog.Memory)
	if !ok || !m.Over() || !p.group.Status().Leading || !p.bounding.CompareAndSwap(false, true) {
		return
	}
	go func() {
		defer p.bounding.Store(false)
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		if err := p.retain(ctx, p.broker.clock()); err != nil {
			p.logger.Warn("memory topic not kept within its size; will try again", "err", err)
		}
	}()
}
