package ordering

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	tube "github.com/tube-mq/tube/client"
)

func TestNewestAcceptsOnlyNewer(t *testing.T) {
	n := NewNewest(2)
	for i, x := range []struct {
		key     string
		version int64
		want    bool
	}{{"a", 5, true}, {"a", 5, false}, {"a", 4, false}, {"a", 6, true}, {"b", -1, true}, {"a", 6, false}, {"c", 1, true}, {"b", -1, true}, {"a", 1, true}} {
		if got := n.Accepts(x.key, x.version); got != x.want {
			t.Errorf("%d: %s %d: %v", i, x.key, x.version, got)
		}
		n.Done(x.key, x.version)
	}
}

func version(m *tube.Message) (string, int64, error) {
	v, err := strconv.ParseInt(m.Headers["version"], 10, 64)
	return string(m.Key), v, err
}

func message(key string, v int64) *tube.Message {
	return &tube.Message{Key: []byte(key), Headers: map[string]string{"version": fmt.Sprint(v)}}
}

// Of versions that are handled at the same time an older one never comes after a newer.
func TestNewestWins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var got []int64
		fail := true
		h := tube.Chain(func(_ context.Context, m *tube.Message) error {
			time.Sleep(time.Second)
			mu.Lock()
			defer mu.Unlock()
			_, v, _ := version(m)
			if v == 9 && fail { // does not count
				fail = false
				return errors.New("no")
			}
			got = append(got, v)
			return nil
		}, NewestWins(version, 10))
		var all sync.WaitGroup
		for _, v := range []int64{3, 1, 9, 4, 9, 2, 7} {
			all.Go(func() { _ = h(t.Context(), message("a", v)) })
		}
		all.Wait()
		if !slices.IsSorted(got) || len(got) == 0 || got[len(got)-1] != 9 {
			t.Errorf("%v", got)
		}
		if err := h(t.Context(), &tube.Message{}); err == nil {
			t.Error("no version, no error")
		}
	})
}

// Whatever the order in which versions arrive, and however many fail, each is handled
// once, after all before it, and no more are held back than may.
func TestASequenceHasNoGaps(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 1))
		s := NewSequence[int64](4, 3)
		type one struct {
			key string
			v   int64
		}
		var todo, work []one
		for _, k := range []string{"a", "b", "c"} {
			for v := range int64(20) {
				todo = append(todo, one{k, v + 1})
			}
		}
		r.Shuffle(len(todo), func(i, j int) { todo[i], todo[j] = todo[j], todo[i] })
		last := map[string]int64{}
		held := map[one]bool{}
		for steps := 0; len(todo)+len(work)+len(held) > 0; steps++ {
			if steps > 100_000 {
				t.Fatalf("seed %d: no progress", seed)
			}
			if len(work) > 0 && r.IntN(2) == 0 {
				x := work[0]
				work = work[1:]
				if r.IntN(4) == 0 {
					s.Failed(x.key, x.v)
					todo = append(todo, x)
					continue
				}
				if x.v != last[x.key]+1 {
					t.Fatalf("seed %d: %v after %d", seed, x, last[x.key])
				}
				last[x.key] = x.v
				if item, due := s.Done(x.key, x.v); due {
					n := one{x.key, item}
					if !held[n] || item != x.v+1 {
						t.Fatalf("seed %d: %v is due after %v", seed, item, x)
					}
					delete(held, n)
					work = append(work, n)
				}
				continue
			}
			for n := range held { // in whatever order
				if r.IntN(10) == 0 && s.Withdraw(n.key, n.v) {
					delete(held, n)
					todo = append(todo, n)
				}
				break
			}
			if len(todo) == 0 {
				continue
			}
			x := todo[0]
			todo = todo[1:]
			switch s.Offer(x.key, x.v, x.v) {
			case Now:
				work = append(work, x)
			case Held:
				held[x] = true
			case Full:
				todo = append(todo, x)
			case Old:
				t.Fatalf("seed %d: %v is old", seed, x)
			}
			if len(held) > 4 || s.held != len(held) {
				t.Fatalf("seed %d: %d are held back, it counts %d", seed, len(held), s.held)
			}
		}
		if fmt.Sprint(last) != "map[a:20 b:20 c:20]" || len(s.busy) != 0 {
			t.Fatalf("seed %d: %v, %d busy", seed, last, len(s.busy))
		}
		if s.Offer("a", 20, 0) != Old {
			t.Fatal("what was handled is not old")
		}
	}
}

// Early messages wait for those before them; what waits too long, or has no room, comes
// again.
func TestExactlyNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var got []int64
		h := tube.Chain(func(_ context.Context, m *tube.Message) error {
			mu.Lock()
			defer mu.Unlock()
			_, v, _ := version(m)
			got = append(got, v)
			return nil
		}, ExactlyNext(NextConfig{Version: version, Hold: 3, HoldFor: time.Minute, Again: time.Second,
			First: func(context.Context, string) (int64, error) { return 10, nil }}))
		var all sync.WaitGroup
		for _, v := range []int64{12, 13, 11} {
			all.Go(func() {
				if err := h(t.Context(), message("a", v)); err != nil {
					t.Errorf("%d: %v", v, err)
				}
			})
			synctest.Wait()
		}
		at := time.Now()
		if err := h(t.Context(), message("a", 14)); err == nil || err.Error() != `version 14 of "a" is early: given back for 1s` {
			t.Errorf("%v", err)
		}
		if err := h(t.Context(), message("a", 9)); err != nil {
			t.Errorf("%v", err)
		}
		if err := h(t.Context(), message("a", 10)); err != nil {
			t.Errorf("%v", err)
		}
		all.Wait()
		if fmt.Sprint(got) != "[10 11 12 13]" || time.Since(at) != 0 {
			t.Errorf("%v after %v", got, time.Since(at))
		}
		if err := h(t.Context(), message("a", 20)); err == nil || time.Since(at) != time.Minute {
			t.Errorf("%v after %v", err, time.Since(at))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := h(ctx, message("a", 20)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		if err := h(t.Context(), message("a", 14)); err != nil || got[len(got)-1] != 14 {
			t.Errorf("%v, %v", err, got)
		}
	})
}

func TestAMachineTakesWhatFits(t *testing.T) {
	m := NewMachine[string, string]().On("new", "pay", "paid").On("paid", "ship", "shipped").Done("pay", "paid", "shipped")
	state := "new"
	handle := func(event string) string {
		err := m.Handle(state, event, time.Minute, func(to string) error { state = to; return nil })
		return fmt.Sprint(err)
	}
	for _, x := range []struct{ event, err, state string }{
		{"ship", "state new cannot take ship now: again in 1m0s", "new"},
		{"pay", "<nil>", "paid"},
		{"pay", "<nil>", "paid"},
		{"ship", "<nil>", "shipped"},
		{"fly", "state shipped cannot take fly now: again in 1m0s", "shipped"},
	} {
		if err := handle(x.event); err != x.err || state != x.state {
			t.Errorf("%s: %s, %s", x.event, err, state)
		}
	}
	no := errors.New("no")
	if err := m.Handle("new", "pay", 0, func(string) error { return no }); err != no {
		t.Errorf("%v", err)
	}
}
