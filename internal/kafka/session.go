package kafka

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tube-mq/tube/internal/record"
)

// A fetch session (KIP-227) remembers what a consumer fetches, so that a request
// names only what changed and an answer only what is new. Tube's sessions belong
// to the connection that made them and end with it: a client that comes back gets
// FETCH_SESSION_ID_NOT_FOUND, which makes it begin a new one. So nobody can use
// another's session, and no clock is needed to clean up.

// maxSessions of one connection; the one used longest ago makes way.
const maxSessions = 8

// Session epochs with a meaning.
const (
	epochNone  = -1 // no session
	epochBegin = 0  // a new one
)

// session is one fetch session.
type session struct {
	id    int32
	epoch int32 // that the next request must have
	byID  bool  // topics are named by id, v13+
	set   *interestSet
	parts map[interestKey]*interest
}

type interestKey struct {
	name   string
	topic  record.TopicID
	number record.Partition
}

func (i *interest) key() interestKey { return interestKey{i.name, i.topic, i.number} }

// sessions are the fetch sessions of one connection, the one used last at the end.
type sessions struct {
	door *Door
	open []*session
}

func (s *sessions) find(id int32) *session {
	for i, o := range s.open {
		if o.id == id {
			s.open = append(slices.Delete(s.open, i, i+1), o)
			return o
		}
	}
	return nil
}

// begin makes a session of a full request's interests; nil when there are none
// or no room: the client then goes on without.
func (s *sessions) begin(set *interestSet, all []*interest, byID bool) *session {
	if len(all) == 0 {
		return nil
	}
	if len(s.open) >= maxSessions {
		s.end(s.open[0])
	}
	d := s.door
	n := &session{epoch: 1, byID: byID, set: set, parts: make(map[interestKey]*interest, len(all))}
	for _, i := range all {
		n.parts[i.key()] = i
	}
	if len(n.parts) != len(all) || !d.reserveSessionPartitions(len(n.parts)) {
		return nil // a partition is named twice, or there is no room
	}
	for n.id <= 0 || s.find(n.id) != nil {
		// Far apart, so that a client that mixes up connections is noticed.
		n.id = int32(d.sessionSeed.Add(0x9E3779B1) & 0x7FFFFFFF)
	}
	s.open = append(s.open, n)
	return n
}

func (d *Door) reserveSessionPartitions(n int) bool {
	if d.sessionPartitions.Add(int64(n)) <= d.cfg.MaxSessionPartitions {
		return true
	}
	d.sessionPartitions.Add(int64(-n))
	return false
}

// end closes a session; nil is none.
func (s *sessions) end(o *session) {
	if o == nil {
		return
	}
	for _, i := range o.parts {
		i.forget()
	}
	s.door.sessionPartitions.Add(int64(-len(o.parts)))
	s.open = slices.DeleteFunc(s.open, func(x *session) bool { return x == o })
}

// close ends all.
func (s *sessions) close() {
	for len(s.open) > 0 {
		s.end(s.open[0])
	}
}

// resume finds the session of an incremental request and takes over its changes.
func (s *sessions) resume(req *kmsg.FetchRequest) (*session, *kerr.Error) {
	o := s.find(req.SessionID)
	switch {
	case o == nil:
		return nil, kerr.FetchSessionIDNotFound
	case o.epoch != req.SessionEpoch:
		return nil, kerr.InvalidFetchSessionEpoch
	case o.byID != (req.Version >= 13):
		return nil, kerr.FetchSessionTopicIDError
	}
	if o.epoch++; o.epoch <= 0 {
		o.epoch = 1
	}
	changed := interests(o.set, req)
	fresh := 0
	for n, i := range changed {
		if old := o.parts[i.key()]; old != nil {
			old.offset, old.maxBytes, old.epoch, old.lastFetched = i.offset, i.maxBytes, i.epoch, i.lastFetched
			changed[n] = old
			continue
		}
		fresh++
		o.parts[i.key()] = i
	}
	if !s.door.reserveSessionPartitions(fresh) {
		s.door.sessionPartitions.Add(int64(fresh)) // end counts them
		s.end(o)
		return nil, kerr.FetchSessionIDNotFound // it begins anew, and without
	}
	for _, t := range req.ForgottenTopics {
		for _, p := range t.Partitions {
			o.drop(s.door, interestKey{t.Topic, t.TopicID, record.Partition(p)})
		}
	}
	o.set.push(slices.DeleteFunc(changed, func(i *interest) bool { return o.parts[i.key()] != i })...)
	return o, nil
}

func (o *session) drop(d *Door, key interestKey) {
	i := o.parts[key]
	if i == nil {
		return
	}
	delete(o.parts, key)
	i.forget()
	o.set.remove(i)
	d.sessionPartitions.Add(-1)
}

// interests are those that a request names, in its order.
func interests(set *interestSet, req *kmsg.FetchRequest) []*interest {
	n := 0
	for i := range req.Topics {
		n += len(req.Topics[i].Partitions)
	}
	block, out := make([]interest, n), make([]*interest, n)
	n = 0
	for i := range req.Topics {
		t := &req.Topics[i]
		for j := range t.Partitions {
			p := &t.Partitions[j]
			block[n] = interest{
				set: set, name: t.Topic, topic: t.TopicID, number: record.Partition(p.Partition),
				offset: record.Offset(p.FetchOffset), maxBytes: int(max(p.PartitionMaxBytes, 0)),
				epoch: record.Epoch(p.CurrentLeaderEpoch), lastFetched: record.Epoch(p.LastFetchedEpoch),
			}
			out[n] = &block[n]
			n++
		}
	}
	return out
}
