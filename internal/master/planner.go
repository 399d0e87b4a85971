package master

import (
	"cmp"
	"slices"
	"time"

	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/record"
)

// PlannerConfig says how patient the active master is. Zero values mean the defaults.
type PlannerConfig struct {
	// DownAfter is how long a node is not heard of before it counts as down, and
	// heard of again before it counts as up. Default 3 s.
	DownAfter time.Duration
	// ReplaceAfter is how long a node is not heard of before its replicas are
	// made anew on others. Default 10 min.
	ReplaceAfter time.Duration
	// MaxMoves is how many partitions plans may have under way at once. Default 20.
	MaxMoves int
	// MaxTransfers is how many leaders are moved by one plan. Default 20.
	MaxTransfers int
	// LeaderImbalance is the share of the partitions that a node is the preferred
	// leader of which others may lead before it gets them back. Default 0.1.
	LeaderImbalance float64
	// LeaderAfter is how long a node is heard of before it is given leaders back.
	// Default 10 s.
	LeaderAfter time.Duration
}

func (c PlannerConfig) withDefaults() PlannerConfig {
	return PlannerConfig{
		DownAfter: cmp.Or(c.DownAfter, 3*time.Second), ReplaceAfter: cmp.Or(c.ReplaceAfter, 10*time.Minute),
		MaxMoves: cmp.Or(c.MaxMoves, 20), MaxTransfers: cmp.Or(c.MaxTransfers, 20),
		LeaderImbalance: cmp.Or(c.LeaderImbalance, 0.1), LeaderAfter: cmp.Or(c.LeaderAfter, 10*time.Second),
	}
}

// Seen is what the active master hears of a node.
type Seen struct {
	Alive bool
	Since time.Time // when that began
}

// View is all that a plan depends on.
type View struct {
	Now   time.Time
	Image *meta.Image
	// Alive says of every node whether it is heard of; the active master's own is
	// in it. About a node that is missing nothing is known, and nothing is done.
	Alive map[record.NodeID]Seen
	// Leads says who leads a partition; one that is missing has no leader that
	// anybody knows of.
	Leads map[record.TopicPartition]record.NodeID
	// Sick are nodes that should lead nothing, and why, for example as their disk
	// is slow: as they say themselves.
	Sick map[record.NodeID]string
	// Behind reports whether a partition's replica on a node lacks too much to
	// take the lead; nil: none does.
	Behind func(record.TopicPartition, record.NodeID) bool
	// Begun reports whether anything was copied for a partition's Target; nil: it
	// may have been.
	Begun func(record.TopicPartition) bool
	// Tried reports whether a leader was asked to pass a partition on a short
	// while ago; nil: it was not.
	Tried  func(record.TopicPartition) bool
	Config PlannerConfig
}

// Action is what a plan asks for: SetState, SetSick, RaiseLevel, Reassign or TransferLeader.
type Action interface{ action() }

// SetState is a command of the meta log: see meta.SetNodeState.
type SetState struct {
	Node  record.NodeID
	State meta.NodeState // up or down
}

// SetSick is a command of the meta log: see meta.SetNodeSick.
type SetSick struct {
	Node record.NodeID
	Why  string // empty: it is well
}

// RaiseLevel is a command of the meta log: see meta.SetLevel.
type RaiseLevel struct{ Level meta.Level }

// Reassign is a command of the meta log: see meta.Reassign.
type Reassign struct{ meta.Move }

// TransferLeader asks a partition's leader to let another node lead.
type TransferLeader struct {
	record.TopicPartition
	From, To record.NodeID
}

func (SetState) action()       {}
func (SetSick) action()        {}
func (RaiseLevel) action()     {}
func (Reassign) action()       {}
func (TransferLeader) action() {}

// Plan says what the active master does next, the most urgent first. It is pure
// and remembers nothing: called again with what has come of it, it goes on until
// there is nothing to do.
//
// Whoever sees fewer than half of the nodes may be the one that is cut off, and
// does nothing; who sees just half takes nodes for down, if it sees a majority
// of the masters, but moves nothing.
func Plan(v View) []Action {
	p := newPlanner(v)
	var out []Action
	out = append(out, p.states()...)
	out = append(out, p.health()...)
	out = append(out, p.level()...)
	if 2*p.heard > len(v.Image.Nodes) {
		out = append(out, p.moves()...)
		out = append(out, p.transfers()...)
	}
	return out
}

type planner struct {
	View
	heard int // nodes
	// partitions in the order of topics' names.
	partitions []*placed
}

