package node

import (
	"errors"
	"fmt"
	"reflect"
	"testing"

	"github.com/tube-mq/tube/internal/queue"
)

// Nothing of a lease or a delivery is lost between nodes.
func TestDeliveriesBetweenNodes(t *testing.T) {
	d := queue.Delivery{
		Lease: queue.Lease{Partition: 1, Offset: 2, Attempt: 3, Nonce: 4, Cursor: 5, Generation: 6}, Topic: "orders", ID: "i", Key: []byte("k"), Value: []byte("v"),
		Headers: []queue.Header{{Key: "h", Value: []byte("x")}}, TimestampMillis: 7, UntilMillis: 8, Alone: true,
	}
	if got := deliveriesFromPB("orders", deliveriesToPB([]queue.Delivery{d})); !reflect.DeepEqual(got, []queue.Delivery{d}) {
		t.Errorf("%+v comes as %+v", d, got)
	}
}

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
