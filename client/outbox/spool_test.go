package outbox

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	tube "github.com/tube-mq/tube/client"
)

// sink stands in for a producer: it keeps what it is sent, once for each id.
type sink struct {
	mu   sync.Mutex
	ids  []string // in the order they came first
	seen map[string]int
	ms   []*tube.Outgoing
	fail func(*tube.Outgoing) error
}

func (s *sink) SendAsync(ctx context.Context, m *tube.Outgoing, done func(tube.Result, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := ctx.Err(); err != nil {
		go done(tube.Result{}, err)
		return
	}
	if s.fail != nil {
		if err := s.fail(m); err != nil {
			go done(tube.Result{}, err)
			return
		}
	}
	if s.seen == nil {
		s.seen = map[string]int{}
	}
	if s.seen[m.ID]++; s.seen[m.ID] == 1 {
		s.ids = append(s.ids, m.ID)
		s.ms = append(s.ms, m)
	}
	go done(tube.Result{}, nil)
}

func (s *sink) got() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.ids)
}

func open(t *testing.T, dir string, cfg SpoolConfig) *Spool {
	t.Helper()
	s, err := OpenSpool(dir, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func put(t *testing.T, s *Spool, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		if err := s.Put(&tube.Outgoing{Topic: "orders", Value: []byte("value"), ID: fmt.Sprint(i)}); err != nil {
			t.Fatal(err)
		}
	}
}

// relay relays until the condition holds.
func relay(t *testing.T, s *Spool, to *sink, until func() bool) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Relay(ctx, to) }()
	poll(t, until)
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}

func poll(t *testing.T, until func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !until(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it does not come to that")
		}
	}
}

func numbers(n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprint(i))
	}
	return out
}

// What is put is sent in order, over several files and openings, and forgotten.
func TestASpoolKeepsAndForgets(t *testing.T) {
	dir := t.TempDir()
	cfg := SpoolConfig{FileBytes: 1000}
	s := open(t, dir, cfg)
	put(t, s, 0, 100)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := s.Put(&tube.Outgoing{Topic: "a"}); !errors.Is(err, ErrClosed) {
		t.Errorf("%v", err)
	}
	s = open(t, dir, cfg)
	if _, err := OpenSpool(dir, cfg); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("%v", err)
	}
	put(t, s, 100, 150)
	to := &sink{}
	relay(t, s, to, func() bool { return len(to.got()) == 150 })
	if got := to.got(); !slices.Equal(got, numbers(150)) {
		t.Errorf("%v", got)
	}
	if n := s.Bytes(); n > 1100 {
		t.Errorf("%d bytes are kept", n)
	}
	// Nothing is sent again by the next relay.
	put(t, s, 150, 151)
	relay(t, s, to, func() bool { return len(to.got()) == 151 })
	for id, n := range to.seen {
		if n != 1 {
			t.Errorf("%s was sent %d times", id, n)
		}
	}
}

// A message keeps all that it has; a delay becomes a time.
func TestAMessageIsKeptWhole(t *testing.T) {
	s := open(t, t.TempDir(), SpoolConfig{})
	m := &tube.Outgoing{Topic: "orders", Value: []byte{0, 255}, Key: []byte{}, Headers: map[string]string{"a": "b"}, RawHeaders: []tube.Header{{Name: "r", Value: []byte{255}}}, Delay: time.Hour}
	if err := s.Put(m); err != nil {
		t.Fatal(err)
	}
	to := &sink{}
	relay(t, s, to, func() bool { return len(to.got()) == 1 })
	got := to.ms[0]
	if got.ID == "" || got.ID != m.ID || string(got.Value) != "\x00\xff" || got.Key == nil || got.Headers["a"] != "b" || got.RawHeaders[0].Value[0] != 255 {
		t.Errorf("%+v", got)
	}
	if d := time.Until(got.At); d < 50*time.Minute || d > time.Hour || got.Delay != 0 {
		t.Errorf("%v, %v", got.At, got.Delay)
	}
}

