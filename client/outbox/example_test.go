package outbox_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"

	tube "github.com/tube-mq/tube/client"
	"github.com/tube-mq/tube/client/outbox"
)

// kept stands in for a producer here.
type kept struct{ done chan string }

func (k kept) SendAsync(_ context.Context, m *tube.Outgoing, done func(tube.Result, error)) {
	done(tube.Result{Topic: m.Topic, ID: m.ID}, nil)
	k.done <- string(m.Value)
}

// Messages that are safe on this machine before they are sent.
func ExampleSpool() {
	dir, err := os.MkdirTemp("", "outbox")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	spool, err := outbox.OpenSpool(dir, outbox.SpoolConfig{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer spool.Close()
	// It is durable when Put returns; no node need be there.
	if err := spool.Put(&tube.Outgoing{Topic: "orders", Value: []byte("two coffees")}); err != nil {
		fmt.Println(err)
		return
	}
	// Elsewhere in the program; the sender is a *tube.Producer.
	sender := kept{make(chan string, 1)}
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- spool.Relay(ctx, sender) }()
	fmt.Println(<-sender.done)
	stop()
	fmt.Println(<-ended)
	// Output:
	// two coffees
	// <nil>
}

// A message that is sent if and only if the transaction commits.
func ExampleTable() {
	var db *sql.DB // the application's
	ctx := context.Background()
	table, err := outbox.NewTable(db, outbox.Postgres, outbox.TableConfig{})
	if err != nil {
		fmt.Println(err)
		return
	}
	sell := func() error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if _, err := tx.ExecContext(ctx, "UPDATE stock SET n = n - 2 WHERE item = 'coffee'"); err != nil {
			return err
		}
		if err := table.Enqueue(ctx, tx, &tube.Outgoing{Topic: "orders", Value: []byte("two coffees")}); err != nil {
			return err
		}
		defer table.Wake()
		return tx.Commit()
	}
	_ = sell
	// Elsewhere: go table.Relay(ctx, producer, nil)
}
