package kafka

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tube-mq/tube/internal/queue"
	"github.com/tube-mq/tube/internal/record"
)

// A share session (KIP-932) is what one member of a share group has on this node: the
// partitions that it fetches, and the records that it was given, with their leases, as
// it names records by offset. The leases themselves are the partition leader's. A
// session ends with the member's word, or with the connection that began it.

// quickEnd: a connection that ends so soon after the member's last request ended with
// the member, which clients that close what they do not use never do so soon. What the
// member has is given to others at once; else its leases run out.
const quickEnd = 10 * time.Second

// maxSharePartitions bounds the partitions of one share session.
const maxSharePartitions = 10_000

type shareKey struct{ group, member string }

type sharePart struct {
	topic  record.TopicID
	number record.Partition
}

// shareSession belongs to whoever has a request of it under way, and mu guards it, as
// a member's requests may come on different connections.
type shareSession struct {
	key  shareKey
	name string // as queues know it: unique in the cluster
	by   *client
	host string

	mu    sync.Mutex
	epoch int32 // that the next request must have
	parts []sharePart
	// held are the records that the member has, by partition and offset. A partition
	// stays until the member has settled all of it, whether it is fetched or not.
	held map[sharePart]map[record.Offset]heldRecord
	last time.Time // when the last request was answered
	over bool
}

type heldRecord struct {
	lease queue.Lease
	until time.Time // about when the lease ends
}

// shareSessions are those of one node.
type shareSessions struct {
	mu    sync.Mutex
	by    map[shareKey]*shareSession
	count uint64
}

// shareCall is what ShareFetch and ShareAcknowledge have in common.
type shareCall struct {
	door          *Door
	group, member string
	epoch         int32
	renews        bool // the request says that there may be renewals
	session       *shareSession
}

// newShareCall checks who calls.
func (d *Door) newShareCall(group, member *string, epoch int32) (*shareCall, error) {
	c := &shareCall{door: d, group: strings.Clone(orEmpty(group)), member: strings.Clone(orEmpty(member)), epoch: epoch}
	switch {
	case c.group == "" || c.member == "" || len(c.member) > queue.MaxMemberBytes:
		return nil, refuse(kerr.InvalidRequest, "a group id and a member id of at most %d bytes are needed", queue.MaxMemberBytes)
	case epoch < epochNone:
		return nil, refuse(kerr.InvalidShareSessionEpoch, "share session epoch %d", epoch)
	}
	return c, nil
}

// open finds the session, begins one with epoch 0, or ends it with −1: it is then no
// longer found.
func (c *shareCall) open(cl *client) (old *shareSession, err error) {
	key := shareKey{c.group, c.member}
	s := &c.door.shareSessions
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.by[key]
	switch {
	case c.epoch == epochBegin:
		if o == nil && len(s.by) >= c.door.cfg.MaxShareSessions {
			return nil, refuse(kerr.ShareSessionLimitReached, "%d share sessions are open on this node, which is the most", len(s.by))
		}
		if s.by == nil {
			s.by = map[shareKey]*shareSession{}
		}
		s.count++
		c.session = &shareSession{
			key: key, name: fmt.Sprintf("share-%d-%x-%d", c.door.cfg.Node, c.door.began.UnixNano(), s.count), by: cl, host: cl.host, epoch: 1,
			held: map[sharePart]map[record.Offset]heldRecord{},
		}
		s.by[key] = c.session
		cl.shares = append(slices.DeleteFunc(cl.shares, func(x *shareSession) bool { return x == o }), c.session)
		return o, nil
	case o == nil:
		return nil, refuse(kerr.ShareSessionNotFound, "no share session of this member is open on this node; begin one with epoch 0")
	case c.epoch == epochNone:
		c.session = o
		delete(s.by, key)
		return nil, nil
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.epoch != c.epoch {
		return nil, refuse(kerr.InvalidShareSessionEpoch, "the share session is at epoch %d, not %d; begin another with epoch 0", o.epoch, c.epoch)
	}
	if o.epoch++; o.epoch <= 0 {
		o.epoch = 1
	}
	c.session = o
	return nil, nil
}

// answered notes that the member has heard of this node just now.
func (s *shareSession) answered() {
	s.mu.Lock()
	s.last = time.Now()
	s.mu.Unlock()
}

// change adds and takes away what the session fetches.
func (s *shareSession) change(add []kmsg.ShareFetchRequestTopic, forget []kmsg.ShareFetchRequestForgottenTopicsData) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	has := make(map[sharePart]bool, len(s.parts))
	for _, p := range s.parts {
		has[p] = true
	}
	for _, t := range add {
		for _, p := range t.Partitions {
			part := sharePart{t.TopicID, record.Partition(p.Partition)}
			if !has[part] {
				has[part] = true
				s.parts = append(s.parts, part)
			}
		}
	}
	for _, t := range forget {
		for _, p := range t.Partitions {
			delete(has, sharePart{t.TopicID, record.Partition(p)})
		}
	}
	s.parts = slices.DeleteFunc(s.parts, func(p sharePart) bool { return !has[p] })
	if len(s.parts) > maxSharePartitions {
		s.parts = s.parts[:maxSharePartitions]
		return refuse(kerr.InvalidRequest, "a share session can have %d partitions", maxSharePartitions)
	}
	return nil
}

