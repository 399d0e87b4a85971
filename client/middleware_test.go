package tube

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestRetryTriesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		h := Chain(func(context.Context, *Message) error {
			if calls++; calls < 3 {
				return errors.New("not yet")
			}
			return nil
		}, Retry(3, time.Second))
		at := time.Now()
		if err := h(t.Context(), &Message{}); err != nil || calls != 3 || time.Since(at) != 3*time.Second {
			t.Errorf("%v after %d calls and %v", err, calls, time.Since(at))
		}
		for _, no := range []error{Release(), Dead("x"), RetryAfter(1)} {
			calls = 0
			h = Chain(func(context.Context, *Message) error { calls++; return no }, Retry(3, time.Second))
			if err := h(t.Context(), &Message{}); !errors.Is(err, no) || calls != 1 {
				t.Errorf("%v after %d calls", err, calls)
			}
		}
	})
}

// Repeats of what was handled are confirmed without the handler; failures are handled
// again; one at a time; of so many ids.
func TestDedupeDropsRepeats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := map[string]int{}
		var fail error
		h := Chain(func(_ context.Context, m *Message) error {
			calls[m.ID]++
			time.Sleep(time.Second) // synctest's
			return fail
		}, Dedupe(2))
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() {
				if err := h(t.Context(), &Message{ID: "a"}); err != nil {
					t.Error(err)
				}
			})
		}
		all.Wait()
		fail = errors.New("no")
		_, _ = h(t.Context(), &Message{ID: "b"}), h(t.Context(), &Message{ID: "b"})
		fail = nil
		for _, id := range []string{"c", "d", "a", "d"} { // a is forgotten
			if err := h(t.Context(), &Message{ID: id}); err != nil {
				t.Error(err)
			}
		}
		if fmt.Sprint(calls) != "map[a:2 b:2 c:1 d:1]" {
			t.Error(calls)
		}
		// By place, where there is no id.
		_, _ = h(t.Context(), &Message{Offset: 1}), h(t.Context(), &Message{Offset: 2})
		if _ = h(t.Context(), &Message{Offset: 1}); calls[""] != 2 {
			t.Error(calls)
		}
	})
}

func TestPerKeyLimitsAKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		now, most := map[string]int{}, map[string]int{}
		h := Chain(func(_ context.Context, m *Message) error {
			mu.Lock()
			now[string(m.Key)]++
			most[string(m.Key)] = max(most[string(m.Key)], now[string(m.Key)])
			mu.Unlock()
			time.Sleep(time.Second)
			mu.Lock()
			defer mu.Unlock()
			now[string(m.Key)]--
			return nil
		}, PerKey(2))
		at := time.Now()
		var all sync.WaitGroup
		for i := range 12 {
			key := []byte("ab"[i%2 : i%2+1])
			if i >= 8 {
				key = nil
			}
			all.Go(func() { _ = h(t.Context(), &Message{Key: key}) })
		}
		all.Wait()
		if fmt.Sprint(most) != "map[:4 a:2 b:2]" || time.Since(at) != 2*time.Second {
			t.Errorf("%v in %v", most, time.Since(at))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second/2)
		defer cancel()
		for range 3 {
			all.Go(func() { _ = h(ctx, &Message{Key: []byte("c")}) })
		}
		all.Wait()
		if most["c"] != 2 {
			t.Error(most)
		}
	})
}

func TestRecoverAndLogging(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))
	cause := errors.New("cause")
	h := Chain(func(_ context.Context, m *Message) error {
		if m.ID == "bad" {
			panic(cause)
		}
		return nil
	}, Logging(log), Recover())
	if err := h(t.Context(), &Message{ID: "good"}); err != nil {
		t.Error(err)
	}
	err := h(t.Context(), &Message{ID: "bad"})
	var p *PanicError
	if !errors.As(err, &p) || !errors.Is(err, cause) || err.Error() != "panic: cause" || !bytes.Contains(p.Stack, []byte("middleware_test")) {
		t.Errorf("%v", err)
	}
	if s := out.String(); !strings.Contains(s, "level=DEBUG msg=handled") || !strings.Contains(s, `level=WARN msg="not handled"`) {
		t.Error(s)
	}
}

type spans struct{ got []string }

func (s *spans) StartHandling(ctx context.Context, m *Message, parent string) (context.Context, string, func(error)) {
	s.got = append(s.got, "start "+parent)
	return ctx, parent[:36] + "00000000000000ff-01", func(err error) { s.got = append(s.got, fmt.Sprint("end ", err)) }
}

// A trace goes from a message through its handler to what the handler sends.
func TestTracesGoOn(t *testing.T) {
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	m := &Message{Headers: map[string]string{TraceHeader: parent}}
	var sent Outgoing
	own := map[string]string{"a": "b"}
	send := func(ctx context.Context, _ *Message) error {
		sent = Outgoing{Headers: own}
		sent.traced(ctx)
		return nil
	}
	s := &spans{}
	if err := Chain(send, Tracing(s))(t.Context(), m); err != nil || fmt.Sprint(s.got) != "[start "+parent+" end <nil>]" {
		t.Errorf("%v, %v", err, s.got)
	}
	if sent.Headers[TraceHeader] != parent[:36]+"00000000000000ff-01" || sent.Headers["a"] != "b" || len(own) != 1 {
		t.Errorf("%v", sent.Headers)
	}
	_ = Chain(send, Tracing(nil))(t.Context(), m)
	if got := sent.Headers[TraceHeader]; !validTraceparent(got) || got[:36] != parent[:36] || got == parent {
		t.Errorf("%v", got)
	}
	for _, bad := range []string{"", "x", parent[:54], strings.Replace(parent, "a", "g", 1)} {
		if validTraceparent(bad) {
			t.Errorf("%q is valid", bad)
		}
	}
}
