package node

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/tube-mq/tube/internal/broker"
	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/queue"
)

const (
	// nearPercent of what retention keeps is when it is told that a group is behind.
	nearPercent = 80
	// nearEvery and lostEvery are how often there is an event of one group, at most,
	// from one node.
	nearEvery = 24 * time.Hour
	lostEvery = time.Hour
	// noteTimeout is how long retention waits for an event before messages go; after one
	// that failed none is tried for noteRest.
	noteTimeout = 2 * time.Second
	noteRest    = 30 * time.Second
	// shownRisks is how many groups are named as a problem of the node.
	shownRisks = 5
)

// retentionNotes are the events of what retention takes from queue groups: which were
// made when. It is safe for use by many goroutines.
type retentionNotes struct {
	mu    sync.Mutex
	of    map[queue.GroupID]noted
	tired time.Time // until when none is tried
}

type noted struct {
	near, lost time.Time
	unsaid     int64 // messages that went since the last event
}

// due says whether an event is to be made of a risk, and of how many messages.
func (x *retentionNotes) due(now time.Time, r broker.QueueRisk) (messages int64, ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.of == nil || len(x.of) >= 2*meta.MaxQueueGroups {
		x.of = map[queue.GroupID]noted{}
	}
	n := x.of[r.Group]
	n.unsaid += r.Goes
	x.of[r.Group] = n
	switch {
	case now.Before(x.tired):
		return 0, false
	case r.Goes > 0:
		return n.unsaid, now.Sub(n.lost) >= lostEvery
	}
	return 0, r.UsedPercent >= nearPercent && now.Sub(n.near) >= nearEvery
}

// made notes an event that was made, or could not be.
func (x *retentionNotes) made(now time.Time, r broker.QueueRisk, messages int64, err error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	n := x.of[r.Group]
	switch {
	case err != nil:
		x.tired = now.Add(noteRest)
		return
	case r.Goes > 0:
		n.lost, n.unsaid = now, n.unsaid-messages
	default:
		n.near = now
	}
	x.of[r.Group] = n
}

// queueAtRisk makes an event before messages go that a queue group is not done with,
// and when that is near. If the masters do not take it in time the messages go all the
// same, as the disk would fill up: what went is logged and counted.
func (n *Node) queueAtRisk(ctx context.Context, r broker.QueueRisk) {
	now := time.Now()
	messages, ok := n.retentionNotes.due(now, r)
	if !ok {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, noteTimeout)
	defer cancel()
	err := n.master.NoteQueueRetention(ctx, r.Group, r.Partition.Partition, r.UsedPercent, messages)
	if err != nil {
		n.logger.Warn("no event could be made of what retention takes from a queue group", "group", r.Name, "messages", messages, "err", err)
	}
	n.retentionNotes.made(now, r, messages, err)
}

// riskProblems says which queue groups lose messages soon, of partitions led here.
func (n *Node) riskProblems() []string {
	var out []string
	more := 0
	worst := map[queue.GroupID]broker.QueueRisk{}
	var order []queue.GroupID
	for _, r := range n.broker.QueueRisks() {
		old, seen := worst[r.Group]
		if r.UsedPercent < nearPercent || seen && old.UsedPercent >= r.UsedPercent {
			continue
		}
		if !seen {
			order = append(order, r.Group)
		}
		worst[r.Group] = r
	}
	for _, id := range order {
		if len(out) == shownRisks {
			more++
			continue
		}
		r := worst[id]
		out = append(out, fmt.Sprintf("queue group %s: %s", r.Name, riskSentence(r)))
	}
	if more > 0 {
		out = append(out, fmt.Sprintf("%d more queue groups lose messages to retention soon", more))
	}
	return out
}

// riskSentence says how near messages are to going.
func riskSentence(r broker.QueueRisk) string {
	s := fmt.Sprintf("what it is not done with in %s/%d is behind by %d %% of what retention keeps", r.Topic, r.Partition.Partition, r.UsedPercent)
	if r.UsedPercent >= 100 {
		s += ", and goes"
	} else {
		s += "; at 100 % it goes"
	}
	return s + ": consume it, raise the topic's retention, or delete the group if nobody needs it"
}

// retentionUsed is the largest share, 0 to 1, of what retention keeps that a queue
// group is behind by, of partitions led here.
func (n *Node) retentionUsed() float64 {
	most := 0
	for _, r := range n.broker.QueueRisks() {
		most = max(most, r.UsedPercent)
	}
	return float64(most) / 100
}
