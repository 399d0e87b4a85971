package broker

import (
	"context"
	"errors"
	"fmt"

	"github.com/tube-mq/tube/internal/commitlog"
	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/replica"
)

// CopyHead is what a copy of a partition begins with: the state of its machine
// and the batches that belong to it, of which those from the asker's end follow.
type CopyHead struct {
	Snapshot   replica.Snapshot
	Start, End record.Offset
}

// CopySink takes a copy as it comes.
type CopySink interface {
	// Head is called once, first.
	Head(CopyHead) error
	// Batches brings whole batches, in order; the bytes are the sink's to keep.
	Batches([]byte) error
}

// Copier brings copies from other nodes.
type Copier interface {
	// Copy asks a node for a copy of a partition's group, with its batches from an
	// offset on. It returns once all of it was handed to the sink.
	Copy(ctx context.Context, node record.NodeID, group record.Group, from record.Offset, sink CopySink) error
}

// copyBytes is about how much one call of CopySink.Batches brings.
const copyBytes = 256 << 10

// ServeCopy hands a partition that this node leads to a sink, with its batches
// from an offset on. Errors: ErrUnknownPartition, ErrNotLeader, ErrStorage, the
// sink's, the context's.
func (b *Broker) ServeCopy(ctx context.Context, group record.Group, from record.Offset, sink CopySink) error {
	p := b.byGroup(group)
	if p == nil {
		return ErrUnknownPartition
	}
	snap, err := p.group.Capture(ctx)
	if err != nil {
		return proposalError(err)
	}
	r := &reader{b: snap.State}
	r.u8()
	head := CopyHead{Snapshot: snap, Start: record.Offset(r.u64()), End: record.Offset(r.u64())}
	if r.err != nil {
		return r.err
	}
	if err := sink.Head(head); err != nil {
		return err
	}
	for at := max(from, head.Start); at < head.End; {
		if err := ctx.Err(); err != nil {
			return err
		}
		chunk, err := p.log.Read(at, copyBytes, true, head.End)
		if err != nil {
			return p.readError(err)
		}
		bytes := make([]byte, 0, chunk.SizeBytes)
		for _, part := range chunk.Parts {
			bytes = append(bytes, part...)
		}
		if chunk.Release != nil {
			chunk.Release()
		}
		if at, err = endOf(bytes); err != nil {
			return fmt.Errorf("%w: partition %s: %w", ErrStorage, p.id, err)
		}
		if err := sink.Batches(bytes); err != nil {
			return err
		}
	}
	return nil
}

// endOf is the offset behind the last of several whole batches.
func endOf(b []byte) (record.Offset, error) {
	end := record.Offset(-1)
	for len(b) > 0 {
		h, err := record.ParseHeader(b)
		if err != nil {
			return -1, err
		}
		end = h.NextOffset()
		b = b[min(h.SizeBytes(), len(b)):]
	}
	if end < 0 {
		return -1, errors.New("no batch")
	}
	return end, nil
}

func (b *Broker) byGroup(id record.Group) *Partition {
	b.mu.RLock()
	defer b.mu.RUnlock()
	return b.groups[id]
}

// fetch brings what this replica lacks from another node. The batches go to the
// log, behind what the machine knows of: nobody sees them before it has taken the
// state that comes with them. Should that not happen they do no harm, as what is
// committed is the same everywhere: when the same batches come again, by way of
// the Raft log, they are there already (see append).
func (p *Partition) fetch(ctx context.Context, from record.NodeID) (replica.Snapshot, error) {
	c := &copying{p: p, next: p.logEnd()}
	if err := p.broker.cfg.Copier.Copy(ctx, from, p.groupID, c.next, c); err != nil {
		return replica.Snapshot{}, err
	}
	if !c.begun || c.next < c.head.End {
		return replica.Snapshot{}, fmt.Errorf("copy of partition %s from node %d ended at offset %d, not %d", p.id, from, c.next, c.head.End)
	}
	return c.head.Snapshot, p.settle()
}

// copying is the receiving end of a copy.
type copying struct {
	p     *Partition
	head  CopyHead
	begun bool
	next  record.Offset // of the log
	// anew: the log is to begin with the first batch that comes, the one which the
	// copy's start lies in.
	anew bool
}

// Head implements CopySink.
func (c *copying) Head(h CopyHead) error {
	if c.begun {
		return errors.New("a copy with two heads")
	}
	c.head, c.begun = h, true
	if h.Start <= c.next {
		return nil
	}
	c.next = h.Start
	if h.Start == h.End { // nothing comes
		return c.p.reset(h.Start)
	}
	c.anew = true
	return nil
}

// Batches implements CopySink.
func (c *copying) Batches(b []byte) error {
	if !c.begun {
		return errors.New("a copy without a head")
	}
	// A copy must not fill the disk; it goes on when there is room again.
	if err := c.p.broker.admit(len(b)); err != nil {
		return err
	}
	for len(b) > 0 {
		h, err := record.ParseHeader(b)
		if err != nil {
			return err
		}
		if h.SizeBytes() > len(b) {
			return fmt.Errorf("a batch of %d bytes in a copy is cut off after %d", h.SizeBytes(), len(b))
		}
		batch := b[:h.SizeBytes():h.SizeBytes()]
		if _, err := record.Verify(batch); err != nil {
			return err
		}
		b = b[len(batch):]
		if h.NextOffset() <= c.next {
			continue // the asker's end lies within what the leader sent first
		}
		if c.anew {
			if h.BaseOffset > c.next {
				return fmt.Errorf("a copy that begins at offset %d has its first batch at %d", c.next, h.BaseOffset)
			}
			if err := c.p.reset(h.BaseOffset); err != nil {
				return err
			}
			c.anew = false
		}
		if err := c.p.log.Append(batch, h, nil); err != nil {
			return err
		}
		c.p.broker.flusher.appended(c.p, len(batch))
		c.next = h.NextOffset()
		c.p.ahead.Store(int64(c.next))
	}
	c.p.broker.flusher.offer(c.p)
	return nil
}

func (p *Partition) logEnd() record.Offset {
	_, end := p.log.Bounds()
	return end
}

// reset empties the log and has it begin at an offset.
func (p *Partition) reset(to record.Offset) error {
	p.ahead.Store(int64(to))
	switch l := p.log.(type) {
	case *commitlog.Memory:
		return l.Skip(to)
	case *commitlog.Log:
		p.flush.writing.Lock()
		defer p.flush.writing.Unlock()
		defer p.broker.flusher.account(p)
		return l.Reset(to)
	}
	return fmt.Errorf("partition %s: no way to begin its log anew", p.id)
}
