package master

import (
	"context"
	"sync"

	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/record"
)

// producerIDBlock is how many producer ids a node reserves at a time. What is
// left of a block when the node stops is never used.
const producerIDBlock = 1000

// producerIDs hands out ids of a reserved block.
type producerIDs struct {
	mu         sync.Mutex
	next, left int64
}

// ProducerID returns an id that no producer has had before.
func (m *Master) ProducerID(ctx context.Context) (record.ProducerID, error) {
	p := &m.producerIDs
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.left == 0 {
		res, err := m.propose(ctx, meta.AllocateProducerIDs(m.cfg.Now(), m.cfg.Node, producerIDBlock))
		if err != nil {
			return -1, err
		}
		p.next, p.left = res.FirstProducerID, producerIDBlock
	}
	id := p.next
	p.next++
	p.left--
	return record.ProducerID(id), nil
}
