package kafka

import (
	"time"

	"github.com/tube-mq/tube/internal/record"
)

// call is one request that is answered later (see api.start). Calls of a
// connection are answered in the order of their requests.
type call struct {
	api         *api
	version     int16
	correlation int32
	began       time.Time
	frame       *record.Buffer
	charged     int64 // bytes of the request budget

	// Guarded by conn.mu.
	answered bool
	out      outcome
}