// fetched are the partitions, beginning with another one each time.
func (s *shareSession) fetched() []sharePart {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.parts) == 0 {
		return nil
	}
	k := int(s.epoch) % len(s.parts)
	return append(slices.Clone(s.parts[k:]), s.parts[:k]...)
}

// give notes records as the member's. Those that it never settles, and that went to
// others meanwhile, are forgotten once there are many of them.
func (s *shareSession) give(p sharePart, taken []queue.Taken, lease time.Duration, most int) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	held := s.held[p]
	if held == nil {
		held = make(map[record.Offset]heldRecord, len(taken))
		s.held[p] = held
	}
	for i := range taken {
		held[taken[i].Lease.Offset] = heldRecord{taken[i].Lease, now.Add(lease)}
	}
	if len(held) > 2*most {
		maps.DeleteFunc(held, func(_ record.Offset, h heldRecord) bool { return h.until.Before(now) })
	}
}

// take gives the leases of all records from first to last; false if one of them is not
// the member's.
func (s *shareSession) leases(p sharePart, first, last record.Offset) ([]queue.Lease, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := s.held[p]
	if first < 0 || last < first || int64(last-first) >= int64(len(held)) {
		return nil, false
	}
	out := make([]queue.Lease, 0, last-first+1)
	for o := first; o <= last; o++ {
		h, ok := held[o]
		if !ok {
			return nil, false
		}
		out = append(out, h.lease)
	}
	return out, true
}

// settled takes records away from the member, or, if they are kept, notes when their
// leases end now.
func (s *shareSession) settled(p sharePart, l queue.Lease, kept time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	held := s.held[p]
	if h, ok := held[l.Offset]; !ok || h.lease != l {
		return
	}
	if kept > 0 {
		held[l.Offset] = heldRecord{l, time.Now().Add(kept)}
		return
	}
	if delete(held, l.Offset); len(held) == 0 {
		delete(s.held, p)
	}
}

// left takes all that the member still has, by partition.
func (s *shareSession) left() map[sharePart][]queue.Lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[sharePart][]queue.Lease{}
	for p, held := range s.held {
		for _, h := range held {
			out[p] = append(out[p], h.lease)
		}
		slices.SortFunc(out[p], func(a, b queue.Lease) int { return cmp.Compare(a.Offset, b.Offset) })
	}
	s.held, s.over = map[sharePart]map[record.Offset]heldRecord{}, true
	return out
}

// disconnected ends the sessions that a connection began, and that did not end or begin
// anew elsewhere.
func (s *shareSessions) disconnected(cl *client) {
	for _, o := range cl.shares {
		s.mu.Lock()
		mine := s.by[o.key] == o
		if mine {
			delete(s.by, o.key)
		}
		s.mu.Unlock()
		o.mu.Lock()
		quick := time.Since(o.last) < quickEnd
		o.mu.Unlock()
		if mine && quick && cl.shareGone != nil {
			cl.shareGone(o.name)
		}
	}
	cl.shares = nil
}
