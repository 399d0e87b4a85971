package kafka

import (
	"slices"
	"sync"

	"github.com/tube-mq/tube/internal/broker"
	"github.com/tube-mq/tube/internal/record"
)

// interest is one partition that a fetch or a fetch session asks for. It belongs
// to the connection's goroutine, but for Wake.
type interest struct {
	set    *interestSet
	name   string         // the topic as the client names it, v4–12
	topic  record.TopicID // v13+
	number record.Partition

	// What the client asked for last.
	offset      record.Offset
	maxBytes    int
	epoch       record.Epoch // −1: none
	lastFetched record.Epoch // −1: none

	partition Partition // nil: to be looked up
	stop      func()    // ends the watch; nil: not watched
	told      told
	got       *fetchedPartition // for the present response; nil: nothing
	catch     *catching         // of the present fetch; nil: no follower was asked

	// queued: it stands in set.ready. Guarded by set.mu.
	queued bool
}

// told is what the client knows of the partition, so that a session is silent
// when nothing is new.
type told struct {
	once   bool
	bounds broker.Bounds
}

// interestSet is what a fetch waits for. Only those partitions are looked at that
// may have something new: those that the client moved, and those that called.
type interestSet struct {
	mu sync.Mutex
	// ready are those to look at, in the order in which they are served.
	ready []*interest
	// called has a value when ready was empty and is not any more.
	called chan struct{}
}

func newInterestSet() *interestSet { return &interestSet{called: make(chan struct{}, 1)} }

// Wake is called from the partition's loop.
func (i *interest) Wake() { i.set.push(i) }

// push puts interests at the end of the line, those that are not in it.
func (s *interestSet) push(is ...*interest) {
	s.mu.Lock()
	for _, i := range is {
		if !i.queued {
			i.queued = true
			s.ready = append(s.ready, i)
		}
	}
	s.mu.Unlock()
	select {
	case s.called <- struct{}{}:
	default:
	}
}

// take empties the line.
func (s *interestSet) take() []*interest {
	s.mu.Lock()
	defer s.mu.Unlock()
	is := s.ready
	s.ready = nil
	for _, i := range is {
		i.queued = false
	}
	return is
}

// putBack makes those that were not served the first of the next line, and those
// that were the last of it: that is what makes a session fair.
func (s *interestSet) putBack(unserved, served []*interest) {
	if len(unserved)+len(served) == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	front := make([]*interest, 0, len(unserved)+len(s.ready)+len(served))
	add := func(is []*interest) {
		for _, i := range is {
			if !i.queued {
				i.queued = true
				front = append(front, i)
			}
		}
	}
	add(unserved)
	front = append(front, s.ready...)
	s.ready = front
	for _, i := range served {
		if !i.queued {
			i.queued = true
			s.ready = append(s.ready, i)
		}
	}
}

// remove takes one out of the line.
func (s *interestSet) remove(i *interest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if i.queued {
		i.queued = false
		s.ready = slices.DeleteFunc(s.ready, func(o *interest) bool { return o == i })
	}
}

// find looks the partition up, if it is not known yet.
func (i *interest) find(d *Door, byID bool) error {
	if i.partition != nil {
		return nil
	}
	topic, unknown := groupTopic(d.image(), byID, i.topic, i.name)
	if code := checkPartition(topic, unknown, int32(i.number)); code != 0 {
		return wireError{code}
	}
	p, err := d.partitions.Partition(topic.ID, i.number)
	if err != nil {
		return err
	}
	i.partition = p
	return nil
}

// watch makes the partition call; false if it did already.
func (i *interest) watch() bool {
	if i.stop != nil || i.partition == nil {
		return false
	}
	i.stop = i.partition.Watch(i)
	return true
}

// forget lets go of the partition: it is looked up anew when it is needed.
func (i *interest) forget() {
	if i.stop != nil {
		i.stop()
	}
	i.stop, i.partition = nil, nil
}
