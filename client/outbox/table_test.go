package outbox

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	_ "modernc.org/sqlite"

	tube "github.com/tube-mq/tube/client"
)

func database(t *testing.T) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(t.TempDir(), "app.db")+"?_pragma=busy_timeout(10000)&_pragma=journal_mode(wal)&_txlock=immediate")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func newTable(t *testing.T, db *sql.DB, cfg TableConfig) *Table {
	t.Helper()
	x, err := NewTable(db, SQLite, cfg)
	if err == nil {
		err = x.CreateTable(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// enqueue puts messages into the outbox in one transaction.
func enqueue(t *testing.T, x *Table, commit bool, ids ...string) {
	t.Helper()
	tx, err := x.db.Begin()
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		if err := x.Enqueue(t.Context(), tx, &tube.Outgoing{Topic: "orders", Value: []byte(id), ID: id}); err != nil {
			t.Fatal(err)
		}
	}
	if commit {
		err = tx.Commit()
	} else {
		err = tx.Rollback()
	}
	if err != nil {
		t.Fatal(err)
	}
	x.Wake()
}

func (s *sink) relayTable(t *testing.T, x *Table, until func() bool) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- x.Relay(ctx, s, nil) }()
	poll(t, until)
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}

func pendingIn(t *testing.T, x *Table) string {
	t.Helper()
	w, r, err := x.Pending(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(w, " ", r)
}

// What is enqueued is sent if and only if its transaction commits, in order, once.
func TestATableSendsWhatCommits(t *testing.T) {
	x := newTable(t, database(t), TableConfig{Batch: 7, Poll: time.Hour})
	enqueue(t, x, true, numbers(20)...)
	enqueue(t, x, false, "no", "never")
	to := &sink{}
	to.relayTable(t, x, func() bool { return len(to.got()) == 20 && pendingIn(t, x) == "0 0" })
	enqueue(t, x, true, "20")
	to.relayTable(t, x, func() bool { return len(to.got()) == 21 && pendingIn(t, x) == "0 0" })
	if got := to.got(); !slices.Equal(got, numbers(21)) {
		t.Errorf("%v", got)
	}
	for id, n := range to.seen {
		if n != 1 {
			t.Errorf("%s was sent %d times", id, n)
		}
	}
}

// What fails is sent again, with the same id; what is refused stays, with the reason.
func TestATableTriesAgain(t *testing.T) {
	var told []string
	x := newTable(t, database(t), TableConfig{Refused: func(m *tube.Outgoing, _ error) { told = append(told, m.ID) }})
	enqueue(t, x, true, numbers(10)...)
	down := 2
	to := &sink{fail: func(m *tube.Outgoing) error {
		if m.ID == "4" {
			return fmt.Errorf("no: %w", tube.ErrUnknownTopic)
		}
		if m.ID == "2" && down > 0 {
			down--
			return &tube.Error{Code: "unavailable"}
		}
		return nil
	}}
	to.relayTable(t, x, func() bool { return len(to.got()) == 9 && pendingIn(t, x) == "0 1" })
	var why string
	if err := x.db.QueryRow("SELECT refused FROM tube_outbox").Scan(&why); err != nil || why != "no: unknown topic" || !slices.Equal(told, []string{"4"}) {
		t.Errorf("%q, %v, %v", why, err, told)
	}
	enqueue(t, x, true, "last")
	if err := x.Relay(t.Context(), &sink{fail: func(*tube.Outgoing) error { return tube.ErrClosed }}, nil); !errors.Is(err, tube.ErrClosed) {
		t.Error(err)
	}
}

// A relay that died leaves what it had claimed to the next one, after a while; two
// relays do not send the same.
func TestRelaysShare(t *testing.T) {
	db := database(t)
	x := newTable(t, db, TableConfig{Claim: 100 * time.Millisecond, Poll: 10 * time.Millisecond})
	enqueue(t, x, true, numbers(5)...)
	if rows, err := x.claim(t.Context(), "dies"); err != nil || len(rows) != 5 {
		t.Fatalf("%d, %v", len(rows), err)
	}
	if rows, err := x.claim(t.Context(), "other"); err != nil || len(rows) != 0 {
		t.Fatalf("%d are claimed twice, %v", len(rows), err)
	}
	to := &sink{}
	to.relayTable(t, x, func() bool { return len(to.got()) == 5 && pendingIn(t, x) == "0 0" })

	x = newTable(t, db, TableConfig{Batch: 3, Poll: time.Millisecond})
	enqueue(t, x, true, numbers(100)...)
	to = &sink{}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 3)
	for range 3 {
		go func() { ended <- x.Relay(ctx, to, func(err error) { t.Log(err) }) }()
	}
	poll(t, func() bool { return pendingIn(t, x) == "0 0" })
	cancel()
	if err := errors.Join(<-ended, <-ended, <-ended); err != nil {
		t.Error(err)
	}
	for id, n := range to.seen {
		if n != 1 {
			t.Errorf("%s was sent %d times", id, n)
		}
	}
}

