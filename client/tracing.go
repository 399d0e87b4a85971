package tube

import (
	"context"
	"crypto/rand"
	"encoding/hex"
)

// TraceHeader is the message header that carries a trace: W3C Trace Context.
const TraceHeader = "traceparent"

// Tracer makes spans; an adapter to a tracing library is a few lines. parent is the
// traceparent that the message came with, empty if it has none. It returns the ctx for
// the handler, the span's own traceparent, which messages sent from the handler carry
// (empty: parent's), and what ends the span.
type Tracer interface {
	StartHandling(ctx context.Context, m *Message, parent string) (out context.Context, traceparent string, end func(error))
}

// Tracing makes a span for each message handled, and lets producers go on with its
// trace: they put the traceparent of the ctx of Send into the message's headers. With
// nil for t it only passes the trace on, with a new span id.
func Tracing(t Tracer) Middleware {
	return func(next Handler) Handler {
		return func(ctx context.Context, m *Message) (err error) {
			parent := m.Headers[TraceHeader]
			if !validTraceparent(parent) {
				parent = ""
			}
			if t == nil {
				if parent != "" {
					ctx = WithTraceparent(ctx, childOf(parent))
				}
				return next(ctx, m)
			}
			ctx, own, end := t.StartHandling(ctx, m, parent)
			if own == "" {
				own = parent
			}
			if own != "" {
				ctx = WithTraceparent(ctx, own)
			}
			defer func() { end(err) }()
			return next(ctx, m)
		}
	}
}

type traceKey struct{}

// WithTraceparent makes producers send traceparent with what is sent under ctx.
func WithTraceparent(ctx context.Context, traceparent string) context.Context {
	return context.WithValue(ctx, traceKey{}, traceparent)
}

// Traceparent is the one of ctx; empty: none.
func Traceparent(ctx context.Context) string {
	v, _ := ctx.Value(traceKey{}).(string)
	return v
}

// validTraceparent: version, trace id, span id and flags, in hexadecimal.
func validTraceparent(s string) bool {
	if len(s) < 55 || s[2] != '-' || s[35] != '-' || s[52] != '-' {
		return false
	}
	_, err := hex.DecodeString(s[:2] + s[3:35] + s[36:52] + s[53:55])
	return err == nil
}

// childOf is the same trace with a new span id.
func childOf(parent string) string {
	var span [8]byte
	_, _ = rand.Read(span[:]) // it does not fail
	return parent[:36] + hex.EncodeToString(span[:]) + parent[52:]
}