// Whatever a crash leaves of the last write, what was put before is there, and writing
// goes on.
func TestATornTailIsCut(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, SpoolConfig{})
	put(t, s, 0, 3)
	_ = s.Close()
	name := filepath.Join(dir, "0000000001.spool")
	whole, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	two := len(whole) / 3 * 2
	for cut := two; cut < len(whole); cut++ {
		for _, junk := range [][]byte{nil, make([]byte, 100)} {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "0000000001.spool"), append(slices.Clone(whole[:cut]), junk...), 0o644); err != nil {
				t.Fatal(err)
			}
			s := open(t, dir, SpoolConfig{})
			put(t, s, 7, 8)
			to := &sink{}
			relay(t, s, to, func() bool { return len(to.got()) == 3 })
			if got := to.got(); !slices.Equal(got, []string{"0", "1", "7"}) {
				t.Fatalf("cut at %d: %v", cut, got)
			}
			_ = s.Close()
		}
	}
}

// Damage of what was durable is told, with its place, and nothing is changed.
func TestDamageIsNotATornTail(t *testing.T) {
	for _, last := range []bool{true, false} {
		dir := t.TempDir()
		s := open(t, dir, SpoolConfig{})
		put(t, s, 0, 5)
		_ = s.Close()
		name := filepath.Join(dir, "0000000001.spool")
		if last { // the file that a crash would have left
			_ = os.Remove(filepath.Join(dir, "0000000002.spool"))
		} else {
			_ = open(t, dir, SpoolConfig{}).Close()
		}
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		b[len(b)/5+30] ^= 1 // in the second record
		if err := os.WriteFile(name, b, 0o644); err != nil {
			t.Fatal(err)
		}
		_, err = OpenSpool(dir, SpoolConfig{})
		var bad *CorruptError
		if !errors.As(err, &bad) || bad.Offset != int64(len(b)/5) || bad.File != name {
			t.Errorf("%v", err)
		}
		if after, _ := os.ReadFile(name); !slices.Equal(after, b) {
			t.Error("the file was changed")
		}
	}
}

// A failed fsync is not tried again.
func TestAFailedSyncBreaksTheSpool(t *testing.T) {
	s := open(t, t.TempDir(), SpoolConfig{})
	put(t, s, 0, 1)
	fails := 0
	s.sync = func(*os.File) error { fails++; return errors.New("no disk") }
	for range 3 {
		if err := s.Put(&tube.Outgoing{Topic: "a"}); !errors.Is(err, ErrBroken) || !strings.Contains(err.Error(), "no disk") {
			t.Errorf("%v", err)
		}
	}
	if fails != 1 {
		t.Errorf("%d syncs", fails)
	}
	to := &sink{}
	relay(t, s, to, func() bool { return len(to.got()) == 1 }) // what was durable still goes
}

