package pulse

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Loops that began at different times come round together, however long a round takes.
func TestLoopsMeet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began = time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		var mu sync.Mutex
		moments := map[time.Duration]int{}
		for i := range 5 {
			interval := 100 * time.Millisecond
			if i == 4 {
				interval = 200 * time.Millisecond
			}
			time.Sleep(13 * time.Millisecond)
			go Every(ctx, interval, func() {
				mu.Lock()
				moments[time.Since(began)]++
				mu.Unlock()
				time.Sleep(time.Duration(i) * 7 * time.Millisecond)
			})
			synctest.Wait()
		}
		time.Sleep(time.Second + 50*time.Millisecond - time.Since(began))
		cancel()
		synctest.Wait()
		if len(moments) != 10 {
			t.Errorf("%d moments in a second, want 10: %v", len(moments), moments)
		}
		for at, n := range moments {
			want := 4
			if at%(200*time.Millisecond) == 0 {
				want = 5
			}
			if at%(100*time.Millisecond) != 0 || n != want {
				t.Errorf("%d loops at %v", n, at)
			}
		}
	})
}

// A moment that passed while a round lasted is left out.
func TestMissedMomentsAreLeftOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began = time.Now()
		tick := NewTicker(time.Second)
		defer tick.Stop()
		<-tick.C
		time.Sleep(2500 * time.Millisecond)
		tick.Next(time.Second)
		<-tick.C
		if at := time.Since(began); at != 4*time.Second {
			t.Errorf("ticked at %v", at)
		}
	})
}

// A loop says for itself when it comes round again.
func TestALoopVariesItsInterval(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began = time.Now()
		ctx, cancel := context.WithCancel(t.Context())
		var at []time.Duration
		go Vary(ctx, 100*time.Millisecond, func() time.Duration {
			at = append(at, time.Since(began))
			if len(at) < 3 {
				return 100 * time.Millisecond
			}
			return Calm
		})
		time.Sleep(2*Calm + Calm/2)
		cancel()
		synctest.Wait()
		want := []time.Duration{100 * time.Millisecond, 200 * time.Millisecond, 300 * time.Millisecond, Calm, 2 * Calm}
		if !slices.Equal(at, want) {
			t.Errorf("came round at %v, want %v", at, want)
		}
	})
}
