package broker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/tube-mq/tube/internal/commitlog"
	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/queue"
	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/replica"
)

// Partition is one hosted partition: the way from a door to the replica group
// and its machine, and from there to the commit log.
type Partition struct {
	id      record.TopicPartition
	broker  *Broker
	replica record.ReplicaID // this node's
	groupID record.Group
	// peers says on which nodes the replicas are.
	peers   atomic.Pointer[map[record.ReplicaID]record.NodeID]
	group   *replica.Group
	machine *machine
	log     commitLog
	logger  *slog.Logger

	config atomic.Pointer[meta.TopicConfig]
	term   atomic.Uint64
	// damage is why this partition cannot be served; nil while it can.
	damage atomic.Pointer[error]

	// watchers are woken after every change of bounds or leadership; catching are
	// readers who wait for this replica to catch up, see follow.go.
	mu       sync.Mutex
	watchers map[Watcher]int
	catching map[*catchUp]struct{}
	// followers is what the leader knew of them last; looking: it finds out.
	followers atomic.Pointer[followers]
	looking   atomic.Bool

	flush flushState
	queue *queueLog
	// ahead is the offset up to which a copy has brought batches that the machine
	// may not know of yet; see fetch.
	ahead atomic.Int64
	// bounding: a memory log's start is being moved up.
	bounding atomic.Bool
}

// ID names the partition.
func (p *Partition) ID() record.TopicPartition { return p.id }

// serving returns an error unless this replica may serve now.
func (p *Partition) serving(clientEpoch record.Epoch) error {
	if d := p.damage.Load(); d != nil {
		return fmt.Errorf("%w: %w", ErrStorage, *d)
	}
	s := p.group.Status()
	if !s.Leading {
		return ErrNotLeader
	}
	return checkEpoch(clientEpoch, s.Term)
}

// Produce checks a batch and proposes it. done is called exactly once, possibly
// before Produce returns; it must not block.
func (p *Partition) Produce(req ProduceRequest, done func(ProduceResult)) {
	sum, err := p.admit(req)
	if err != nil {
		done(ProduceResult{BaseOffset: -1, LogAppendTimeMillis: -1, LogStart: -1, Err: err})
		return
	}
	proposal := replica.Proposal{Data: req.Batch, Buf: req.Buf, Sum: sum, SumFrom: record.ChecksummedFrom}
	if a := p.annexeOf(req.Batch); a != nil {
		proposal = replica.Proposal{Data: annexed(req.Batch, a, p.broker.clock().UnixMilli())}
	} else if req.Buf != nil {
		req.Buf.Retain()
	}
	proposal.Done = func(result any, err error) {
		if err != nil {
			done(ProduceResult{BaseOffset: -1, LogAppendTimeMillis: -1, LogStart: -1, Err: proposalError(err)})
			return
		}
		r := result.(produced)
		done(ProduceResult{BaseOffset: r.base, LogAppendTimeMillis: r.stampMillis, LogStart: r.start, Err: r.err})
	}
	p.group.Propose(proposal)
}

// admit decides whether a batch may be proposed, makes it an entry, and returns
// its CRC.
func (p *Partition) admit(req ProduceRequest) (uint32, error) {
	if err := p.serving(req.LeaderEpoch); err != nil {
		return 0, err
	}
	if err := p.broker.admit(len(req.Batch)); err != nil {
		return 0, err
	}
	cfg := p.config.Load()
	if len(req.Batch) > cfg.MaxMessageBytes {
		return 0, fmt.Errorf("%w: %d bytes, the topic's max.message.bytes is %d", record.ErrTooLarge, len(req.Batch), cfg.MaxMessageBytes)
	}
	h, err := record.Check(req.Batch, p.broker.limits)
	if err != nil {
		return 0, err
	}
	if h.Attributes&record.CompressionMask != 0 {
		if err := record.CheckCompressed(req.Batch, p.broker.limits); err != nil {
			return 0, err
		}
	}
	nowMillis := p.broker.clock().UnixMilli()
	if cfg.LogAppendTime {
		h.CRC = record.StampLogAppendTime(req.Batch, nowMillis)
	} else if err := checkTimes(h, cfg, nowMillis); err != nil {
		return 0, err
	}
	putCommand(req.Batch, commandProduce, nowMillis)
	return h.CRC, nil
}

