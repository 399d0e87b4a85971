package ordering

// Turn is what a Sequence says of a version.
type Turn int

// What a Sequence may say.
const (
	Now  Turn = iota + 1 // it is the next one: handle it, then call Done or Failed
	Old                  // it was handled
	Held                 // it is early, and held back until Done returns it
	Full                 // it is early, and too many are held back: later
)

// Sequence lets the versions of a key pass one after the other, and holds back items
// that come early. It is not safe for use by several goroutines.
type Sequence[T any] struct {
	max  int
	held int
	next *recent[int64]          // version that is due, of keys with nothing held back
	busy map[string]*progress[T] // keys with something at work or held back
}

type progress[T any] struct {
	next int64
	work bool // next is being handled
	held map[int64]T
}

// NewSequence holds back up to held items, of all keys together, and remembers up to
// keys keys that nothing is held back of.
func NewSequence[T any](held, keys int) *Sequence[T] {
	return &Sequence[T]{max: held, next: newRecent[int64](keys), busy: map[string]*progress[T]{}}
}

// Knows says whether it is known which version of a key is due.
func (s *Sequence[T]) Knows(key string) bool {
	if s.busy[key] != nil {
		return true
	}
	_, ok := s.next.get(key)
	return ok
}

// Start says which version of a key is due; of one that is known nothing is changed.
func (s *Sequence[T]) Start(key string, next int64) {
	if !s.Knows(key) {
		s.next.set(key, next)
	}
}

// Offer says what is to be done with a version. Of a key that is not known, 1 is due. A
// version that is being handled, or held back already, is Full: the repeat comes later.
func (s *Sequence[T]) Offer(key string, version int64, item T) Turn {
	p := s.progress(key)
	defer s.settle(key, p)
	switch {
	case version < p.next:
		return Old
	case version == p.next && !p.work:
		p.work = true
		return Now
	}
	if _, repeat := p.held[version]; repeat || version == p.next || s.held >= s.max {
		return Full
	}
	p.held[version] = item
	s.held++
	return Held
}

// Done notes that a version was handled, and returns the item that is due now, if it is
// held back; it is being handled then.
func (s *Sequence[T]) Done(key string, version int64) (item T, due bool) {
	p := s.busy[key]
	if p == nil || !p.work || version != p.next {
		return item, false
	}
	defer s.settle(key, p)
	p.next++
	if item, due = p.held[p.next]; due {
		delete(p.held, p.next)
		s.held--
	}
	p.work = due
	return item, due
}

// Failed notes that a version was not handled: it is due still.
func (s *Sequence[T]) Failed(key string, version int64) {
	if p := s.busy[key]; p != nil && version == p.next {
		p.work = false
		s.settle(key, p)
	}
}

// Withdraw takes an item that is held back out. false: it is not held back (any more).
func (s *Sequence[T]) Withdraw(key string, version int64) bool {
	p := s.busy[key]
	if p == nil {
		return false
	}
	if _, ok := p.held[version]; !ok {
		return false
	}
	delete(p.held, version)
	s.held--
	s.settle(key, p)
	return true
}

func (s *Sequence[T]) progress(key string) *progress[T] {
	p := s.busy[key]
	if p == nil {
		p = &progress[T]{next: 1, held: map[int64]T{}}
		if n, ok := s.next.get(key); ok {
			p.next = n
		}
		s.busy[key] = p
	}
	return p
}

// settle keeps only the number of a key that nothing is held back of.
func (s *Sequence[T]) settle(key string, p *progress[T]) {
	if !p.work && len(p.held) == 0 {
		delete(s.busy, key)
		s.next.set(key, p.next)
	}
}
