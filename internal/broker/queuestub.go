package broker

import (
	"context"
	"errors"

	"github.com/tube-mq/tube/internal/queue"
	"github.com/tube-mq/tube/internal/record"
)

var errNotYet = errors.New("not there yet")

// SetQueueGroups tells which queue groups a topic has. Call it whenever that changes
// in the metadata, for topics with partitions here.
func (b *Broker) SetQueueGroups(QueueTopic) {}

// QueueSend stores messages; each is answered.
func (p *Partition) QueueSend(ctx context.Context, messages []queue.Outgoing) []queue.Sent {
	return nil
}

// QueueReceive hands out messages of all partitions of a topic that are led here.
func (b *Broker) QueueReceive(ctx context.Context, group queue.GroupID, topic record.TopicID, r queue.Receiving) ([]queue.Delivery, error) {
	return nil, errNotYet
}

// QueueSettle settles leases of this partition; each is answered once committed.
func (p *Partition) QueueSettle(ctx context.Context, group queue.GroupID, list []queue.Settlement) []error {
	return nil
}

// QueueSessionGone tells that a consumer's session has ended.
func (b *Broker) QueueSessionGone(session string) {}

// QueueReady returns once a group has begun in this partition.
func (p *Partition) QueueReady(ctx context.Context, group queue.GroupID) error { return errNotYet }

// QueueExplain says why a group does or does not move here; one for each cursor.
func (p *Partition) QueueExplain(group queue.GroupID) ([]queue.Explanation, error) {
	return nil, errNotYet
}

// QueuePending lists what is in hand or failed, by offset from one on.
func (p *Partition) QueuePending(group queue.GroupID, from record.Offset, max int) ([]queue.Pending, error) {
	return nil, errNotYet
}

// QueueDelayed lists what waits for its time, by offset from one on.
func (p *Partition) QueueDelayed(from record.Offset, max int) ([]queue.Delayed, error) {
	return nil, errNotYet
}

// QueueCancel takes messages that wait for their time from all groups.
func (p *Partition) QueueCancel(ctx context.Context, list []record.Offset) []error { return nil }

// QueueReschedule gives a message that waits for its time another.
func (p *Partition) QueueReschedule(ctx context.Context, o record.Offset, dueMillis int64) error {
	return errNotYet
}

// QueueSeek has a group go on elsewhere.
func (p *Partition) QueueSeek(ctx context.Context, group queue.GroupID, to QueueTo) error {
	return errNotYet
}

// QueuePurge makes all that is there now done.
func (p *Partition) QueuePurge(ctx context.Context, group queue.GroupID) error { return errNotYet }

// QueueRetry makes a failed or parked message one that never failed; skip sets it
// aside instead.
func (p *Partition) QueueRetry(ctx context.Context, group queue.GroupID, o record.Offset, skip bool) error {
	return errNotYet
}

// QueueTrace follows a message through all groups.
func (p *Partition) QueueTrace(o record.Offset) ([]QueueTraced, error) { return nil, errNotYet }

// QueueFind looks for the messages of an id.
func (p *Partition) QueueFind(ctx context.Context, id string) ([]record.Offset, error) {
	return nil, errNotYet
}
