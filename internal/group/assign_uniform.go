package group

import (
	"cmp"
	"slices"
)

// uniform is for readers that all read the same. Everybody gets as many, give or
// take one, and no partition moves that need not: who had more than the least is
// the first to be allowed one more, and only what is beyond that is taken away,
// what is far from its reader first.
func (a *assignment) uniform() {
	if len(a.readers) == 0 {
		return
	}
	quota := a.quotas()
	a.takeBeyond(quota)
	a.fill(quota)
}

// quotas are how many partitions each reader is to have.
func (a *assignment) quotas() []int {
	n := len(a.readers)
	least, more := len(a.owner)/n, len(a.owner)%n
	order := make([]int, n)
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(x, y int) int { return cmp.Compare(a.load[y], a.load[x]) })
	quota := make([]int, n)
	for _, i := range order {
		quota[i] = least
		if more > 0 && a.load[i] > least {
			quota[i]++
			more--
		}
	}
	if more > 0 && a.zoned() {
		more = a.moreWhereItIsNear(quota, more)
	}
	for _, i := range order {
		if more > 0 && quota[i] == least {
			quota[i]++
			more--
		}
	}
	return quota
}

func (a *assignment) zoned() bool {
	return slices.ContainsFunc(a.readers, func(r reader) bool { return r.zone != "" })
}

// moreWhereItIsNear gives the odd partitions to readers of the zones that have
// more free partitions than their readers' quotas hold.
func (a *assignment) moreWhereItIsNear(quota []int, more int) int {
	room := map[string]int{}
	for p, i := range a.owner {
		if i < 0 && len(a.zones(p)) > 0 {
			room[a.zones(p)[0]]++
		}
	}
	for i, r := range a.readers {
		room[r.zone] -= max(0, quota[i]-a.load[i])
	}
	least := len(a.owner) / len(a.readers)
	for i, r := range a.readers {
		if more > 0 && r.zone != "" && quota[i] == least && room[r.zone] > 0 {
			quota[i]++
			more--
			room[r.zone]--
		}
	}
	return more
}

// takeBeyond frees what readers have beyond their quota.
func (a *assignment) takeBeyond(quota []int) {
	for _, far := range []bool{true, false} {
		for p := len(a.owner) - 1; p >= 0; p-- {
			if i := a.owner[p]; i >= 0 && a.load[i] > quota[i] && (!far || !a.near(p, i)) {
				a.give(p, -1)
			}
		}
	}
}

// fill deals out what nobody has: first to readers in a zone of the partition,
// then to whoever has room, in turn, so that a topic spreads over all.
func (a *assignment) fill(quota []int) {
	if a.zoned() {
		byZone := map[string]*ring{}
		for i, r := range a.readers {
			if r.zone != "" && a.load[i] < quota[i] {
				if byZone[r.zone] == nil {
					byZone[r.zone] = &ring{}
				}
				byZone[r.zone].of = append(byZone[r.zone].of, i)
			}
		}
		for p, owner := range a.owner {
			for _, z := range a.zones(p) {
				if owner < 0 && byZone[z] != nil {
					if i, ok := byZone[z].next(a.load, quota); ok {
						a.give(p, i)
						break
					}
				}
			}
		}
	}
	var all ring
	for i := range a.readers {
		all.of = append(all.of, i)
	}
	for p, owner := range a.owner {
		if owner < 0 {
			if i, ok := all.next(a.load, quota); ok {
				a.give(p, i)
			}
		}
	}
}

// ring goes round readers that have room.
type ring struct {
	of []int
	at int
}

func (r *ring) next(load, quota []int) (int, bool) {
	for len(r.of) > 0 {
		r.at %= len(r.of)
		i := r.of[r.at]
		if load[i] < quota[i] {
			r.at++
			return i, true
		}
		r.of = slices.Delete(r.of, r.at, r.at+1)
	}
	return 0, false
}
