package kafka

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestProducersGetIdsOfTheirOwn(t *testing.T) {
	eachGroupVersion(t, 22, func(t *testing.T, v int16) {
		d := newAdminDoor(t)
		seen := map[int64]bool{}
		for range 3 {
			req := kmsg.NewPtrInitProducerIDRequest()
			req.ProducerID, req.ProducerEpoch = 0, 5 // what an idempotent producer brings means nothing
			r := askAdmin[*kmsg.InitProducerIDResponse](d, v, req)
			wantGroupCode(t, r.ErrorCode, nil)
			if seen[r.ProducerID] || r.ProducerID < 0 || r.ProducerEpoch != 0 {
				t.Fatalf("producer %d, epoch %d after %v", r.ProducerID, r.ProducerEpoch, seen)
			}
			seen[r.ProducerID] = true
		}
	})
}

func TestTransactionsAreRefusedForGood(t *testing.T) {
	eachGroupVersion(t, 22, func(t *testing.T, v int16) {
		d := newAdminDoor(t)
		for _, id := range []string{"tx", ""} {
			req := kmsg.NewPtrInitProducerIDRequest()
			req.TransactionalID = &id
			r := askAdmin[*kmsg.InitProducerIDResponse](d, v, req)
			code := kerr.TypedErrorForCode(r.ErrorCode)
			if code != kerr.TransactionalIDAuthorizationFailed || code.Retriable || r.ProducerID != -1 || r.ProducerEpoch != -1 {
				t.Fatalf("%v, producer %d, epoch %d", code, r.ProducerID, r.ProducerEpoch)
			}
		}
	})
}

func TestProducersRetryWhileNobodyDecides(t *testing.T) {
	d := newAdminDoor(t)
	d.meta.err = errors.New("no leader")
	r := askAdmin[*kmsg.InitProducerIDResponse](d, 5, kmsg.NewPtrInitProducerIDRequest())
	if !kerr.TypedErrorForCode(r.ErrorCode).Retriable || r.ProducerID != -1 {
		t.Fatalf("%+v", r)
	}
	d.meta.err = nil
	wantGroupCode(t, askAdmin[*kmsg.InitProducerIDResponse](d, 5, kmsg.NewPtrInitProducerIDRequest()).ErrorCode, nil)
	// Nobody waits for longer than the bound.
	synctest.Test(t, func(t *testing.T) {
		d := newAdminDoor(t)
		d.meta.wait = true
		began := time.Now()
		r := askAdmin[*kmsg.InitProducerIDResponse](d, 5, kmsg.NewPtrInitProducerIDRequest())
		if !kerr.TypedErrorForCode(r.ErrorCode).Retriable || time.Since(began) != maxAdminWait {
			t.Fatalf("%+v after %v", r, time.Since(began))
		}
	})
}