// placed is a partition as a plan looks at it.
type placed struct {
	record.TopicPartition
	*meta.Placement
	name string // of the topic
	// left are its replicas that are neither lost nor on nodes that are not heard
	// of; quorum: enough of them to change anything.
	left   int
	quorum bool
}

func newPlanner(v View) *planner {
	v.Config = v.Config.withDefaults()
	if v.Behind == nil {
		v.Behind = func(record.TopicPartition, record.NodeID) bool { return false }
	}
	if v.Begun == nil {
		v.Begun = func(record.TopicPartition) bool { return true }
	}
	if v.Tried == nil {
		v.Tried = func(record.TopicPartition) bool { return false }
	}
	p := &planner{View: v}
	for id := range v.Image.Nodes {
		if v.Alive[id].Alive {
			p.heard++
		}
	}
	for _, t := range v.Image.Topics {
		for i := range t.Partitions {
			pl := &placed{TopicPartition: record.TopicPartition{Topic: t.ID, Partition: record.Partition(i)}, Placement: &t.Partitions[i], name: t.Name}
			for _, r := range pl.Replicas {
				if !r.Lost && v.Alive[r.Node].Alive {
					pl.left++
				}
			}
			pl.quorum = 2*pl.left > len(pl.Replicas)
			p.partitions = append(p.partitions, pl)
		}
	}
	slices.SortFunc(p.partitions, func(a, b *placed) int {
		return cmp.Or(cmp.Compare(a.name, b.name), cmp.Compare(a.Partition, b.Partition))
	})
	return p
}

// states notes who is up and who is down.
func (p *planner) states() []Action {
	masters, heard := 0, 0
	for _, n := range p.Image.Masters() {
		masters++
		if p.Alive[n.ID].Alive {
			heard++
		}
	}
	all := len(p.Image.Nodes)
	mayTakeForDown := 2*p.heard > all || 2*p.heard == all && 2*heard > masters
	var out []Action
	for _, id := range sortedNodes(p.Image) {
		n := p.Image.Nodes[id]
		seen, ok := p.Alive[id]
		if !ok {
			continue
		}
		since := seen.Since
		if since.Before(n.Since) && !seen.Alive {
			since = n.Since // it has registered meanwhile
		}
		if p.Now.Sub(since) < p.Config.DownAfter {
			continue
		}
		switch {
		case seen.Alive && n.State == meta.NodeDown:
			out = append(out, SetState{id, meta.NodeUp})
		case !seen.Alive && n.State != meta.NodeDown && mayTakeForDown:
			out = append(out, SetState{id, meta.NodeDown})
		}
	}
	return out
}

// health notes who is sick and who is well again, of those that are heard of.
func (p *planner) health() []Action {
	var out []Action
	for _, id := range sortedNodes(p.Image) {
		if p.Alive[id].Alive && p.sick(id) != (p.Image.Nodes[id].Sick != "") {
			out = append(out, SetSick{id, p.Sick[id]})
		}
	}
	return out
}

// level has the cluster use what all its nodes know.
func (p *planner) level() []Action {
	if common, ok := p.Image.CommonLevel(); ok && common > p.Image.Level {
		return []Action{RaiseLevel{common}}
	}
	return nil
}

func (p *planner) sick(id record.NodeID) bool { return p.Sick[id] != "" }

