package sim

import (
	"fmt"
	"hash/fnv"
	"time"
)

// trace is everything that happened: hashed, and its end kept.
type trace struct {
	hash  uint64
	ring  [120]string
	lines int
	print func(string)
}

func (t *trace) add(now time.Duration, format string, args ...any) {
	line := fmt.Sprintf("%10.6f ", now.Seconds()) + fmt.Sprintf(format, args...)
	h := fnv.New64a()
	h.Write([]byte(line))
	t.hash = (t.hash ^ h.Sum64()) * 1099511628211
	t.ring[t.lines%len(t.ring)] = line
	t.lines++
	if t.print != nil {
		t.print(line)
	}
}

func (t *trace) sum() uint64 { return t.hash }

func (t *trace) last() []string {
	var out []string
	for i := max(0, t.lines-len(t.ring)); i < t.lines; i++ {
		out = append(out, t.ring[i%len(t.ring)])
	}
	return out
}
