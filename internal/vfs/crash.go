package vfs

import (
	"maps"
	"math/rand/v2"
	"slices"
)

// CrashPolicy says what becomes of what was not synced.
type CrashPolicy int

// Policies of CrashCopy.
const (
	// CrashRandom keeps, loses or tears (by sectors of 512 bytes) every unsynced
	// page, and keeps or loses every unsynced change of size or of a folder
	// entry, each by itself, by the seed.
	CrashRandom CrashPolicy = iota
	// CrashLose loses everything that was not synced.
	CrashLose
	// CrashKeep keeps everything: the process was killed, the machine lives on.
	// What was not synced still is not, for a later crash of the copy.
	CrashKeep
)

const sectorBytes = 512

// CrashCopy returns the file system as it may be found after a crash now. The
// copy is independent and has no hook; but for CrashKeep it is durable as a
// whole. The same seed gives the same copy of the same state.
func (m *Mem) CrashCopy(seed uint64, policy CrashPolicy) *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	c := crash{
		rng: rand.New(rand.NewPCG(seed, 0x5475_6265)), policy: policy,
		entries: map[*node]map[string]*node{}, copies: map[*node]*node{},
	}
	out := NewMem()
	out.capacity = m.capacity
	if policy == CrashKeep {
		out.root = c.clone(m.root)
		for _, o := range m.pending {
			o.fromDir, o.toDir, o.n = c.clone(o.fromDir), c.clone(o.toDir), c.clone(o.n)
			out.pending = append(out.pending, o)
		}
		return out
	}
	for i := range m.pending {
		if c.keeps() {
			m.pending[i].apply(c.entriesOf)
		}
	}
	out.root = c.node(m.root)
	return out
}

// clone copies a node with what is durable of it and what is not.
func (c *crash) clone(n *node) *node {
	if n == nil || c.copies[n] != nil {
		return c.copies[n]
	}
	out := &node{}
	c.copies[n] = out
	if n.isDir() {
		out.children, out.durable = map[string]*node{}, map[string]*node{}
		for name, child := range n.children {
			out.children[name] = c.clone(child)
		}
		for name, child := range n.durable {
			out.durable[name] = c.clone(child)
		}
		return out
	}
	old := n.content
	out.content = &content{
		size: old.size, durableSize: old.durableSize,
		pages: maps.Clone(old.pages), durable: maps.Clone(old.durable), dirty: maps.Clone(old.dirty),
	}
	for no := range old.dirty {
		if p := old.pages[no]; p != nil && p != zeroPage {
			own := *p
			out.content.pages[no] = &own
		}
	}
	return out
}

type crash struct {
	rng     *rand.Rand
	policy  CrashPolicy
	entries map[*node]map[string]*node // of folders, as after the crash
	copies  map[*node]*node
}

func (c *crash) keeps() bool {
	if c.policy == CrashLose {
		return false
	}
	return c.rng.IntN(2) == 0
}

func (c *crash) entriesOf(n *node) map[string]*node {
	m := c.entries[n]
	if m == nil {
		m = maps.Clone(n.durable)
		c.entries[n] = m
	}
	return m
}

func (c *crash) node(n *node) *node {
	if out := c.copies[n]; out != nil {
		return out
	}
	var out *node
	if !n.isDir() {
		out = &node{content: c.content(n.content)}
		c.copies[n] = out
		return out
	}
	out = newDir()
	c.copies[n] = out
	entries := c.entriesOf(n)
	for _, name := range slices.Sorted(maps.Keys(entries)) { // in order, for the seed's sake
		child := c.node(entries[name])
		out.children[name] = child
		out.durable[name] = child
	}
	return out
}

func (c *crash) content(old *content) *content {
	out := newContent()
	maps.Copy(out.durable, old.durable)
	out.size = old.durableSize
	if old.size != old.durableSize && c.keeps() {
		out.size = old.size
	}
	for _, no := range slices.Sorted(maps.Keys(old.dirty)) {
		if p := c.page(old.durable[no], old.pages[no]); p != nil {
			out.durable[no] = p
		} else {
			delete(out.durable, no)
		}
	}
	for no, p := range out.durable {
		switch begin := no * pageBytes; {
		case begin >= out.size:
			delete(out.durable, no)
		case begin+pageBytes > out.size: // nothing shines through behind the end
			cut := *p
			clear(cut[out.size-begin:])
			out.durable[no] = &cut
		}
	}
	out.durableSize = out.size
	maps.Copy(out.pages, out.durable)
	return out
}

// page chooses what becomes of one unsynced page. nil: zeros.
func (c *crash) page(old, now page) page {
	torn := false
	switch c.policy {
	case CrashLose:
		return old
	case CrashRandom:
		switch c.rng.IntN(3) {
		case 0:
			return old
		case 1:
			torn = true
		}
	}
	if now == nil || now == zeroPage && !torn {
		return now
	}
	out := *now
	if torn {
		if old == nil {
			old = zeroPage
		}
		for s := 0; s < pageBytes; s += sectorBytes {
			if c.rng.IntN(2) == 0 {
				copy(out[s:s+sectorBytes], old[s:])
			}
		}
	}
	return &out
}
