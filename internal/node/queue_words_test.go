package node

import (
	"errors"
	"fmt"
	"testing"

	"github.com/tube-mq/tube/internal/queue"
)

// What another node says of an error is the same each time, and tells what was done
// before it tells why.
func TestAnErrorOfTwoKindsIsToldByTheFirst(t *testing.T) {
	err := fmt.Errorf("%w: the broker: %w", queue.ErrUnavailable, queue.ErrUnknownGroup)
	for range 50 {
		if k := failureToPB(err).GetKind(); k != 1 {
			t.Fatalf("kind %d", k)
		}
	}
	for i, sentinel := range queueFailures {
		if told := failureFromPB(failureToPB(sentinel)); !errors.Is(told, sentinel) {
			t.Errorf("kind %d comes as %v", i+1, told)
		}
	}
	if told := failureFromPB(failureToPB(errors.New("new"))); !errors.Is(told, queue.ErrOutcomeUnknown) {
		t.Errorf("what is not known comes as %v", told)
	}
}
