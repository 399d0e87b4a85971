package outbox

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	tube "github.com/tube-mq/tube/client"
)

// Execer is a *sql.Tx, *sql.Conn or *sql.DB.
type Execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// TableConfig of a Table. The zero value is good.
type TableConfig struct {
	Name  string        // of the table; default "tube_outbox"
	Batch int           // messages that a relay takes at a time; default 500
	Poll  time.Duration // how often a relay looks when nothing woke it; default 1 s
	// Claim is how long messages that a relay has taken are left to it. If it dies
	// another one sends them then. Default 1 min; longer than the producer's DeliverWithin
	// avoids needless repeats.
	Claim time.Duration
	// Owner names the relay, in at most 64 bytes. One that comes back under the same name
	// begins with what it had taken when it died, so that the order is kept. Default: each
	// call of Relay has a name of its own, and what one took that died comes after Claim,
	// behind what is newer. Two that run at the same time must not have one name.
	Owner string
	// Refused is told of what Tube refused for good, once that is noted in the table.
	Refused func(m *tube.Outgoing, why error)
}

// Table keeps messages in a table of a database, see CreateTable. Safe for use by
// several goroutines; several relays, also in several processes, share the messages,
// and then their order is not kept.
type Table struct {
	db    *sql.DB
	cfg   TableConfig
	q     queries
	woken chan struct{}
}

