package outbox

import (
	"fmt"
	"strconv"
	"strings"
)

// Dialect of SQL.
type Dialect int

// The dialects that a Table speaks.
const (
	SQLite   Dialect = iota + 1 // 3.35 or newer
	Postgres                    // 9.5 or newer, with $1 for parameters, as pgx and lib/pq want them
	MySQL                       // 8.0.1 or newer, and MariaDB 10.6 or newer
)

// queries of a table, in a dialect. Those that end in "IN " want a list, see in.
type queries struct {
	create []string
	insert string // message id, topic, message, now
	// claim takes the next messages and returns them: token, until, now, how many. With
	// take it only finds and locks them: now, how many; then take: token, until, list.
	claim   string
	take    string
	claimed string // token
	renew   string // until, token, list
	unclaim string // token, list
	remove  string // list
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
	var id, blob, text, when, options string
	switch d {
	case SQLite:
		id, blob, text, when = "INTEGER PRIMARY KEY AUTOINCREMENT", "BLOB", "TEXT", "INTEGER"
	case Postgres:
		id, blob, text, when = "BIGSERIAL PRIMARY KEY", "BYTEA", "TEXT", "BIGINT"
	case MySQL:
		id, blob, text, when = "BIGINT AUTO_INCREMENT PRIMARY KEY", "LONGBLOB", "TEXT", "BIGINT"
		options = " CHARACTER SET utf8mb4" // whatever the database's is: ids and errors are any text
	default:
		return queries{}, fmt.Errorf("outbox: %d is no dialect", d)
	}
	q := queries{
		create: []string{fmt.Sprintf("CREATE TABLE IF NOT EXISTS %s (id %s, message_id VARCHAR(256) NOT NULL, topic VARCHAR(256) NOT NULL, message %s NOT NULL, created_ms %s NOT NULL, claimed_by VARCHAR(64), claimed_until_ms %s NOT NULL DEFAULT 0, refused %s)%s",
			table, id, blob, when, when, text, options)},
		insert:  "INSERT INTO " + table + " (message_id, topic, message, created_ms) VALUES (?, ?, ?, ?)",
		claimed: "SELECT id, message FROM " + table + " WHERE claimed_by = ? AND refused IS NULL ORDER BY id",
		renew:   "UPDATE " + table + " SET claimed_until_ms = ? WHERE claimed_by = ? AND id IN ",
		unclaim: "UPDATE " + table + " SET claimed_by = NULL, claimed_until_ms = 0 WHERE claimed_by = ? AND id IN ",
		remove:  "DELETE FROM " + table + " WHERE id IN ",
		refuse:  "UPDATE " + table + " SET refused = ?, claimed_by = NULL WHERE id = ?",
		count:   "SELECT COUNT(*) - COUNT(refused), COUNT(refused) FROM " + table,
	}
	const free = "refused IS NULL AND claimed_until_ms < ? ORDER BY id LIMIT ?"
	set := "UPDATE " + table + " SET claimed_by = ?, claimed_until_ms = ? WHERE id "
	// Nobody waits for another: neither a relay for another relay, nor for a transaction
	// that has not ended, nor a transaction for a relay. So whatever changes rows names
	// their ids: MySQL locks all that it looks at.
	switch d {
	case MySQL: // an UPDATE with a limit would look at what every open transaction has enqueued
		q.claim = "SELECT id, message FROM " + table + " WHERE " + free + " FOR UPDATE SKIP LOCKED"
		q.take = set + "IN "
	case Postgres: // an array, as a plan may run a subquery of IN again for each row
		q.claim = set + "= ANY(ARRAY(SELECT id FROM " + table + " WHERE " + free + " FOR UPDATE SKIP LOCKED)) RETURNING id, message"
	default:
		q.claim = set + "IN (SELECT id FROM " + table + " WHERE " + free + ") RETURNING id, message"
	}
	if d == Postgres {
		for _, s := range []*string{&q.insert, &q.claim, &q.renew, &q.claimed, &q.unclaim, &q.refuse} {
			*s = numbered(*s)
		}
	}
	return q, nil
}

// in is a list of ids.
func in(ids []int64) string {
	b := []byte{'('}
	for i, id := range ids {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, id, 10)
	}
	return string(append(b, ')'))
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
