package tube

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"
)

// Handler handles one message. nil: done with. An error: failed, it comes again after
// the group's back-off, and counts towards its limit of attempts; RetryAfter, RetryAt,
// Release, ReleaseAfter and Dead, also wrapped, say something else. The error's text
// goes into the record of attempts. Handlers run at the same time, see Concurrency.
type Handler func(ctx context.Context, m *Message) error

// Middleware puts something around a handler.
type Middleware func(Handler) Handler

// Chain puts middleware around h, the first one outermost.
func Chain(h Handler, m ...Middleware) Handler {
	for i := len(m) - 1; i >= 0; i-- {
		h = m[i](h)
	}
	return h
}

// Retry calls the handler up to attempts times in all, with wait between them, doubled
// each time. Only the last failure is told to the server. What says what is to become
// of the message (RetryAfter, Release, Dead, …) is not tried again.
func Retry(attempts int, wait time.Duration) Middleware {
	return func(next Handler) Handler {
		return func(ctx context.Context, m *Message) error {
			for i, pause := 1, wait; ; i++ {
				err := next(ctx, m)
				var v *verdict
				if err == nil || i >= attempts || errors.As(err, &v) || ctx.Err() != nil {
					return err
				}
				if sleep(ctx, pause) != nil {
					return err
				}
				pause *= 2
			}
		}
	}
}

// Recover makes a panic of the handler an error, with its text, where middleware
// further out can see it. Run does the same with what is not recovered.
func Recover() Middleware {
	return func(next Handler) Handler {
		return func(ctx context.Context, m *Message) (err error) {
			defer func() {
				if p := recover(); p != nil {
					err = &PanicError{Value: p, Stack: debug.Stack()}
				}
			}()
			return next(ctx, m)
		}
	}
}

// PanicError is what Recover makes of a panic.
type PanicError struct {
	Value any
	Stack []byte
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Unwrap gives the panic's value if it was an error.
func (e *PanicError) Unwrap() error { err, _ := e.Value.(error); return err }

// Logging logs each handled message: at debug level if it went well, else at warn.
func Logging(log *slog.Logger) Middleware {
	return func(next Handler) Handler {
		return func(ctx context.Context, m *Message) error {
			at := time.Now()
			err := next(ctx, m)
			level, text := slog.LevelDebug, "handled"
			if err != nil {
				level, text = slog.LevelWarn, "not handled"
			}
			log.Log(ctx, level, text, "message", m.String(), "attempt", m.Attempt, "took", time.Since(at), "err", err)
			return err
		}
	}
}
