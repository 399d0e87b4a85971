package ordering

import (
	"fmt"
	"time"

	tube "github.com/tube-mq/tube/client"
)

// Outcome is what a Machine says of an event.
type Outcome int

// What a Machine may say.
const (
	NotNow  Outcome = iota // the state cannot take the event; another one may
	Move                   // the event leads to the next state
	Already                // the event has had its effect: confirm it
)

// Machine is a table of states and events: which event leads from where to where. Fill
// it, then use it; it does not change any more, so any number of goroutines may.
type Machine[S, E comparable] struct {
	moves   map[step[S, E]]S
	already map[step[S, E]]bool
}

type step[S, E comparable] struct {
	state S
	event E
}

// NewMachine is a table without a move.
func NewMachine[S, E comparable]() *Machine[S, E] {
	return &Machine[S, E]{map[step[S, E]]S{}, map[step[S, E]]bool{}}
}

// On: event leads from one state to another. It returns the machine.
func (m *Machine[S, E]) On(from S, event E, to S) *Machine[S, E] {
	m.moves[step[S, E]{from, event}] = to
	return m
}

// Done: who is in one of these states has had event, and a repeat of it is confirmed.
func (m *Machine[S, E]) Done(event E, states ...S) *Machine[S, E] {
	for _, s := range states {
		m.already[step[S, E]{s, event}] = true
	}
	return m
}

// Next says what event does in a state. The state is unchanged unless it is Move.
func (m *Machine[S, E]) Next(state S, event E) (S, Outcome) {
	if to, ok := m.moves[step[S, E]{state, event}]; ok {
		return to, Move
	}
	if m.already[step[S, E]{state, event}] {
		return state, Already
	}
	return state, NotNow
}

// Handle is Next for a handler of messages: it calls do with the next state on Move,
// confirms what is Already, and has what is NotNow come again after later, which counts:
// after the group's limit it is a dead letter.
func (m *Machine[S, E]) Handle(state S, event E, later time.Duration, do func(to S) error) error {
	to, outcome := m.Next(state, event)
	switch outcome {
	case Move:
		return do(to)
	case Already:
		return nil
	}
	return fmt.Errorf("state %v cannot take %v now: %w", state, event, tube.RetryAfter(later))
}
