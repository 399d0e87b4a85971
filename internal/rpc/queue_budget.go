package rpc

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"

	"connectrpc.com/connect"

	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
)

// budget bounds the bytes of requests and answers of the queue services that are in
// memory at one time, those that are decoded counted once.
type budget struct {
	mu    sync.Mutex
	used  int64
	limit int64
	freed chan struct{} // closed and made anew when something was released that somebody waits for
	waits bool
}

func newBudget(limit int64) *budget { return &budget{limit: limit, freed: make(chan struct{})} }

// take reserves n bytes if there is room.
func (b *budget) take(n int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.used+n > b.limit {
		return false
	}
	b.used += n
	return true
}

// charge counts n bytes that are there already, whether there is room or not. Who
// has charged waits for room before he has more.
func (b *budget) charge(n int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used += n
}

func (b *budget) release(n int64) {
	if n == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= n
	if b.waits {
		close(b.freed)
		b.freed, b.waits = make(chan struct{}), false
	}
}

// wait returns once there is room, or ctx has ended.
func (b *budget) wait(ctx context.Context) error {
	for {
		b.mu.Lock()
		full, freed := b.used >= b.limit, b.freed
		b.waits = b.waits || full
		b.mu.Unlock()
		if !full {
			return ctx.Err()
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

type bodyKey struct{}

// queueBody is a request's body: it takes from the budget what is read, and ends at
// limit bytes since the last spent.
type queueBody struct {
	io.ReadCloser
	budget *budget
	limit  int64
	taken  int64
}

// bodies gives the queue services' requests bodies of at most limit bytes that are on
// the budget until the request is answered. Of a stream each frame is.
func bodies(next http.Handler, b *budget, limit int64) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := &queueBody{ReadCloser: r.Body, budget: b, limit: limit}
		defer body.spent()
		r.Body = body
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), bodyKey{}, body)))
	})
}

func (b *queueBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	switch {
	case b.taken+int64(n) > b.limit:
		d := &tubev1.QueueErrorDetail{Reason: tubev1.QueueErrorDetail_MESSAGE_TOO_LARGE}
		return 0, queueError(connect.CodeResourceExhausted, d, fmt.Errorf("the request is larger than %d bytes; send less at a time", b.limit))
	case !b.budget.take(int64(n)):
		d := &tubev1.QueueErrorDetail{Reason: tubev1.QueueErrorDetail_OVERLOADED}
		return 0, queueError(connect.CodeResourceExhausted, d, errors.New("too much is under way at this node; try again, or at another one"))
	}
	b.taken += int64(n)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		d := &tubev1.QueueErrorDetail{Reason: tubev1.QueueErrorDetail_INVALID_FIELD}
		return n, queueError(connect.CodeInvalidArgument, d, errors.New("the request's body ended before its announced length"))
	}
	return n, err
}

// spent gives back what was read.
func (b *queueBody) spent() {
	b.budget.release(b.taken)
	b.taken = 0
}

// spentBody gives back what was read of ctx's request so far.
func spentBody(ctx context.Context) {
	if b, ok := ctx.Value(bodyKey{}).(*queueBody); ok {
		b.spent()
	}
}
