package databases

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	tube "github.com/tube-mq/tube/client"
	"github.com/tube-mq/tube/client/outbox"
)

// sink stands in for a producer.
type sink struct {
	mu    sync.Mutex
	ids   []string // in the order they came first
	times map[string]int
	last  map[string]*tube.Outgoing
	fail  func(*tube.Outgoing) error
}

func (s *sink) SendAsync(ctx context.Context, m *tube.Outgoing, done func(tube.Result, error)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := ctx.Err()
	if err == nil && s.fail != nil {
		err = s.fail(m)
	}
	if err == nil {
		if s.times == nil {
			s.times, s.last = map[string]int{}, map[string]*tube.Outgoing{}
		}
		if s.times[m.ID]++; s.times[m.ID] == 1 {
			s.ids = append(s.ids, m.ID)
		}
		s.last[m.ID] = m
	}
	go done(tube.Result{}, err)
}

func (s *sink) got() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.ids)
}

// once fails the test if something was sent more than once.
func (s *sink) once(t *testing.T) {
	t.Helper()
	for id, n := range s.times {
		if n != 1 {
			t.Errorf("%s was sent %d times", id, n)
		}
	}
}

func numbers(prefix string, n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprintf("%s%d", prefix, i))
	}
	return out
}

// table is an outbox with a pool of its own.
func (s *server) table(cfg outbox.TableConfig) (*sql.DB, *outbox.Table) {
	s.t.Helper()
	if cfg.Poll == 0 {
		cfg.Poll = 10 * time.Millisecond
	}
	cfg.Name = s.name
	db := s.open()
	x, err := outbox.NewTable(db, s.dialect, cfg)
	if err == nil {
		err = x.CreateTable(s.t.Context())
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return db, x
}

// enqueue puts messages into the outbox in one transaction.
func enqueue(t *testing.T, db *sql.DB, x *outbox.Table, ids ...string) {
	t.Helper()
	tx := begin(t, db)
	put(t, x, tx, ids...)
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
}

func begin(t *testing.T, db *sql.DB) *sql.Tx {
	t.Helper()
	tx, err := db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback() })
	return tx
}

func put(t *testing.T, x *outbox.Table, tx *sql.Tx, ids ...string) {
	t.Helper()
	for _, id := range ids {
		if err := x.Enqueue(t.Context(), tx, &tube.Outgoing{Topic: "orders", Value: []byte("value of " + id), ID: id}); err != nil {
			t.Fatal(err)
		}
	}
}

// relaying runs a relay; it is ended by what is returned, at the latest with the test.
func relaying(t *testing.T, x *outbox.Table, to outbox.Sender) (end func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- x.Relay(ctx, to, func(err error) {
			if ctx.Err() == nil {
				t.Logf("the relay is told: %v", err)
			}
		})
	}()
	end = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(end)
	return end
}

// empty waits until nothing is left to be sent.
func empty(t *testing.T, x *outbox.Table) {
	t.Helper()
	eventually(t, func() error {
		w, r, err := x.Pending(t.Context())
		if err == nil && w+r > 0 {
			err = fmt.Errorf("%d wait, %d are refused", w, r)
		}
		return err
	})
}

// What is enqueued is sent, once and in order, if and only if the application's
// transaction commits.
func whatCommitsIsSent(t *testing.T, s *server) {
	db, x := s.table(outbox.TableConfig{Batch: 7})
	if _, err := db.Exec("CREATE TABLE stock (item VARCHAR(20) PRIMARY KEY, n BIGINT)"); err != nil {
		t.Fatal(err)
	}
	for i, id := range numbers("sold ", 20) {
		tx := begin(t, db)
		if _, err := tx.Exec(fmt.Sprintf("INSERT INTO stock VALUES ('%d', 1)", i)); err != nil {
			t.Fatal(err)
		}
		put(t, x, tx, id)
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		back := begin(t, db)
		put(t, x, back, "given up "+id)
		if _, err := back.Exec(fmt.Sprintf("INSERT INTO stock VALUES ('%d', 1)", i)); err == nil {
			t.Fatal("the stock has an item twice")
		}
		if err := back.Rollback(); err != nil {
			t.Fatal(err)
		}
	}
	// A program that dies in the middle has not committed either.
	dies := s.open()
	put(t, x, begin(t, dies), "died")
	s.hangUpAll(db)
	to := &sink{}
	end := relaying(t, x, to)
	empty(t, x)
	enqueue(t, db, x, "last")
	empty(t, x)
	end()
	if got, want := to.got(), append(numbers("sold ", 20), "last"); !slices.Equal(got, want) {
		t.Errorf("%v\n%v", got, want)
	}
	to.once(t)
}