// A relay that comes back under its name begins with what it had claimed, so that the
// order is kept; one that does not takes what is newer first.
func TestARelayComesBack(t *testing.T) {
	for owner, want := range map[string][]string{"it": numbers(9), "": {"5", "6", "7", "8", "0", "1", "2", "3", "4"}} {
		x := newTable(t, database(t), TableConfig{Owner: owner, Batch: 5, Claim: 300 * time.Millisecond, Poll: time.Millisecond})
		enqueue(t, x, true, numbers(9)...)
		if rows, err := x.claim(t.Context(), "it"); err != nil || len(rows) != 5 {
			t.Fatalf("%d, %v", len(rows), err)
		}
		to := &sink{}
		to.relayTable(t, x, func() bool { return pendingIn(t, x) == "0 0" })
		if got := to.got(); !slices.Equal(got, want) {
			t.Errorf("owner %q: %v", owner, got)
		}
	}
}

// The statements of the dialects, as text: only SQLite's run here, the others in
// test/databases.
func TestTheDialectsOfSQL(t *testing.T) {
	for d, want := range map[Dialect][]string{
		SQLite: {"INTEGER PRIMARY KEY AUTOINCREMENT", "message BLOB", "VALUES (?, ?, ?, ?)", "WHERE id IN (SELECT id FROM app.out WHERE refused IS NULL AND claimed_until_ms < ? ORDER BY id LIMIT ?) RETURNING id, message"},
		Postgres: {"BIGSERIAL PRIMARY KEY", "message BYTEA", "VALUES ($1, $2, $3, $4)",
			"UPDATE app.out SET claimed_by = $1, claimed_until_ms = $2 WHERE id = ANY(ARRAY(SELECT id FROM app.out WHERE refused IS NULL AND claimed_until_ms < $3 ORDER BY id LIMIT $4 FOR UPDATE SKIP LOCKED)) RETURNING id, message",
			"SET refused = $1, claimed_by = NULL WHERE id = $2"},
		MySQL: {"BIGINT AUTO_INCREMENT PRIMARY KEY", "message LONGBLOB", "VALUES (?, ?, ?, ?)",
			"SELECT id, message FROM app.out WHERE refused IS NULL AND claimed_until_ms < ? ORDER BY id LIMIT ? FOR UPDATE SKIP LOCKED", "CHARACTER SET utf8mb4"},
	} {
		q, err := d.queries("app.out")
		if err != nil {
			t.Fatal(err)
		}
		all := strings.Join(append(q.create, q.insert, q.claim, q.take, q.claimed, q.renew, q.unclaim, q.remove, q.refuse, q.count), "\n")
		for _, w := range want {
			if !strings.Contains(all, w) {
				t.Errorf("%d: no %q in\n%s", d, w, all)
			}
		}
		if strings.Contains(all, "?") == (d == Postgres) || !slices.Equal(d.Schema("app.out"), q.create) {
			t.Errorf("%d:\n%s", d, all)
		}
	}
	if _, err := NewTable(nil, SQLite, TableConfig{Owner: strings.Repeat("x", 65)}); err == nil {
		t.Error("an owner's name is longer than its column")
	}
	for _, bad := range []string{"a b", "a;drop", "a.b.c", "1a"} {
		if _, err := NewTable(nil, SQLite, TableConfig{Name: bad}); err == nil {
			t.Errorf("%q is a table's name", bad)
		}
	}
	if _, err := NewTable(nil, 9, TableConfig{}); err == nil {
		t.Error("9 is a dialect")
	}
}