// Those who put at the same time share fsyncs; none returns before its own is done.
func TestPutsShareASync(t *testing.T) {
	s := open(t, t.TempDir(), SpoolConfig{})
	first, hold := make(chan struct{}), make(chan struct{})
	syncs := 0
	s.sync = func(f *os.File) error {
		if syncs++; syncs == 1 {
			close(first)
			<-hold
		}
		return f.Sync()
	}
	var all sync.WaitGroup
	for range 50 {
		all.Go(func() {
			if err := s.Put(&tube.Outgoing{Topic: "a"}); err != nil {
				t.Error(err)
			}
		})
	}
	<-first
	one, err := encode(&tube.Outgoing{Topic: "a"}, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	poll(t, func() bool { return s.Bytes() == int64(50*(headerSize+len(one))) }) // all are written, one syncs
	s.mu.Lock()
	if s.durable != 0 {
		t.Error("durable before the sync")
	}
	s.mu.Unlock()
	close(hold)
	all.Wait()
	if syncs > 2 {
		t.Errorf("%d syncs", syncs)
	}
}

// A full spool refuses, and has room again when messages are confirmed.
func TestASpoolIsBounded(t *testing.T) {
	s := open(t, t.TempDir(), SpoolConfig{MaxBytes: 4000})
	n := 0
	for ; n < 1000; n++ {
		if err := s.Put(&tube.Outgoing{Topic: "a", Value: make([]byte, 50), ID: fmt.Sprint(n)}); errors.Is(err, ErrFull) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if b := s.Bytes(); n == 1000 || b > 4000 || b < 3000 {
		t.Fatalf("%d messages, %d bytes", n, b)
	}
	to := &sink{}
	relay(t, s, to, func() bool { return len(to.got()) == n })
	put(t, s, 0, 10)
}

// What fails for a reason that passes is sent again, before what comes after it; what is
// refused for good is set aside and holds nothing up.
func TestARelayTriesAgain(t *testing.T) {
	dir := t.TempDir()
	var refused []string
	s := open(t, dir, SpoolConfig{Refused: func(m *tube.Outgoing, why error) { refused = append(refused, m.ID) }})
	put(t, s, 0, 20)
	down, stuck := 3, true
	to := &sink{fail: func(m *tube.Outgoing) error {
		switch {
		case m.ID == "5" && stuck:
			return &tube.Error{Code: "unavailable", Message: "for ever"}
		case m.ID == "7":
			return fmt.Errorf("no: %w", tube.ErrMessageTooLarge)
		}
		if down > 0 {
			down--
			return &tube.Error{Code: "unavailable", Message: "down"}
		}
		return nil
	}}
	relay(t, s, to, func() bool { return len(to.got()) == 18 })
	stuck = false
	put(t, s, 20, 21)
	relay(t, s, to, func() bool { return len(to.got()) == 20 })
	if got := to.got(); got[len(got)-1] != "20" || got[len(got)-2] != "5" || !slices.Equal(refused[:1], []string{"7"}) {
		t.Errorf("%v, refused %v", got, refused)
	}
	f, err := os.Open(filepath.Join(dir, "refused.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if in := bufio.NewScanner(f); !in.Scan() || !strings.Contains(in.Text(), `"id":"7","why":"no: message too large"`) {
		t.Errorf("%s", in.Text())
	}
	put(t, s, 21, 22)
	if err := s.Relay(t.Context(), &sink{fail: func(*tube.Outgoing) error { return tube.ErrClosed }}); !errors.Is(err, tube.ErrClosed) {
		t.Error(err)
	}
}

// kill -9 in the middle of writing: all that Put returned for is there.
func TestNothingThatWasPutIsLost(t *testing.T) {
	if dir := os.Getenv("OUTBOX_WRITER"); dir != "" {
		write(dir)
		return
	}
	dir := t.TempDir()
	to := &sink{}
	told := 0
	for round := range 5 {
		cmd := exec.Command(os.Args[0], "-test.run", "^TestNothingThatWasPutIsLost$")
		cmd.Env = append(os.Environ(), "OUTBOX_WRITER="+dir, fmt.Sprint("OUTBOX_ROUND=", round))
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var ids []string
		for in := bufio.NewScanner(out); in.Scan(); {
			if id, ok := strings.CutPrefix(in.Text(), "put "); ok {
				if ids = append(ids, id); len(ids) == 30+round*7 {
					_ = cmd.Process.Kill()
				}
			}
		}
		_ = cmd.Wait()
		told += len(ids)
		s, err := OpenSpool(dir, SpoolConfig{FileBytes: 500})
		if err != nil {
			t.Fatal(err)
		}
		relay(t, s, to, func() bool {
			got := to.got()
			for _, id := range ids {
				if !slices.Contains(got, id) {
					return false
				}
			}
			return true
		})
		_ = s.Close()
	}
	if told < 5*30 {
		t.Errorf("only %d were put: this tests nothing", told)
	}
}

func write(dir string) {
	s, err := OpenSpool(dir, SpoolConfig{FileBytes: 500})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	for i := 0; ; i++ {
		m := &tube.Outgoing{Topic: "a", ID: fmt.Sprintf("%s-%d", os.Getenv("OUTBOX_ROUND"), i)}
		if err := s.Put(m); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println("put", m.ID)
	}
}