// A message comes out of the database as it was put in, and an error that is any bytes
// is noted.
func anyBytesAreKept(t *testing.T, s *server) {
	db, x := s.table(outbox.TableConfig{})
	every := make([]byte, 1<<20)
	for i := range every {
		every[i] = byte(i)
	}
	m := &tube.Outgoing{Topic: "orders", ID: "id ' \\ \u00e4 \U0001F375", Value: every, Key: every[:256], Headers: map[string]string{"h": "\U0001F375"}}
	bad := &tube.Outgoing{Topic: "orders", ID: "bad"}
	tx := begin(t, db)
	if err := x.Enqueue(t.Context(), tx, m, bad); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	why := fmt.Errorf("\xff\x00 %s: %w", strings.Repeat("\U0001F375", 100000), tube.ErrInvalid)
	to := &sink{fail: func(m *tube.Outgoing) error {
		if m.ID == "bad" {
			return why
		}
		return nil
	}}
	relaying(t, x, to)
	eventually(t, func() error {
		if w, r, err := x.Pending(t.Context()); err != nil || w != 0 || r != 1 {
			return fmt.Errorf("%d wait, %d are refused, %v", w, r, err)
		}
		return nil
	})
	if g := to.last[m.ID]; g == nil || string(g.Value) != string(m.Value) || string(g.Key) != string(m.Key) || g.Headers["h"] != m.Headers["h"] || g.Topic != m.Topic {
		t.Errorf("it came out otherwise: %v", to.ids)
	}
}

// Several relays at once send each message once; writers at the same time lose none.
func relaysAndWritersAtOnce(t *testing.T, s *server) {
	db, x := s.table(outbox.TableConfig{Batch: 10})
	to := &sink{}
	for range 3 {
		_, other := s.table(outbox.TableConfig{Batch: 10})
		relaying(t, other, to)
	}
	want := write(t, db, x)
	empty(t, x)
	if got := to.got(); len(got) != want {
		t.Errorf("%d messages were sent, %d committed", len(got), want)
	}
	to.once(t)
}

