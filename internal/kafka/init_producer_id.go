package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// initProducerID gives an idempotent producer an id that no other ever had,
// with epoch 0. Without a transactional id the id and epoch that a client brings
// (v3+) mean nothing, so it gets a new one as well.
//
// There are no transactions. Of the codes that would say so, the one used here
// is the only one that ends Java's producer, librdkafka and franz-go at once:
// librdkafka retries UNSUPPORTED_VERSION and INVALID_REQUEST forever.
func (d *Door) initProducerID(ctx context.Context, c *client, r kmsg.Request) kmsg.Response {
	req := r.(*kmsg.InitProducerIDRequest)
	resp := req.ResponseKind().(*kmsg.InitProducerIDResponse)
	resp.ProducerID, resp.ProducerEpoch = -1, -1
	if req.TransactionalID != nil {
		d.cfg.Logger.Warn("a client asked for transactions, which this version does not have", "client", c.host, "id", c.id)
		resp.ErrorCode = kerr.TransactionalIDAuthorizationFailed.Code
		return resp
	}
	ctx, cancel := adminContext(ctx, 0)
	defer cancel()
	id, err := d.topics.ProducerID(ctx)
	if err != nil {
		// Retried by every client, with the broker that it has.
		resp.ErrorCode = kerr.CoordinatorLoadInProgress.Code
		return resp
	}
	resp.ProducerID, resp.ProducerEpoch = int64(id), 0
	return resp
}