// checkTimes enforces message.timestamp.before.max.ms and .after.max.ms on the
// batch's largest timestamp and its base.
func checkTimes(h record.Header, cfg *meta.TopicConfig, nowMillis int64) error {
	if d := h.MaxTimestamp - nowMillis; d > 0 && d > cfg.TimestampAfterMax.Milliseconds() {
		return fmt.Errorf("%w: %d ms ahead, message.timestamp.after.max.ms is %d", ErrTimestamp, d, cfg.TimestampAfterMax.Milliseconds())
	}
	if h.BaseTimestamp < 0 {
		return nil // a record without a time
	}
	if d := nowMillis - h.BaseTimestamp; d > 0 && d > cfg.TimestampBeforeMax.Milliseconds() {
		return fmt.Errorf("%w: %d ms ago, message.timestamp.before.max.ms is %d", ErrTimestamp, d, cfg.TimestampBeforeMax.Milliseconds())
	}
	return nil
}

// proposalError turns what the replica says into what doors know.
func proposalError(err error) error {
	switch {
	case errors.Is(err, replica.ErrNotLeader):
		return ErrNotLeader
	case errors.Is(err, replica.ErrUnknownOutcome):
		return ErrUnknownOutcome
	case errors.Is(err, replica.ErrBusy):
		return ErrBusy
	case errors.Is(err, replica.ErrDamaged):
		return ErrStorage
	case errors.Is(err, replica.ErrStopped):
		return ErrNotLeader
	}
	return err
}

// Confirm returns once a majority has said that this replica still leads and Bounds
// show all that was acknowledged, by whomever, before the call. A replica that was
// paused or cut off does not know of its successor.
func (p *Partition) Confirm(ctx context.Context) error {
	if err := p.serving(-1); err != nil {
		return err
	}
	err := p.group.Barrier(ctx)
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("%w: no majority has confirmed the leader", ErrUnknownOutcome)
	}
	return proposalError(err)
}

// Bounds are the offsets that may be seen now.
func (p *Partition) Bounds() (Bounds, error) {
	if err := p.serving(-1); err != nil {
		return Bounds{}, err
	}
	return *p.machine.bounds.Load(), nil
}

// Read returns whole batches that are there now; it does not wait.
func (p *Partition) Read(req ReadRequest) (ReadResult, error) {
	err := p.serving(req.LeaderEpoch)
	if req.CaughtUp && errors.Is(err, ErrNotLeader) {
		return p.readFollowing(req)
	}
	if err != nil {
		return ReadResult{}, err
	}
	return p.read(req)
}

func (p *Partition) read(req ReadRequest) (ReadResult, error) {
	b := *p.machine.bounds.Load()
	limit := b.HighWatermark
	if req.Committed {
		limit = b.LastStable
	}
	if req.Offset < b.LogStart || req.Offset > b.HighWatermark {
		return ReadResult{Bounds: b}, fmt.Errorf("%w: %d is not in [%d, %d]", ErrOutOfRange, req.Offset, b.LogStart, b.HighWatermark)
	}
	if req.Offset >= limit {
		return ReadResult{Bounds: b}, nil
	}
	chunk, err := p.log.Read(req.Offset, req.MaxBytes, req.MinOne, limit)
	if err != nil {
		return ReadResult{Bounds: b}, p.readError(err)
	}
	return ReadResult{Parts: chunk.Parts, SizeBytes: chunk.SizeBytes, Bounds: b, Release: chunk.Release, Ahead: chunk.Ahead}, nil
}

// Watch registers w until stop is called.
func (p *Partition) Watch(w Watcher) (stop func()) {
	p.mu.Lock()
	if p.watchers == nil {
		p.watchers = map[Watcher]int{}
	}
	p.watchers[w]++
	p.mu.Unlock()
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.watchers[w]--; p.watchers[w] <= 0 {
			delete(p.watchers, w)
		}
	}
}

func (p *Partition) wake() {
	p.mu.Lock()
	for w := range p.watchers {
		w.Wake()
	}
	var answers []func()
	for c := range p.catching {
		if answered, err := p.caughtUpLocked(c); answered {
			answers = append(answers, func() { c.done(err) })
		}
	}
	p.mu.Unlock()
	for _, answer := range answers {
		answer()
	}
}