// write runs writers at once, of which every third transaction is rolled back. It
// returns how many messages were committed, named by writer and number.
func write(t *testing.T, db *sql.DB, x *outbox.Table) int {
	const writers, each = 6, 60
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for i := range each {
				tx, err := db.Begin()
				if err == nil {
					id := fmt.Sprintf("%d/%d", w, i)
					if i%3 == 2 {
						id = "given up " + id
					}
					err = x.Enqueue(context.Background(), tx, &tube.Outgoing{Topic: "orders", ID: id}, &tube.Outgoing{Topic: "orders", ID: id + "+"})
				}
				if err != nil {
					t.Error(err)
					return
				}
				if i%3 == 2 {
					err = tx.Rollback()
				} else {
					err = tx.Commit()
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	return writers * each * 2 * 2 / 3
}

// With one relay each writer's messages keep their order, though its connections break
// and the server is killed in between; what is sent again has the same id.
func oneRelayKeepsTheOrder(t *testing.T, s *server) {
	db, x := s.table(outbox.TableConfig{Batch: 10})
	want := write(t, db, x)
	broken := 0
	to := &sink{}
	to.fail = func(m *tube.Outgoing) error {
		if len(to.ids) >= (broken+1)*want/5 && broken < 4 {
			broken++
			switch broken {
			case 1, 3: // between the claim and what notes that it was sent
				s.hangUpAll(db)
			case 2:
				s.kill()
				s.start()
			}
		}
		return nil
	}
	end := relaying(t, x, to)
	eventually(t, func() error {
		if got := len(to.got()); got != want {
			return fmt.Errorf("%d were sent", got)
		}
		return nil
	})
	empty(t, x)
	end()
	next := map[string]string{}
	for _, id := range to.got() {
		w, n, _ := strings.Cut(id, "/")
		if prev := next[w]; prev != "" && order(prev) >= order(n) {
			t.Fatalf("of writer %s, %s came after %s", w, n, prev)
		}
		next[w] = n
	}
	if broken != 4 {
		t.Errorf("only %d faults", broken)
	}
}

// order of a writer's message.
func order(n string) int {
	var i int
	_, _ = fmt.Sscanf(n, "%d", &i)
	return i*2 + strings.Count(n, "+")
}

// A transaction that has enqueued and does not end holds up neither the relay nor other
// transactions, nor is it held up.
func anOpenTransactionHoldsUpNobody(t *testing.T, s *server) {
	db, x := s.table(outbox.TableConfig{})
	for _, q := range lockTimeouts[s.dialect] {
		if _, err := db.Exec(q); err != nil {
			t.Fatal(err)
		}
	}
	to := &sink{}
	open := begin(t, db)
	put(t, x, open, "open 0")
	_, relays := s.table(outbox.TableConfig{})
	relaying(t, relays, to)
	for i := range 10 {
		enqueue(t, db, x, fmt.Sprintf("other %d", i))
		eventually(t, func() error {
			if got := len(to.got()); got != i+1 {
				return fmt.Errorf("%d were sent", got)
			}
			return nil
		})
		put(t, x, open, fmt.Sprintf("open %d", i+1))
	}
	if err := open.Commit(); err != nil {
		t.Fatal(err)
	}
	empty(t, x)
	if got, want := to.got(), append(numbers("other ", 10), numbers("open ", 11)...); !slices.Equal(got, want) {
		t.Errorf("%v\n%v", got, want)
	}
	to.once(t)
}

// lockTimeouts make who waits for a lock fail at all, in place of after a minute.
var lockTimeouts = map[outbox.Dialect][]string{
	outbox.Postgres: {"ALTER DATABASE postgres SET lock_timeout = '2s'"},
	outbox.MySQL:    {"SET GLOBAL innodb_lock_wait_timeout = 2"},
}

// A relay that cannot note what it has sent sends that again, and takes no more.
func whatCannotBeNotedIsNotPiledUp(t *testing.T, s *server) {
	db, x := s.table(outbox.TableConfig{Batch: 5})
	enqueue(t, db, x, numbers("", 40)...)
	exec := func(q string) {
		t.Helper()
		if _, err := db.Exec(q); err != nil {
			t.Fatal(err)
		}
	}
	for _, q := range noDeleting(s.name)[s.dialect].on {
		exec(q)
	}
	to := &sink{}
	relaying(t, x, to)
	eventually(t, func() error {
		to.mu.Lock()
		defer to.mu.Unlock()
		if to.times["0"] < 4 {
			return fmt.Errorf("sent %d times", to.times["0"])
		}
		return nil
	})
	if got := to.got(); !slices.Equal(got, numbers("", 5)) {
		t.Errorf("%v", got)
	}
	exec(noDeleting(s.name)[s.dialect].off)
	empty(t, x)
	if got := to.got(); !slices.Equal(got, numbers("", 40)) {
		t.Errorf("%v", got)
	}
}

// noDeleting lets nothing be deleted from the outbox.
func noDeleting(table string) map[outbox.Dialect]noDelete {
	return map[outbox.Dialect]noDelete{
		outbox.Postgres: {
			[]string{
				"CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no'; END $$",
				"CREATE TRIGGER no BEFORE DELETE ON " + table + " FOR EACH ROW EXECUTE FUNCTION no()",
			}, "DROP TRIGGER no ON " + table},
		outbox.MySQL: {
			[]string{"CREATE TRIGGER nodelete BEFORE DELETE ON " + table + " FOR EACH ROW SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'no'"},
			"DROP TRIGGER nodelete"},
	}
}

type noDelete struct {
	on  []string
	off string
}

// sendsOnly sends and never says so: what was sent cannot be noted.
type sendsOnly struct{ to outbox.Sender }

func (s sendsOnly) SendAsync(ctx context.Context, m *tube.Outgoing, _ func(tube.Result, error)) {
	s.to.SendAsync(ctx, m, func(_ tube.Result, err error) { fmt.Println("sent", m.ID, err) })
}

// TestMain is also a relay that somebody else kills: see dyingRelay.
func TestMain(m *testing.M) {
	if driver := os.Getenv("DYING_DRIVER"); driver != "" {
		if err := dyingRelay(driver); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
	}
	os.Exit(m.Run())
}

// dyingRelay sends to a node what it claims, tells, and waits for its end.
func dyingRelay(driver string) error {
	db, err := sql.Open(driver, os.Getenv("DYING_DSN"))
	if err != nil {
		return err
	}
	dialect := outbox.Postgres
	if driver == "mysql" {
		dialect = outbox.MySQL
	}
	cfg := dyingConfig
	cfg.Name = os.Getenv("DYING_TABLE")
	x, err := outbox.NewTable(db, dialect, cfg)
	if err != nil {
		return err
	}
	p, err := tube.NewProducer(tube.Servers(os.Getenv("DYING_NODE")))
	if err != nil {
		return err
	}
	return x.Relay(context.Background(), sendsOnly{p}, func(err error) { fmt.Println("failed", err) })
}

var dyingConfig = outbox.TableConfig{Batch: 20, Owner: "the relay", Poll: 10 * time.Millisecond}

// A relay that is killed between sending and noting has its messages sent again with the
// same ids, first and in order, by the one that comes under its name. So a topic that
// looks for repeats has each once, and in order.
func aKilledRelayIsSucceeded(t *testing.T, s *server) {
	n := newNode(t)
	const topic = "orders"
	n.createTopic(t, topic)
	db, x := s.table(dyingConfig)
	tx := begin(t, db)
	for _, id := range numbers("", 30) {
		if err := x.Enqueue(t.Context(), tx, &tube.Outgoing{Topic: topic, ID: id, Key: []byte("one"), Value: []byte(id)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "DYING_DRIVER="+s.driver, "DYING_DSN="+s.dsn(s.dir), "DYING_NODE="+n.http, "DYING_TABLE="+s.name)
	pipe, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	sent := 0
	for lines := bufio.NewScanner(pipe); sent < 20 && lines.Scan(); {
		if !strings.HasPrefix(lines.Text(), "sent ") || !strings.HasSuffix(lines.Text(), "<nil>") {
			t.Errorf("the relay says %s", lines.Text())
			break
		}
		sent++
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if w, _, err := x.Pending(t.Context()); sent != 20 || w != 30 || err != nil {
		t.Fatalf("%d were sent, %d wait, %v", sent, w, err)
	}
	p, err := tube.NewProducer(tube.Servers(n.http))
	if err != nil {
		t.Fatal(err)
	}
	repeats := &repeats{to: p}
	end := relaying(t, x, repeats)
	empty(t, x)
	end()
	if err := p.Close(t.Context()); err != nil && !errors.Is(err, tube.ErrClosed) {
		t.Error(err)
	}
	if repeats.n != 20 {
		t.Errorf("%d repeats were sent", repeats.n)
	}
	if !slices.Equal(repeats.ids, numbers("", 30)) {
		t.Errorf("the next relay sends %v", repeats.ids)
	}
	if got := n.read(t, topic); !slices.Equal(got, numbers("", 30)) {
		t.Errorf("the topic has %v", got)
	}
}

// repeats counts what a node says to have had, and keeps in which order all was sent.
type repeats struct {
	to  outbox.Sender
	mu  sync.Mutex
	n   int
	ids []string
}

func (r *repeats) SendAsync(ctx context.Context, m *tube.Outgoing, done func(tube.Result, error)) {
	r.mu.Lock()
	r.ids = append(r.ids, m.ID)
	r.mu.Unlock()
	r.to.SendAsync(ctx, m, func(x tube.Result, err error) {
		r.mu.Lock()
		if x.Duplicate {
			r.n++
		}
		r.mu.Unlock()
		done(x, err)
	})
}
