package group

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/tube-mq/tube/internal/group/grouppb"
	"github.com/tube-mq/tube/internal/record"
)

// MaxClockStep is the most that one entry moves the retention clock.
const MaxClockStep = time.Hour

// Machine is the replicated state of one groups shard. It is not safe for
// concurrent use.
type Machine struct {
	groups map[string]*stored
	// clock is the time that offsets age by. Invariant: it never goes back and
	// moves by Expire only.
	clock time.Duration
	index record.Index // of the last entry applied
	bytes int          // see Bytes; Invariant: the sum over groups, topics, positions
}

// stored is one group.
type stored struct {
	state *State // never nil
	// consumers is there while the state says ByCoordinator.
	consumers *Consumers
	// emptyClock is when the group last became empty, by the machine's clock.
	// It counts only while the group is empty.
	emptyClock time.Duration
	topics     map[record.TopicID]*topicOffsets
}

// Result is what one applied entry did.
type Result struct {
	Group string // empty for entries about the whole shard
	// State of the group after the entry; nil if there is none.
	State *State
	Err   error // one of the package's sentinels; the entry then changed nothing
}

// NewMachine returns an empty shard.
func NewMachine() *Machine { return &Machine{groups: map[string]*stored{}} }

// Apply applies one committed command. The outcome depends on nothing but the
// commands before it. An error that is ErrUnknownCommand means that this replica
// cannot follow: its owner must stop it.
func (m *Machine) Apply(index record.Index, data []byte) Result {
	m.index = index
	var cmd grouppb.Command
	if err := proto.Unmarshal(data, &cmd); err != nil {
		return Result{Err: fmt.Errorf("entry %d: %w: %v", index, ErrUnknownCommand, err)}
	}
	now := time.UnixMilli(cmd.GetTimeMillis())
	switch k := cmd.GetKind().(type) {
	case *grouppb.Command_PutGeneration:
		return m.result(k.PutGeneration.GetGroup(), m.putGeneration(index, now, k.PutGeneration))
	case *grouppb.Command_Assign:
		return m.result(k.Assign.GetGroup(), m.assign(index, now, k.Assign))
	case *grouppb.Command_ReplaceMember:
		return m.result(k.ReplaceMember.GetGroup(), m.replaceMember(index, now, k.ReplaceMember))
	case *grouppb.Command_DeleteGroup:
		return m.result(k.DeleteGroup.GetGroup(), m.deleteGroup(k.DeleteGroup.GetGroup()))
	case *grouppb.Command_CommitOffsets:
		return m.result(k.CommitOffsets.GetGroup(), m.commit(index, now, k.CommitOffsets))
	case *grouppb.Command_DeleteOffsets:
		return m.result(k.DeleteOffsets.GetGroup(), m.deleteOffsets(k.DeleteOffsets))
	case *grouppb.Command_Expire:
		m.expire(k.Expire)
		return Result{}
	case *grouppb.Command_ForgetTopics:
		m.forgetTopics(k.ForgetTopics)
		return Result{}
	case *grouppb.Command_ChangeConsumers:
		return m.result(k.ChangeConsumers.GetGroup(), m.changeConsumers(index, now, k.ChangeConsumers))
	case *grouppb.Command_BecomeClassic:
		return m.result(k.BecomeClassic.GetGroup(), m.becomeClassic(index, now, k.BecomeClassic))
	default:
		return Result{Err: fmt.Errorf("entry %d: %w", index, ErrUnknownCommand)}
	}
}

func (m *Machine) result(name string, err error) Result {
	return Result{Group: name, State: m.State(name), Err: err}
}

// State returns the group's replicated state; nil if there is no such group.
func (m *Machine) State(name string) *State {
	if g := m.groups[name]; g != nil {
		return g.state
	}
	return nil
}

// Len is the number of groups.
func (m *Machine) Len() int { return len(m.groups) }

// Index is that of the last entry applied.
func (m *Machine) Index() record.Index { return m.index }

// replace puts a new state in a group's place if the group is still at base.
func (m *Machine) replace(name string, base uint64, s *State) error {
	g := m.groups[name]
	if uint64(m.State(name).version()) != base {
		return ErrConflict
	}
	if g == nil {
		g = m.create(name)
	}
	if s.empty() {
		g.emptyClock = m.clock
	}
	g.state = s
	if !s.ByCoordinator {
		m.dropConsumers(g)
	}
	return nil
}

func (m *Machine) create(name string) *stored {
	g := &stored{emptyClock: m.clock, topics: map[record.TopicID]*topicOffsets{}}
	m.groups[name] = g
	m.bytes += groupBytes + len(name)
	return g
}

// putGeneration refuses a generation that is not the next one: numbers are
// given out once.
func (m *Machine) putGeneration(index record.Index, now time.Time, c *grouppb.PutGeneration) error {
	old := m.State(c.GetGroup())
	if old != nil && (c.GetState().GetGeneration() <= old.Generation || old.Consumers > 0) {
		return ErrConflict
	}
	s := newState(index, c.GetState())
	s.Since, s.Assigned = now, false
	for i := range s.Members {
		s.Members[i].Assignment = nil
	}
	return m.replace(c.GetGroup(), c.GetBase(), s)
}

func (m *Machine) assign(index record.Index, now time.Time, c *grouppb.Assign) error {
	old := m.State(c.GetGroup())
	if old.empty() || old.Assigned || old.Generation != c.GetGeneration() {
		return ErrConflict
	}
	s := old.with(index, now)
	s.Assigned = true
	for _, a := range c.GetAssignments() {
		if i, ok := s.byID[a.GetMember()]; ok {
			s.Members[i].Assignment = a.GetData()
		}
	}
	return m.replace(c.GetGroup(), c.GetBase(), s)
}

func (m *Machine) replaceMember(index record.Index, now time.Time, c *grouppb.ReplaceMember) error {
	old := m.State(c.GetGroup())
	was := old.Member(c.GetOldMember())
	if was == nil || was.Instance == "" || was.Instance != c.GetMember().GetInstance() {
		return ErrConflict
	}
	s := old.with(index, now)
	next := memberFrom(c.GetMember())
	next.Assignment = was.Assignment
	s.Members[s.byID[was.ID]] = next
	if s.Leader == was.ID {
		s.Leader = next.ID
	}
	s.index()
	return m.replace(c.GetGroup(), c.GetBase(), s)
}

func (m *Machine) deleteGroup(name string) error {
	g := m.groups[name]
	switch {
	case g == nil:
		return ErrGroupNotFound
	case !g.state.empty():
		return ErrNonEmpty
	}
	m.remove(name)
	return nil
}

func (m *Machine) remove(name string) {
	g := m.groups[name]
	m.dropConsumers(g)
	for id := range g.topics {
		m.dropTopic(g, id)
	}
	delete(m.groups, name)
	m.bytes -= groupBytes + len(name)
}
