package outbox

import (
	"context"
	"errors"
	"fmt"
	"time"

	tube "github.com/tube-mq/tube/client"
)

// Of what is read and not confirmed; it is in memory.
const (
	windowMessages = 5000
	windowBytes    = 32 << 20
	// saveBytes are confirmed before it is written down how far that is. After a crash
	// they are sent again.
	saveBytes = 1 << 20
)

// relaying is one call of Spool.Relay. One goroutine has it; the sender's callbacks put
// answers into a channel that has room for all.
type relaying struct {
	s       *Spool
	sender  Sender
	at      cursor  // read up to here
	floor   cursor  // confirmed up to here
	window  []*item // read and not confirmed all, in order
	bytes   int     // of window
	out     int     // sent and not answered
	failed  int     // answered with what may pass
	unsaved int     // bytes confirmed since floor was written down
	answers chan answer
}

// item is a message that was read.
type item struct {
	m    *tube.Outgoing
	size int
	next cursor // behind it
	done bool   // confirmed, or set aside
}

type answer struct {
	item *item
	err  error
}

// Relay sends what is in the spool until ctx ends, and forgets what is confirmed. One
// runs at a time. It returns nil when ctx has ended, and an error if the spool cannot be
// read or written, or the sender is closed.
func (s *Spool) Relay(ctx context.Context, sender Sender) error {
	s.mu.Lock()
	if s.relayed {
		s.mu.Unlock()
		return errors.New("outbox: the spool has a relay already")
	}
	s.relayed = true
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.relayed = false
	}()
	r := &relaying{s: s, sender: sender, answers: make(chan answer, windowMessages)}
	r.at = s.loadCursor()
	r.floor = r.at
	sending, cancel := context.WithCancel(ctx)
	defer cancel()
	err := r.run(sending)
	cancel()
	for r.out > 0 { // each is answered, at the latest as its ctx has ended
		err = errors.Join(err, r.take(<-r.answers))
	}
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		err = nil
	}
	r.letGo()
	return errors.Join(err, r.save())
}

func (r *relaying) run(ctx context.Context) error {
	for failures := 0; ; {
		more, err := r.fill(ctx)
		if err != nil {
			return err
		}
		if r.out == 0 && r.failed > 0 {
			if err := pause(ctx, failures); err != nil {
				return err
			}
			failures++
			r.again(ctx)
		}
		select {
		case a := <-r.answers:
			if err := r.take(a); err != nil {
				return err
			}
			if a.err == nil {
				failures = 0
			}
		case <-more:
		case <-ctx.Done():
			return ctx.Err()
		}
		r.letGo()
		if r.unsaved >= saveBytes || len(r.window) == 0 && r.unsaved > 0 {
			if err := r.save(); err != nil {
				return err
			}
		}
	}
}

// fill reads and sends as long as there is something and the window has room. Nothing
// new is sent before what failed. The channel is closed when there is more to read; nil:
// there is no room for more.
func (r *relaying) fill(ctx context.Context) (<-chan struct{}, error) {
	for {
		room := windowMessages - len(r.window)
		if room == 0 || r.bytes >= windowBytes || r.failed > 0 {
			return nil, nil
		}
		items, at, more, err := r.s.read(r.at, room)
		if err != nil {
			return nil, err
		}
		if r.at = at; len(items) == 0 {
			return more, nil
		}
		for _, x := range items {
			r.at = x.next
			r.window = append(r.window, x)
			r.bytes += x.size
			r.send(ctx, x)
		}
	}
}

func (r *relaying) send(ctx context.Context, x *item) {
	r.out++
	r.sender.SendAsync(ctx, x.m, func(_ tube.Result, err error) { r.answers <- answer{x, err} })
}

// again sends what failed, in order.
func (r *relaying) again(ctx context.Context) {
	r.failed = 0
	for _, x := range r.window {
		if !x.done {
			if !x.m.At.After(time.Now()) {
				x.m.At = time.Time{} // it has passed meanwhile
			}
			r.send(ctx, x)
		}
	}
}

func (r *relaying) take(a answer) error {
	r.out--
	switch {
	case a.err == nil:
		a.item.done = true
	case errors.Is(a.err, tube.ErrClosed):
		return fmt.Errorf("outbox: relay: the sender is closed: %w", a.err)
	case isRefused(a.err):
		if err := r.s.refuse(a.item.m, a.err); err != nil {
			return err
		}
		a.item.done = true
	default:
		r.failed++
	}
	return nil
}

// letGo moves the floor over what is done.
func (r *relaying) letGo() {
	for len(r.window) > 0 && r.window[0].done {
		x := r.window[0]
		r.window[0] = nil
		r.window = r.window[1:]
		r.floor = x.next
		r.bytes -= x.size
		r.unsaved += x.size
	}
	if len(r.window) == 0 {
		r.window, r.floor = nil, r.at // a new file may have begun
	}
}

// save writes the floor down and removes the files before it.
func (r *relaying) save() error {
	r.unsaved = 0
	if err := r.s.saveCursor(r.floor); err != nil {
		return err
	}
	return r.s.removeBefore(r.floor.File)
}
