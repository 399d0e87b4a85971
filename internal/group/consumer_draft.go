package group

import (
	"maps"
	"slices"
	"strings"

	"github.com/tube-mq/tube/internal/group/grouppb"
	"github.com/tube-mq/tube/internal/record"
)

// draft is a change of a Consumers that is not committed yet: what differs lies
// over what is there.
type draft struct {
	base               *Consumers
	epoch, targetEpoch int32
	assignor           string
	topicsHash         uint64
	topicsIndex        record.Index

	members   map[string]*ConsumerMember // nil: removed
	instances map[string]string          // empty: nobody's
	targets   map[string]Partitions      // nil: removed
	owners    map[record.TopicPartition]string

	count int // members
	grown int // bytes by which the group becomes larger, at most
	// stale: who is in, or what is read, is not what the targets were made for.
	stale bool
}

// view is a draft without changes. It allocates nothing.
func (c *Consumers) view() draft {
	return draft{
		base: c, epoch: c.Epoch, targetEpoch: c.TargetEpoch, assignor: c.Assignor, topicsHash: c.TopicsHash, topicsIndex: c.TopicsIndex,
		count: len(c.members),
	}
}

// draft is a view that can be changed.
func (c *Consumers) draft() *draft {
	d := c.view()
	d.members, d.instances = map[string]*ConsumerMember{}, map[string]string{}
	d.targets, d.owners = map[string]Partitions{}, map[record.TopicPartition]string{}
	return &d
}

func (d *draft) member(id string) *ConsumerMember {
	if m, ok := d.members[id]; ok {
		return m
	}
	return d.base.members[id]
}

// static finds a member by its instance.
func (d *draft) static(instance string) *ConsumerMember {
	id, ok := d.instances[instance]
	if !ok {
		id = d.base.byInstance[instance]
	}
	if id == "" {
		return nil
	}
	return d.member(id)
}

func (d *draft) target(id string) Partitions {
	if t, ok := d.targets[id]; ok {
		return t
	}
	return d.base.targets[id]
}

func (d *draft) owner(tp record.TopicPartition) string {
	if id, ok := d.owners[tp]; ok {
		return id
	}
	return d.base.owners[tp]
}

// put adds the member, or replaces the one of its id.
func (d *draft) put(m *ConsumerMember) {
	if old := d.member(m.ID); old != nil {
		d.disown(old)
	} else {
		d.count++
	}
	d.members[m.ID] = m
	if m.Instance != "" {
		d.instances[m.Instance] = m.ID
	}
	for _, set := range []Partitions{m.Assigned, m.Revoking} {
		for _, tp := range set {
			d.owners[tp] = m.ID
		}
	}
}

// remove takes the member out, and all that it has.
func (d *draft) remove(m *ConsumerMember) {
	d.disown(m)
	d.count--
	d.members[m.ID], d.targets[m.ID] = nil, nil
	if m.Instance != "" {
		d.instances[m.Instance] = ""
	}
}

func (d *draft) disown(m *ConsumerMember) {
	for _, set := range []Partitions{m.Assigned, m.Revoking} {
		for _, tp := range set {
			d.owners[tp] = ""
		}
	}
}

