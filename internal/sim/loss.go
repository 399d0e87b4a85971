package sim

import (
	"maps"
	"slices"

	"github.com/tube-mq/tube/internal/record"
	"github.com/tube-mq/tube/internal/replica"
)

// A relaxed group, whose three replicas confirm what they have not synced, may lose what
// was acknowledged, but only if two of them have forgotten it at the same time: by a power
// cut, or with the whole disk. Then the history is what the next leader has.

// forgot: a node's replica has lost entries that it had confirmed.
func (k *checker) forgot(t *team, n record.NodeID, from record.Index) {
	if !t.relaxed || t.at(n) == 0 {
		return
	}
	hist := k.of(t.id)
	if old, known := hist.forgotten[n]; !known || from < old {
		hist.forgotten[n] = from
	}
	k.c.faults.count("confirmed entries forgotten")
	k.c.log("n%d has forgotten entries of g%d from %d on", n, t.id, from)
	if len(hist.forgotten) < 2 {
		return
	}
	second := slices.Sorted(maps.Values(hist.forgotten))[1]
	if hist.losable == 0 || second < hist.losable {
		hist.losable = second
	}
}

// elected: whoever leads a relaxed group has all that was committed, but for what two
// have forgotten.
func (k *checker) elected(n *node, h *hosted) {
	l := n.host.Look(h.group, false)
	if !h.t.relaxed || l == nil || l.Began == 0 {
		return
	}
	hist, cut := k.of(h.t.id), record.Index(l.Began)
	losable := hist.losable
	hist.losable = 0
	gone := func(i record.Index) bool { return i >= cut }
	known := 0
	for i := range hist.entries {
		if gone(i) {
			known++
		}
	}
	if known == 0 {
		return
	}
	if losable == 0 || cut < losable {
		k.fail("replica %d of group %d leads in term %d with entries up to %d; %d more were committed, and no two had forgotten them (%d)", h.id, h.t.id, l.Term, cut-1, known, losable)
	}
	k.c.log("g%d has lost %d entries from %d on", h.t.id, known, cut)
	k.c.faults.count("committed entries lost with the power of a majority")
	hist.losses++
	hist.lostAt, hist.lostIn = cut, l.Term
	for _, other := range k.c.nodes {
		if oh := other.here[h.t.id]; other.up && !other.dying && oh != nil && oh.group != nil {
			k.overruled(oh, other.host.Look(oh.group, false))
		}
	}
	maps.DeleteFunc(hist.entries, func(i record.Index, _ entry) bool { return gone(i) })
	maps.DeleteFunc(hist.states, func(i uint64, _ uint32) bool { return gone(record.Index(i)) })
	for term, i := range hist.reached {
		hist.reached[term] = min(i, cut-1)
	}
	lost := func(m message) bool { i, known := hist.at[m.offset]; return !known || gone(i) }
	hist.acked = slices.DeleteFunc(hist.acked, lost)
	hist.values = slices.DeleteFunc(hist.values, func(m message) bool { return m.offset != 1<<63 && lost(m) })
	maps.DeleteFunc(hist.at, func(_ uint64, i record.Index) bool { return gone(i) })
}

// overruled notes that a replica holds for committed what the group has lost. Only one
// that did not vote may: those that do are asked.
func (k *checker) overruled(h *hosted, l *replica.Look) {
	hist := k.of(h.t.id)
	if hist.losses == 0 || l == nil || record.Index(l.Applied) < hist.lostAt || l.Term >= hist.lostIn {
		return
	}
	if slices.Contains(l.Voters, uint64(h.id)) {
		k.fail("replica %d of group %d votes and has applied entry %d, and the leader of term %d has only %d of an earlier term", h.id, h.t.id, l.Applied, hist.lostIn, hist.lostAt-1)
	}
	h.overruled = true
	k.c.log("replica %d of g%d is overruled", h.id, h.t.id)
}
