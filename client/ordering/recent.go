package ordering

import "container/list"

// recent are values by key, of which the least recently used are forgotten.
type recent[V any] struct {
	max  int
	list list.List // of *slot[V], the latest first
	at   map[string]*list.Element
}

type slot[V any] struct {
	key string
	v   V
}

func newRecent[V any](max_ int) *recent[V] {
	return &recent[V]{max: max(max_, 1), at: map[string]*list.Element{}}
}

// get returns the value of a key, which counts as a use.
func (r *recent[V]) get(key string) (v V, ok bool) {
	e := r.at[key]
	if e == nil {
		return v, false
	}
	r.list.MoveToFront(e)
	return e.Value.(*slot[V]).v, true
}

func (r *recent[V]) set(key string, v V) {
	if e := r.at[key]; e != nil {
		e.Value.(*slot[V]).v = v
		r.list.MoveToFront(e)
		return
	}
	r.at[key] = r.list.PushFront(&slot[V]{key, v})
	if r.list.Len() > r.max {
		delete(r.at, r.list.Remove(r.list.Back()).(*slot[V]).key)
	}
}