// ids lists the members' ids, sorted.
func (d *draft) ids() []string {
	ids := make([]string, 0, d.count)
	for id := range d.base.members {
		if _, changed := d.members[id]; !changed {
			ids = append(ids, id)
		}
	}
	for id, m := range d.members {
		if m != nil {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

// changed reports that there is something to commit.
func (d *draft) changed() bool {
	return len(d.members) > 0 || len(d.targets) > 0 || d.epoch != d.base.Epoch
}

// retarget begins the next epoch and says who is to have what in it. topicsOf
// resolves what a member reads.
func (d *draft) retarget(topics *Topics, topicsOf func(*ConsumerMember) []*Topic) {
	d.stale = false
	d.epoch++
	d.targetEpoch = d.epoch
	d.assignor = d.elect()
	readers := make([]reader, 0, d.count)
	var last *ConsumerMember
	for _, id := range d.ids() {
		m := d.member(id)
		r := reader{id: id, instance: m.Instance, zone: m.Zone, has: d.target(id)}
		if last != nil && last.Pattern == m.Pattern && slices.Equal(last.Topics, m.Topics) {
			r.topics = readers[len(readers)-1].topics
		} else {
			r.topics = topicsOf(m)
		}
		last = m
		readers = append(readers, r)
	}
	d.topicsHash, d.topicsIndex = hashOf(readers), topics.Index
	for i, t := range assignTargets(d.assignor, readers) {
		if id := readers[i].id; !t.equal(d.target(id)) {
			d.targets[id] = t
		}
	}
}

// hashOf is that of the topics that are read.
func hashOf(readers []reader) uint64 {
	seen := map[*Topic]bool{}
	for i, r := range readers {
		if i > 0 && len(r.topics) > 0 && len(readers[i-1].topics) == len(r.topics) && &readers[i-1].topics[0] == &r.topics[0] {
			continue
		}
		for _, t := range r.topics {
			seen[t] = true
		}
	}
	return sumOf(seen)
}

func sumOf(topics map[*Topic]bool) (h uint64) {
	for t := range topics {
		h += t.hash
	}
	return h
}

// elect is the assignor that most members ask for.
func (d *draft) elect() string {
	votes := map[string]int{}
	for id, m := range d.base.members {
		if _, changed := d.members[id]; !changed {
			votes[m.Assignor]++
		}
	}
	for _, m := range d.members {
		if m != nil {
			votes[m.Assignor]++
		}
	}
	best := Assignors[0]
	for _, a := range Assignors {
		if votes[a] > votes[best] {
			best = a
		}
	}
	return best
}

// reconcile brings a member as far towards its target as is safe now. owned is
// what it says it has; said is false if it does not say. The answer is m itself
// if nothing changes.
//
//	        target is newer              has given up
//	stable ─────────────────► revoking ────────────────┐
//	  ▲  ▲                                             ▼
//	  │  └────────────────────────────── target's epoch reached
//	  │    others gave up                              │ part belongs to others
//	  └───────────────────────── waiting ◄─────────────┘
func (d *draft) reconcile(m *ConsumerMember, owned Partitions, said bool) *ConsumerMember {
	switch {
	case m.Epoch < 0:
		return m
	case len(m.Revoking) > 0:
		if !said || len(owned.and(m.Revoking)) > 0 {
			return m
		}
		// One epoch on, so that nobody commits what was given up.
		return d.advance(m, m.Epoch+1, owned, said)
	case m.Waiting || m.Epoch != d.targetEpoch:
		return d.advance(m, m.Epoch, owned, said)
	}
	return m
}

func (d *draft) advance(m *ConsumerMember, epoch int32, owned Partitions, said bool) *ConsumerMember {
	next := *m
	target := d.target(m.ID)
	keep, give := m.Assigned.and(target), m.Assigned.minus(target)
	if len(give) > 0 && (!said || len(owned.and(give)) > 0) {
		next.Assigned, next.Revoking, next.Waiting = keep, give, false
	} else {
		wanted := target.minus(keep)
		free := make(Partitions, 0, len(wanted))
		for _, tp := range wanted {
			if id := d.owner(tp); id == "" || id == m.ID {
				free = append(free, tp)
			}
		}
		next.Assigned, next.Revoking, next.Waiting = keep.plus(free), nil, len(free) < len(wanted)
		epoch = d.targetEpoch
	}
	if epoch != m.Epoch {
		next.PreviousEpoch, next.Epoch = m.Epoch, epoch
	} else if next.Waiting == m.Waiting && next.Assigned.equal(m.Assigned) && next.Revoking.equal(m.Revoking) {
		return m
	}
	return &next
}

// command is what commits the draft.
func (d *draft) command(name string, base record.Index) *grouppb.Command {
	pb := &grouppb.ChangeConsumers{
		Group: name, Base: uint64(base), Epoch: d.epoch, TargetEpoch: d.targetEpoch, Assignor: d.assignor,
		TopicsHash: d.topicsHash, TopicsIndex: uint64(d.topicsIndex),
	}
	for _, id := range slices.Sorted(maps.Keys(d.members)) {
		if m := d.members[id]; m != nil {
			pb.Members = append(pb.Members, m.proto())
		} else if d.base.members[id] != nil {
			pb.Removed = append(pb.Removed, id)
		}
	}
	for _, id := range slices.Sorted(maps.Keys(d.targets)) {
		if t := d.targets[id]; t != nil {
			pb.Targets = append(pb.Targets, &grouppb.Target{Member: id, Partitions: t.proto()})
		}
	}
	return &grouppb.Command{Kind: &grouppb.Command_ChangeConsumers{ChangeConsumers: pb}}
}

// compareTopics orders topics by name.
func compareTopics(a, b *Topic) int { return strings.Compare(a.Name, b.Name) }
