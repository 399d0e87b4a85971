package rpc

import (
	"context"
	"time"

	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/queue"
	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
)

// QueueBackend is what the queue services call, in four parts. What is asked for is
// within the contract's limits already, groups and topics excepted: those are looked
// up where the call is carried out. Errors are the sentinels of queue, meta and
// master, and the sentences in them are told to the client.
type QueueBackend struct {
	Queues  Queues
	Groups  QueueGroups
	Views   QueueViews
	Changes QueueChanges
}

// Queues is sending, receiving and settling, whoever leads the partitions.
type Queues interface {
	// Send stores messages and returns when each is durable or has an error. One
	// answer for each; none if there is an error.
	Send(ctx context.Context, topic string, messages []queue.Outgoing) ([]queue.Sent, error)
	// Receive waits up to r.Wait for a first message and returns what is there then;
	// nothing is no error. It does not return before something is there or the wait is
	// over. If ctx ends while messages are on their way they come to be released.
	Receive(ctx context.Context, r queue.Receiving) ([]queue.Delivery, error)
	// Settle says what becomes of leases: an error or nil for each, once it is durable;
	// a single error if nothing is known of any.
	Settle(ctx context.Context, group string, s []queue.Settlement) ([]error, error)
	// Complete acknowledges and sends, all or nothing.
	Complete(ctx context.Context, group string, leases []queue.Lease, send []queue.TopicMessages) (queue.Completed, error)
	// OpenSession makes a consumer's stream known. Until closed is called inquire asks
	// it what became of leases that ran out: the answers come in the leases' order,
	// AnswerUnknown once ctx has ended. It may be called by many goroutines. closed
	// says that the stream is gone: its leases are nobody's then. m.Session is unique.
	OpenSession(group string, m queue.Member, inquire func(ctx context.Context, leases []queue.Lease) []queue.Answer) (closed func())
}

// QueueGroups changes which groups there are. master.Master implements it. Errors:
// queue.ErrUnknownGroup, queue.ErrInvalidSetting, queue.ErrInvalidFilter,
// queue.ErrConflict, meta's sentinels, master.ErrUnavailable.
type QueueGroups interface {
	// CreateQueueGroup takes settings with the defaults filled in, but for DeadLetter:
	// empty means that NAME.dead-letter is made for it if it is not there.
	CreateQueueGroup(ctx context.Context, name, topic string, s queue.Settings) (*meta.QueueGroup, error)
	// UpdateQueueGroup has change change the present settings; it may be called again
	// if they were changed meanwhile.
	UpdateQueueGroup(ctx context.Context, name string, change func(*queue.Settings) error) (*meta.QueueGroup, error)
	DeleteQueueGroup(ctx context.Context, name string) error
	PauseQueueGroup(ctx context.Context, name string, on bool) (*meta.QueueGroup, error)
}

// Page of a listing.
type Page struct {
	Limit int    // at most so many; 1 to 1,000
	Token string // of the answer before, as it was given; empty: from the start
}

// QueueViews tells how things are. The answers are the contract's own messages, so
// that nothing is translated twice on its way from another node's leader. Tokens are
// the backend's; one that it did not give is queue.ErrInvalidSetting.
type QueueViews interface {
	// Progress of a group in each partition, by number.
	Progress(ctx context.Context, group string) ([]*tubev1.QueueProgress, error)
	// Explain: why it does not move, the most important first; never empty.
	Explain(ctx context.Context, group string) ([]*tubev1.QueueCause, error)
	// ListPending with state "" lists all that are not plainly ready.
	ListPending(ctx context.Context, group, state string, p Page) (*tubev1.ListPendingResponse, error)
	ListDelayed(ctx context.Context, topic string, p Page) (*tubev1.ListDelayedResponse, error)
	// ListDead lists dead letters that were neither redriven nor dropped.
	ListDead(ctx context.Context, group string, q DeadQuery, p Page) (*tubev1.ListDeadResponse, error)
	// TraceMessage error: queue.ErrUnknownMessage.
	TraceMessage(ctx context.Context, topic string, m queue.Ref) (*tubev1.TraceMessageResponse, error)
}

// DeadQuery says which dead letters, as Redrive does.
type DeadQuery struct {
	Places []queue.Place
	Filter string
	Values bool // tell them too
}

// QueueSeek is where a group goes on.
type QueueSeek struct {
	// AtMillis: queue.StartAtStart, queue.StartAtEnd or a time in ms since 1970.
	AtMillis int64
	// Place, if it is not nil: in this partition only, at this offset.
	Place *queue.Place
}

// Redrive says which dead letters are sent again, or dropped.
type Redrive struct {
	Places   []queue.Place // in the dead-letter topic; none: all that Filter wants
	Filter   string
	To       string  // topic; empty: where each comes from
	Rate     float64 // messages/s; 0: no limit
	Max      int     // 1 to 10,000
	DryRun   bool
	Token    string
	Edited   *queue.Outgoing // instead of the only one of Places
	Duration time.Duration   // stop after about so long
}

// Redriven answers it.
type Redriven struct {
	Matched, Done int64
	Next          string // token; empty: that was all
}

// QueueChanges changes how far groups are, and what is delayed or dead.
type QueueChanges interface {
	// Seek returns where the group goes on, by partition.
	Seek(ctx context.Context, group string, to QueueSeek) ([]queue.Place, error)
	// Purge returns how many messages it was not done with.
	Purge(ctx context.Context, group string) (int64, error)
	// CancelDelayed and RescheduleDelayed answer each; queue.ErrUnknownMessage: not
	// there, or not delayed any more.
	CancelDelayed(ctx context.Context, topic string, m []queue.Ref) ([]queue.Place, []error, error)
	RescheduleDelayed(ctx context.Context, topic string, m []queue.Ref, atMillis int64) ([]queue.Place, []error, error)
	// Retry has messages that failed, or are parked, handed out again, or with skip
	// makes them dead letters. It answers each: queue.ErrUnknownMessage,
	// queue.ErrLeaseUnknown (it has not failed), queue.ErrLeaseExpired (it is in hand).
	Retry(ctx context.Context, group string, m []queue.Ref, skip bool) ([]queue.Place, []error, error)
	// RedriveDead sends each again, waits until that is durable, and then lists it no
	// more. DropDead only does the latter.
	RedriveDead(ctx context.Context, group string, r Redrive) (Redriven, error)
	DropDead(ctx context.Context, group string, r Redrive) (Redriven, error)
}
