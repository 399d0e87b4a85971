package tube

import (
	"container/list"
	"context"
	"errors"
	"sync"
)

// Dedupe confirms messages that were handled already, by the ids of the last n that
// this process handled without an error; a message without an id is known by its place.
// A repeat that comes while the first one is handled waits for it. It is about memory of
// this process only: what must hold beyond it belongs into the handler's transaction, or
// is the topic setting tube.dedupe.window.
func Dedupe(n int) Middleware {
	s := &seen{max: max(n, 1), at: map[any]*list.Element{}, busy: map[any]chan struct{}{}}
	return func(next Handler) Handler {
		return func(ctx context.Context, m *Message) error {
			var id any = m.ID
			if m.ID == "" {
				id = m.place()
			}
			done, err := s.begin(ctx, id)
			if done || err != nil {
				return err
			}
			err = errors.New("the handler did not return") // it panics
			defer func() { s.end(id, err == nil) }()
			err = next(ctx, m)
			return err
		}
	}
}

// seen are the ids that were handled last.
type seen struct {
	mu   sync.Mutex
	max  int
	list list.List // of ids, the latest first
	at   map[any]*list.Element
	busy map[any]chan struct{} // being handled; closed when that ends
}

// begin says whether id is done with; if not it is the caller's to handle until end.
func (s *seen) begin(ctx context.Context, id any) (done bool, err error) {
	for {
		s.mu.Lock()
		if e := s.at[id]; e != nil {
			s.list.MoveToFront(e)
			s.mu.Unlock()
			return true, nil
		}
		busy := s.busy[id]
		if busy == nil {
			s.busy[id] = make(chan struct{})
			s.mu.Unlock()
			return false, nil
		}
		s.mu.Unlock()
		select {
		case <-busy:
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
}

func (s *seen) end(id any, done bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.busy[id])
	delete(s.busy, id)
	if !done {
		return
	}
	s.at[id] = s.list.PushFront(id)
	if s.list.Len() > s.max {
		delete(s.at, s.list.Remove(s.list.Back()))
	}
}
