package queue

import (
	"slices"

	"github.com/tube-mq/tube/internal/record"
)

// MaxHeldBack is how many messages of one group and partition may be held back
// behind their keys; at it, the desk looks at no new ones until keys go on.
const MaxHeldBack = 100_000

// keys lets go one message of a key at a time, in the order of offsets. A key belongs
// to the message that got it first until that is done, through all of its failures.
type keys struct {
	owner map[uint64]*keyLine
	of    map[record.Offset]uint64 // of the owners
	held  int                      // in all lines
}

type keyLine struct {
	owner record.Offset
	line  []record.Offset // ascending: who waits
}

func newKeys() *keys {
	return &keys{owner: map[uint64]*keyLine{}, of: map[record.Offset]uint64{}}
}

// hashKey is FNV-1a. Two keys of one hash only wait for each other.
func hashKey(key []byte) uint64 {
	h := uint64(14695981039346656037)
	for _, c := range key {
		h = (h ^ uint64(c)) * 1099511628211
	}
	return h
}

// enter gives a message its key, or has it wait for it.
func (k *keys) enter(o record.Offset, key uint64) bool {
	l := k.owner[key]
	if l == nil {
		k.owner[key] = &keyLine{owner: o}
		k.of[o] = key
		return true
	}
	if l.owner == o {
		return true
	}
	if i, found := slices.BinarySearch(l.line, o); !found {
		l.line = slices.Insert(l.line, i, o)
		k.held++
	}
	return false
}

// leave gives up the key of a message that is done and returns who has it now.
func (k *keys) leave(o record.Offset) (next record.Offset, ok bool) {
	key, owns := k.of[o]
	if !owns {
		return 0, false
	}
	delete(k.of, o)
	l := k.owner[key]
	if len(l.line) == 0 {
		delete(k.owner, key)
		return 0, false
	}
	next = l.line[0]
	l.line = l.line[1:]
	k.held--
	l.owner = next
	k.of[next] = key
	return next, true
}

// ownersBelow are the owners before an offset, in order.
func (k *keys) ownersBelow(o record.Offset) []record.Offset {
	var out []record.Offset
	for owner := range k.of {
		if owner < o {
			out = append(out, owner)
		}
	}
	slices.Sort(out)
	return out
}

// before is the owner of the key that a message waits for; false: it waits for none.
func (k *keys) before(o record.Offset) (owner record.Offset, waits bool) {
	for _, l := range k.owner {
		if _, found := slices.BinarySearch(l.line, o); found {
			return l.owner, true
		}
	}
	return -1, false
}

// owns says whether a message has its key.
func (k *keys) owns(o record.Offset) bool {
	_, ok := k.of[o]
	return ok
}

// ownerOf is who has a key; false: nobody.
func (k *keys) ownerOf(key uint64) (owner record.Offset, ok bool) {
	if l := k.owner[key]; l != nil {
		return l.owner, true
	}
	return -1, false
}

// heldFrom appends those that wait, from an offset on, to a list, in no order.
func (k *keys) heldFrom(list []record.Offset, from record.Offset) []record.Offset {
	for _, l := range k.owner {
		i, _ := slices.BinarySearch(l.line, from)
		list = append(list, l.line[i:]...)
	}
	return list
}

// worst is the owner that most messages wait for.
func (k *keys) worst() (owner record.Offset, waiting int) {
	owner = -1
	for _, l := range k.owner {
		if n := len(l.line); n > waiting || n == waiting && n > 0 && l.owner < owner {
			owner, waiting = l.owner, n
		}
	}
	return owner, waiting
}