var plainName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,62}(\.[A-Za-z_][A-Za-z0-9_]{0,62})?$`)

// NewTable is an outbox in db, which is reached in one of the dialects.
func NewTable(db *sql.DB, dialect Dialect, cfg TableConfig) (*Table, error) {
	if cfg.Name == "" {
		cfg.Name = "tube_outbox"
	}
	if !plainName.MatchString(cfg.Name) {
		return nil, fmt.Errorf("outbox: %q is no plain name of a table", cfg.Name)
	}
	if len(cfg.Owner) > 64 {
		return nil, fmt.Errorf("outbox: the owner's name has %d bytes; 64 can be", len(cfg.Owner))
	}
	if cfg.Batch <= 0 {
		cfg.Batch = 500
	}
	if cfg.Poll <= 0 {
		cfg.Poll = time.Second
	}
	if cfg.Claim <= 0 {
		cfg.Claim = time.Minute
	}
	q, err := dialect.queries(cfg.Name)
	if err != nil {
		return nil, err
	}
	return &Table{db, cfg, q, make(chan struct{}, 1)}, nil
}

// CreateTable makes the table if it is not there. Whoever manages the schema otherwise
// takes the statement of Dialect.Schema.
func (t *Table) CreateTable(ctx context.Context) error {
	for _, q := range t.q.create {
		if _, err := t.db.ExecContext(ctx, q); err != nil {
			return fmt.Errorf("outbox: create table %s: %w", t.cfg.Name, err)
		}
	}
	return nil
}

// Enqueue puts messages into the outbox as part of tx: they are sent if it commits, and
// only then. A message without an ID is given one, into m. Call Wake after the commit,
// so that a relay of this process need not wait for its next look.
func (t *Table) Enqueue(ctx context.Context, tx Execer, ms ...*tube.Outgoing) error {
	now := time.Now()
	for _, m := range ms {
		b, err := encode(m, now)
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, t.q.insert, m.ID, m.Topic, b, now.UnixMilli()); err != nil {
			return fmt.Errorf("outbox: enqueue message %s: %w", m.ID, err)
		}
	}
	return nil
}

// Wake makes a relay of this Table look at once.
func (t *Table) Wake() {
	select {
	case t.woken <- struct{}{}:
	default:
	}
}

// row is a message that a relay has claimed.
type row struct {
	id  int64
	m   *tube.Outgoing
	bad error // it cannot be read
}

// Relay sends what is in the table until ctx ends, and deletes what is confirmed. It
// returns nil when ctx has ended, and an error if the sender is closed. A database that
// fails is tried again, and fail (nil: nobody) is told.
func (t *Table) Relay(ctx context.Context, sender Sender, fail func(error)) error {
	token := t.cfg.Owner
	if token == "" {
		token = tube.NewID()
	}
	again := true // some may be claimed from before
	for failures := 0; ; {
		n, err := t.relayOnce(ctx, sender, token, again)
		again = err != nil
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, tube.ErrClosed):
			return fmt.Errorf("outbox: relay: the sender is closed: %w", err)
		case err != nil:
			if fail != nil {
				fail(err)
			}
			if pause(ctx, failures) != nil {
				return nil
			}
			failures++
			continue
		}
		if failures = 0; n > 0 {
			continue // there may be more
		}
		timer := time.NewTimer(t.cfg.Poll)
		select {
		case <-timer.C:
		case <-t.woken:
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// relayOnce claims a batch, sends it and forgets what is confirmed. It returns how many
// it claimed; an error if some of them are still to be sent. With again it begins with
// what is claimed by the token already: it was not noted what came of that, or the
// answer to the claim was lost.
func (t *Table) relayOnce(ctx context.Context, sender Sender, token string, again bool) (n int, err error) {
	var rows []row
	if again {
		rows, err = t.claimed(ctx, token)
	}
	if err == nil && len(rows) == 0 {
		rows, err = t.claim(ctx, token)
	}
	if err != nil || len(rows) == 0 {
		return 0, err
	}
	errs := sendAll(ctx, sender, rows)
	// What came of it is written down though ctx has ended.
	wctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	return len(rows), t.note(wctx, rows, errs, token)
}

// note writes down what came of a batch, in one transaction. It returns an error if some
// are still to be sent; those are free for whoever comes first.
func (t *Table) note(ctx context.Context, rows []row, errs []error, token string) (failed error) {
	tx, err := t.db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("outbox: note what was sent: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // after a commit it does nothing
	var refused []int
	var confirmed []int64
	for i, x := range rows {
		var err error
		switch {
		case errs[i] == nil:
			confirmed = append(confirmed, x.id)
		case x.bad != nil || isRefused(errs[i]):
			refused = append(refused, i)
			_, err = tx.ExecContext(ctx, t.q.refuse, asText(errs[i]), x.id)
		case failed == nil:
			failed = fmt.Errorf("outbox: send message %s: %w", x.m.ID, errs[i])
			_, err = tx.ExecContext(ctx, t.q.unclaim+in(idsOf(rows)), token)
		}
		if err != nil {
			return fmt.Errorf("outbox: note what was sent: %w", errors.Join(err, failed))
		}
	}
	if len(confirmed) > 0 {
		if _, err := tx.ExecContext(ctx, t.q.remove+in(confirmed)); err != nil {
			return fmt.Errorf("outbox: note what was sent: %w", errors.Join(err, failed))
		}
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("outbox: note what was sent: %w", errors.Join(err, failed))
	}
	for _, i := range refused {
		if t.cfg.Refused != nil {
			t.cfg.Refused(rows[i].m, errs[i])
		}
	}
	return failed
}

// sendAll sends messages and waits for all answers.
func sendAll(ctx context.Context, sender Sender, rows []row) []error {
	errs := make([]error, len(rows))
	var all sync.WaitGroup
	for i, x := range rows {
		if errs[i] = x.bad; x.bad != nil {
			continue
		}
		all.Add(1)
		sender.SendAsync(ctx, x.m, func(_ tube.Result, err error) {
			errs[i] = err
			all.Done()
		})
	}
	all.Wait()
	return errs
}

// asText is an error as every database takes it, 4 KiB at most.
func asText(err error) string {
	s := err.Error()
	return strings.ReplaceAll(strings.ToValidUTF8(s[:min(len(s), 4<<10)], "\uFFFD"), "\x00", "\uFFFD")
}

// claim marks the next messages as taken and returns them.
func (t *Table) claim(ctx context.Context, token string) ([]row, error) {
	now := time.Now()
	until := now.Add(t.cfg.Claim).UnixMilli()
	var rows []row
	var err error
	if t.q.take != "" {
		rows, err = t.lockAndTake(ctx, token, until, now)
	} else {
		rows, err = readRows(ctx, t.db, now, t.q.claim, token, until, now.UnixMilli(), t.cfg.Batch)
	}
	if err != nil {
		return nil, fmt.Errorf("outbox: claim: %w", err)
	}
	return rows, nil
}

// lockAndTake claims in two statements. At this level of isolation nothing is locked but
// the rows that it returns, no gaps that others want to insert into.
func (t *Table) lockAndTake(ctx context.Context, token string, until int64, now time.Time) ([]row, error) {
	tx, err := t.db.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelReadCommitted})
	if err != nil {
		return nil, err
	}
	defer func() { _ = tx.Rollback() }() // after a commit it does nothing
	rows, err := readRows(ctx, tx, now, t.q.claim, now.UnixMilli(), t.cfg.Batch)
	if err != nil || len(rows) == 0 {
		return nil, err
	}
	if _, err := tx.ExecContext(ctx, t.q.take+in(idsOf(rows)), token, until); err != nil {
		return nil, err
	}
	return rows, tx.Commit()
}

// claimed returns what is claimed by a token already, and renews the claim.
func (t *Table) claimed(ctx context.Context, token string) ([]row, error) {
	now := time.Now()
	rows, err := readRows(ctx, t.db, now, t.q.claimed, token)
	if err == nil && len(rows) > 0 {
		_, err = t.db.ExecContext(ctx, t.q.renew+in(idsOf(rows)), now.Add(t.cfg.Claim).UnixMilli(), token)
	}
	if err != nil {
		return nil, fmt.Errorf("outbox: read what is claimed: %w", err)
	}
	return rows, nil
}

func idsOf(rows []row) []int64 {
	ids := make([]int64, len(rows))
	for i, x := range rows {
		ids[i] = x.id
	}
	return ids
}

// queryer is a *sql.DB or *sql.Tx.
type queryer interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// readRows reads messages, in the order of their ids.
func readRows(ctx context.Context, db queryer, now time.Time, query string, args ...any) ([]row, error) {
	found, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer found.Close()
	var out []row
	for found.Next() {
		var x row
		var b []byte
		if err := found.Scan(&x.id, &b); err != nil {
			return nil, err
		}
		if x.m, x.bad = decode(b, now); x.bad != nil {
			x.m = &tube.Outgoing{}
		}
		out = append(out, x)
	}
	slices.SortFunc(out, func(a, b row) int { return cmp.Compare(a.id, b.id) })
	return out, found.Err()
}

// Pending counts what is to be sent, and what was refused for good.
func (t *Table) Pending(ctx context.Context) (waiting, refused int, err error) {
	if err = t.db.QueryRowContext(ctx, t.q.count).Scan(&waiting, &refused); err != nil {
		return 0, 0, fmt.Errorf("outbox: count: %w", err)
	}
	return waiting, refused, nil
}
