package rpc

import (
	"testing"

	"github.com/tube-mq/tube/internal/queue"
)

// Messages of one answer share what is equal and nothing else.
func TestMessagesOfOneAnswerKeepTheirOwnTimes(t *testing.T) {
	ds := make([]queue.Delivery, 4)
	for i := range ds {
		ds[i] = queue.Delivery{Value: []byte{byte(i)}, TimestampMillis: int64(i/2) * 1000, UntilMillis: int64(i)*1000 + 1}
		ds[i].Lease.Offset = 10
	}
	for i, m := range toMessages(ds) {
		if m.Time.AsTime().UnixMilli() != ds[i].TimestampMillis || m.LeaseUntil.AsTime().UnixMilli() != ds[i].UntilMillis || m.Value[0] != byte(i) {
			t.Errorf("message %d is %v, of %+v", i, m, ds[i])
		}
	}
}
