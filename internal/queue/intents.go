package queue

import (
	"errors"
	"maps"
	"slices"
)

// An intent is what is to be sent, and acknowledged in other partitions, because
// messages of this partition were acknowledged: it is committed in one entry with
// that, so there is never one without the other. Whoever leads sees to it until it is
// done.

// Bounds of intents.
const (
	MaxIntentBytes  = 16 << 20 // of one
	MaxIntentsBytes = 64 << 20 // of all of a partition that are not done yet
	MaxIntentID     = 64       // bytes
)

// ErrTooManyIntents: MaxIntentsBytes are not done yet. Again later.
var ErrTooManyIntents = errors.New("too much is still to be sent for what was completed")

func (s *State) intend(id string, data []byte) {
	if s.intents == nil {
		s.intents = map[string][]byte{}
	}
	s.intendedBytes += len(data) - len(s.intents[id])
	s.intents[id] = slices.Clone(data)
}

func (s *State) intended(id string) {
	s.intendedBytes -= len(s.intents[id])
	delete(s.intents, id)
}

// Intents are those that are not done, by id. The values are not to be changed.
func (s *State) Intents() map[string][]byte { return maps.Clone(s.intents) }

// MayIntend tells whether there is room for one more.
func (s *State) MayIntend(sizeBytes int) error {
	if sizeBytes > MaxIntentBytes {
		return ErrMessageTooLarge
	}
	if s.intendedBytes+sizeBytes > MaxIntentsBytes {
		return ErrTooManyIntents
	}
	return nil
}

func (s *State) appendIntents(b []byte) []byte {
	b = appendUint(b, uint64(len(s.intents)))
	for _, id := range slices.Sorted(maps.Keys(s.intents)) {
		b = appendBytes(appendString(b, id), s.intents[id])
	}
	return b
}

func (s *State) restoreIntents(r *reader) {
	last := ""
	for i := range r.count(2) {
		id := r.string(MaxIntentID)
		if i > 0 && id <= last {
			r.fail("intents out of order")
		}
		last = id
		s.intend(id, r.bytes(MaxIntentBytes))
	}
}
