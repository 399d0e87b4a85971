package outbox

import (
	"fmt"
	"strings"
)

// Dialect of SQL.
type Dialect int

// The dialects that a Table speaks.
const (
	SQLite   Dialect = iota + 1 // 3.24 or newer
	Postgres                    // 9.5 or newer, with $1 for parameters, as pgx and lib/pq want them
	MySQL                       // 8.0.1 or newer, and MariaDB 10.6 or newer
)

// queries of a table, in a dialect.
type queries struct {
	create  []string
	insert  string // message id, topic, message, now
	claim   string // token, until, now, how many
	claimed string // token
	unclaim string // token
	remove  string // id
	refuse  string // why, id
	count   string
}

// Schema is what makes a table of that name, statement by statement.
func (d Dialect) Schema(table string) []string {
	q, err := d.queries(table)
	if err != nil {
		return nil
	}
	return q.create
}

func (d Dialect) queries(table string) (queries, error) {
	var id, blob, text, when string
	switch d {
	case SQLite:
		id, blob, text, when = "INTEGER PRIMARY KEY AUTOINCREMENT", "BLOB", "TEXT", "INTEGER"
	case Postgres:
		id, blob, text, when = "BIGSERIAL PRIMARY KEY", "BYTEA", "TEXT", "BIGINT"
	case MySQL:
		id, blob, text, when = "BIGINT AUTO_INCREMENT PRIMARY KEY", "LONGBLOB", "TEXT", "BIGINT"
	default:
		return queries{}, fmt.Errorf("outbox: %d is no dialect", d)
	}
	q := queries{
		create: []string{fmt.Sprintf("CREATE TABLE IF NOT EXISTS %s (id %s, message_id VARCHAR(256) NOT NULL, topic VARCHAR(256) NOT NULL, message %s NOT NULL, created_ms %s NOT NULL, claimed_by VARCHAR(64), claimed_until_ms %s NOT NULL DEFAULT 0, refused %s)",
			table, id, blob, when, when, text)},
		insert:  "INSERT INTO " + table + " (message_id, topic, message, created_ms) VALUES (?, ?, ?, ?)",
		claimed: "SELECT id, message FROM " + table + " WHERE claimed_by = ? AND refused IS NULL ORDER BY id",
		unclaim: "UPDATE " + table + " SET claimed_by = NULL, claimed_until_ms = 0 WHERE claimed_by = ?",
		remove:  "DELETE FROM " + table + " WHERE id = ?",
		refuse:  "UPDATE " + table + " SET refused = ?, claimed_by = NULL WHERE id = ?",
		count:   "SELECT COUNT(*) - COUNT(refused), COUNT(refused) FROM " + table,
	}
	const free = "refused IS NULL AND claimed_until_ms < ? ORDER BY id LIMIT ?"
	set := "UPDATE " + table + " SET claimed_by = ?, claimed_until_ms = ? WHERE "
	switch d {
	case MySQL: // no subquery of the table that is updated, but a limit
		q.claim = set + free
	case Postgres: // relays do not wait for each other
		q.claim = set + "id IN (SELECT id FROM " + table + " WHERE " + free + " FOR UPDATE SKIP LOCKED)"
	default:
		q.claim = set + "id IN (SELECT id FROM " + table + " WHERE " + free + ")"
	}
	if d == Postgres {
		for _, s := range []*string{&q.insert, &q.claim, &q.claimed, &q.unclaim, &q.remove, &q.refuse} {
			*s = numbered(*s)
		}
	}
	return q, nil
}

// numbered writes parameters as $1, $2, …
func numbered(q string) string {
	var b strings.Builder
	n := 0
	for _, c := range q {
		if c == '?' {
			n++
			fmt.Fprintf(&b, "$%d", n)
		} else {
			b.WriteRune(c)
		}
	}
	return b.String()
}