func sortedNodes(im *meta.Image) []record.NodeID {
	ids := make([]record.NodeID, 0, len(im.Nodes))
	for id := range im.Nodes {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// gone reports whether a replica is to be made anew elsewhere: it is lost, or
// its node is no more or was not heard of for too long.
func (p *planner) gone(r meta.Replica) bool {
	n := p.Image.Nodes[r.Node]
	if n == nil || r.Lost {
		return true
	}
	// How long is by this master's own ears: a clock that was set forward, or a
	// master that has just become active, makes nobody's data move.
	seen, ok := p.Alive[r.Node]
	return ok && !seen.Alive && n.State == meta.NodeDown && p.Now.Sub(seen.Since) >= p.Config.ReplaceAfter
}

// mayTake reports whether a node can be given replicas.
func (p *planner) mayTake(n *meta.Node) bool {
	return takes(n) && p.Alive[n.ID].Alive
}

// moves replaces what is gone and empties nodes that drain, as many partitions at
// a time as are allowed, first those with the fewest replicas left.
func (p *planner) moves() []Action {
	room := p.Config.MaxMoves
	var due []*placed
	for _, pl := range p.partitions {
		switch {
		case !pl.quorum: // nothing can be changed about it, so it is nobody's turn either
		case pl.Target != nil:
			if planned(pl) && p.canReach(pl) {
				room--
			}
			due = append(due, pl)
		default:
			due = append(due, pl)
		}
	}
	// Partitions under way come first: another target does not take more room.
	slices.SortStableFunc(due, func(a, b *placed) int {
		return cmp.Or(cmp.Compare(idle(a), idle(b)), cmp.Compare(spare(a), spare(b)))
	})
	var out []Action
	var f *fleet // made when it is needed
	for _, pl := range due {
		underWay := planned(pl) && p.canReach(pl)
		if !underWay && room <= 0 {
			continue
		}
		if back, ok := p.cancel(pl); ok {
			out = append(out, back)
			continue
		}
		cause := p.cause(pl)
		if cause == "" {
			continue
		}
		if f == nil {
			f = newFleet(p.Image, 0, p.mayTake)
		}
		nodes, ok := p.elsewhere(f, pl)
		if !ok {
			continue
		}
		if !underWay {
			room--
		}
		out = append(out, Reassign{meta.Move{TopicPartition: pl.TopicPartition, Nodes: nodes, Cause: cause}})
	}
	return out
}

// planned reports whether a plan began the move under way. What people asked for
// does not keep what is urgent waiting.
func planned(pl *placed) bool {
	return pl.Target != nil && (pl.Cause == meta.CauseReplace || pl.Cause == meta.CauseDrain)
}

// canReach reports whether all that are to copy are there.
func (p *planner) canReach(pl *placed) bool {
	return !slices.ContainsFunc(pl.Target, func(r meta.Replica) bool { return !r.Lost && !p.Alive[r.Node].Alive })
}

func idle(pl *placed) int {
	if pl.Target == nil {
		return 1
	}
	return 0
}

// spare is how many more replicas can be lost before nothing can be decided.
func spare(pl *placed) int { return pl.left - len(pl.Replicas)/2 - 1 }

// cancel gives up a move that the plan began when its reason is gone and nothing
// was copied yet.
func (p *planner) cancel(pl *placed) (Action, bool) {
	if !planned(pl) || p.Begun(pl.TopicPartition) {
		return nil, false
	}
	var nodes []record.NodeID
	for _, r := range pl.Replicas {
		n := p.Image.Nodes[r.Node]
		if r.Lost || n == nil || !p.mayTake(n) {
			return nil, false
		}
		nodes = append(nodes, r.Node)
	}
	if slices.Equal(nodes, nodesOf(pl.Target)) { // another move has led back here
		return nil, false
	}
	return Reassign{meta.Move{TopicPartition: pl.TopicPartition, Nodes: nodes, Cause: meta.CauseCancel}}, true
}

// cause says why a partition has to move; "" if it has not.
func (p *planner) cause(pl *placed) string {
	cause := ""
	for _, r := range pl.Wanted() {
		if p.gone(r) {
			return meta.CauseReplace
		}
		if p.Image.Nodes[r.Node].Drain {
			cause = meta.CauseDrain
		}
	}
	return cause
}

// elsewhere puts other nodes in the place of those that are gone or drain. One
// that none can be found for stays; false: that goes for all.
func (p *planner) elsewhere(f *fleet, pl *placed) ([]record.NodeID, bool) {
	var taken []record.NodeID
	var leaves []int
	zones := map[string]int{}
	wanted := pl.Wanted()
	for i, r := range wanted {
		taken = append(taken, r.Node)
		n := p.Image.Nodes[r.Node]
		if p.gone(r) || n.Drain {
			leaves = append(leaves, i)
			continue
		}
		zones[n.Zone]++
	}
	// Those that are lost come first: there may not be a node for each.
	slices.SortStableFunc(leaves, func(a, b int) int { return boolCompare(!p.gone(wanted[a]), !p.gone(wanted[b])) })
	nodes, moved, again := slices.Clone(taken), false, false
	for _, i := range leaves {
		r := wanted[i]
		if p.canRenew(r) {
			again = true // on the same node, with nothing in between
			zones[p.Image.Nodes[r.Node].Zone]++
			continue
		}
		l := f.best(taken, zones)
		if l == nil {
			continue
		}
		moved = true
		nodes[i] = l.node.ID
		taken = append(taken, l.node.ID)
		zones[l.node.Zone]++
		l.take(1)
		if i == 0 {
			l.leaders++
		}
	}
	if !moved && !again {
		return nil, false
	}
	return nodes, true
}

// canRenew reports whether a lost replica's node is there and can have another.
func (p *planner) canRenew(r meta.Replica) bool {
	n := p.Image.Nodes[r.Node]
	return r.Lost && n != nil && p.mayTake(n)
}

func boolCompare(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}
