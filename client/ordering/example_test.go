package ordering_test

import (
	"fmt"
	"time"

	"github.com/tube-mq/tube/client/ordering"
)

// A consumer that takes what fits the present state, and the rest later.
func ExampleMachine() {
	orders := ordering.NewMachine[string, string]().
		On("new", "paid", "ready").
		On("ready", "shipped", "gone").
		Done("paid", "ready", "gone") // a repeat of "paid" is confirmed

	state := "new" // as the application's database has it
	for _, event := range []string{"shipped", "paid", "paid", "shipped"} {
		err := orders.Handle(state, event, time.Minute, func(to string) error { state = to; return nil })
		fmt.Println(event, "→", state, err)
	}
	// Output:
	// shipped → new state new cannot take shipped now: again in 1m0s
	// paid → ready <nil>
	// paid → ready <nil>
	// shipped → gone <nil>
}