// DeleteRecords moves the log start up to before, −1 for the high watermark.
func (p *Partition) DeleteRecords(ctx context.Context, before record.Offset) (record.Offset, error) {
	b, err := p.Bounds()
	if err != nil {
		return -1, err
	}
	if before == -1 {
		before = b.HighWatermark
	}
	if before < 0 || before > b.HighWatermark {
		return -1, fmt.Errorf("%w: %d is not in [%d, %d]", ErrOutOfRange, before, b.LogStart, b.HighWatermark)
	}
	return p.proposeStart(ctx, before)
}

func (p *Partition) proposeStart(ctx context.Context, to record.Offset) (record.Offset, error) {
	r, err := p.group.ProposeWait(ctx, logStartCommand(to, p.broker.clock().UnixMilli()))
	if err != nil {
		return -1, proposalError(err)
	}
	return r.(produced).start, nil
}

// OffsetForTime finds the first record with a timestamp ≥ timeMillis.
func (p *Partition) OffsetForTime(timeMillis int64) (TimedOffset, error) {
	return p.timed(func() (record.Offset, int64, record.Epoch, error) { return p.log.OffsetForTime(timeMillis) })
}

// OffsetForMaxTime finds the record with the largest timestamp.
func (p *Partition) OffsetForMaxTime() (TimedOffset, error) {
	return p.timed(p.log.OffsetForMaxTime)
}

func (p *Partition) timed(find func() (record.Offset, int64, record.Epoch, error)) (TimedOffset, error) {
	b, err := p.Bounds()
	if err != nil {
		return TimedOffset{}, err
	}
	o, t, e, err := find()
	if err != nil {
		return TimedOffset{}, p.readError(err)
	}
	if o < 0 || o >= b.HighWatermark {
		return TimedOffset{-1, -1, -1}, nil
	}
	if o < b.LogStart {
		// The batch holds the time but begins below the log start.
		o = b.LogStart
	}
	return TimedOffset{o, t, e}, nil
}

// EndOfEpoch returns the largest known epoch ≤ e and the offset where it ends
// (KIP-320); −1, −1 if there is none.
func (p *Partition) EndOfEpoch(e record.Epoch) (record.Epoch, record.Offset, error) {
	b, err := p.Bounds()
	if err != nil {
		return -1, -1, err
	}
	p.machine.mu.Lock()
	defer p.machine.mu.Unlock()
	epoch, end := p.machine.epochs.endOf(e, b.LeaderEpoch, b.HighWatermark)
	return epoch, end, nil
}

// Producers lists the idempotent producers that the partition remembers.
func (p *Partition) Producers() ([]ProducerState, error) {
	if err := p.serving(-1); err != nil {
		return nil, err
	}
	p.machine.mu.Lock()
	defer p.machine.mu.Unlock()
	return p.machine.producers.states(), nil
}

// SizeBytes is what the partition's batches take on disk or in memory.
func (p *Partition) SizeBytes() int64 { return p.log.SizeBytes() }

// fail takes the partition out of service; others go on.
func (p *Partition) fail(err error) {
	if p.damage.CompareAndSwap(nil, &err) {
		p.broker.damaged.Store(true)
		p.logger.Error("partition taken out of service", "partition", p.id.String(), "err", err)
		p.wake()
	}
}

// append is called by the machine for every committed batch.
// An error means that the replica cannot go on: its state is ahead of its log.
func (p *Partition) append(batch []byte, h record.Header, buf *record.Buffer) error {
	if int64(h.BaseOffset) < p.ahead.Load() {
		return nil // a copy brought it
	}
	if err := p.log.Append(batch, h, buf); err != nil {
		p.fail(err)
		return err
	}
	p.broker.flusher.appended(p, len(batch))
	return nil
}

// skip goes past a batch that was in memory only and is gone.
func (p *Partition) skip(to record.Offset) error {
	m, ok := p.log.(*commitlog.Memory)
	if !ok {
		return fmt.Errorf("a batch of a memory topic in the log of partition %s, which is on disk", p.id)
	}
	return m.Skip(to)
}

// applied is called after a run of entries.
func (p *Partition) applied(fired []record.Offset, lost []queue.Lost) {
	p.broker.flusher.offer(p)
	p.wake()
	p.queue.applied(fired, lost)
	p.bound()
}

func (p *Partition) startMoved(to record.Offset) {
	if err := p.log.SetLogStart(to); err != nil {
		p.fail(err)
	}
}

func (p *Partition) led(s replica.Status) {
	p.wake()
	p.queue.led()
	p.broker.led(p, s)
}
