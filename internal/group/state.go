package group

import (
	"time"

	"github.com/tube-mq/tube/internal/group/grouppb"
	"github.com/tube-mq/tube/internal/record"
)

// State is what is replicated of a group besides its offsets. It is immutable:
// every change makes a new one, so it may be kept and compared by pointer.
type State struct {
	// Version is the index of the entry that made this State.
	Version      record.Index
	ProtocolType string // "consumer", "connect", …; empty: never had members
	Protocol     string // the assignor that all members know; empty without members
	Generation   int32
	Leader       string // id of the member that assigns
	// Assigned is false between PutGeneration and Assign.
	Assigned bool
	Members  []Member  // in the order in which they joined
	Since    time.Time // wall clock of the proposer, for display
	// ByCoordinator: the coordinator assigns the partitions (KIP-848), and the
	// members, so many, are in the Machine's Consumers. Generation is the group's
	// epoch then, so that neither goes back when the group becomes the other.
	ByCoordinator bool
	Consumers     int

	byID       map[string]int    // member id → position in Members
	byInstance map[string]string // instance id → member id
}

// Member is one member of a generation.
type Member struct {
	ID         string
	Instance   string // static membership (KIP-345); empty: dynamic
	ClientID   string
	ClientHost string
	Session    time.Duration // silence after which the member is taken out
	Rebalance  time.Duration // how long it may take to rejoin
	Protocols  []Protocol    // in the member's order of preference
	Assignment []byte        // opaque; written by the leader
}

// Protocol is one way of assigning that a member knows, with what it tells the
// leader about itself; opaque here.
type Protocol struct {
	Name     string
	Metadata []byte
}

// Member finds a member by id; nil if there is none.
func (s *State) Member(id string) *Member {
	if s == nil {
		return nil
	}
	if i, ok := s.byID[id]; ok {
		return &s.Members[i]
	}
	return nil
}

// empty reports that nobody is in the group; a group that does not exist is empty.
func (s *State) empty() bool { return s == nil || len(s.Members) == 0 && s.Consumers == 0 }

// version is 0 for a group that does not exist.
func (s *State) version() record.Index {
	if s == nil {
		return 0
	}
	return s.Version
}

// fenced reports that instance belongs to another member than id.
func (s *State) fenced(instance, id string) bool {
	if instance == "" || s == nil {
		return false
	}
	owner, ok := s.byInstance[instance]
	return ok && owner != id
}

// metadata is what the member says for one protocol; nil if it does not know it.
func (m *Member) metadata(protocol string) []byte {
	for _, p := range m.Protocols {
		if p.Name == protocol {
			return p.Metadata
		}
	}
	return nil
}

// bytes is about what the member takes in memory and in the log.
func (m *Member) bytes() int {
	n := len(m.ID) + len(m.Instance) + len(m.ClientID) + len(m.ClientHost) + len(m.Assignment) + 64
	for _, p := range m.Protocols {
		n += len(p.Name) + len(p.Metadata)
	}
	return n
}

// newState builds a State from its stored form.
func newState(version record.Index, pb *grouppb.State) *State {
	s := &State{
		Version: version, ProtocolType: pb.GetProtocolType(), Protocol: pb.GetProtocol(),
		Generation: pb.GetGeneration(), Leader: pb.GetLeader(), Assigned: pb.GetAssigned(),
		Since: time.UnixMilli(pb.GetTimeMillis()),
	}
	for _, m := range pb.GetMembers() {
		s.Members = append(s.Members, memberFrom(m))
	}
	s.index()
	return s
}

// with returns a copy that a change may write to before anybody sees it.
func (s *State) with(version record.Index, now time.Time) *State {
	c := *s
	c.Version, c.Since = version, now
	c.Members = append([]Member(nil), s.Members...)
	return &c
}

func (s *State) index() {
	s.byID = make(map[string]int, len(s.Members))
	s.byInstance = map[string]string{}
	for i := range s.Members {
		s.byID[s.Members[i].ID] = i
		if in := s.Members[i].Instance; in != "" {
			s.byInstance[in] = s.Members[i].ID
		}
	}
}

func (s *State) proto() *grouppb.State {
	pb := &grouppb.State{
		Version: uint64(s.Version), ProtocolType: s.ProtocolType, Protocol: s.Protocol,
		Generation: s.Generation, Leader: s.Leader, Assigned: s.Assigned, TimeMillis: s.Since.UnixMilli(),
	}
	for i := range s.Members {
		pb.Members = append(pb.Members, s.Members[i].proto())
	}
	return pb
}

func memberFrom(pb *grouppb.Member) Member {
	m := Member{
		ID: pb.GetId(), Instance: pb.GetInstance(), ClientID: pb.GetClientId(), ClientHost: pb.GetClientHost(),
		Session:    time.Duration(pb.GetSessionMillis()) * time.Millisecond,
		Rebalance:  time.Duration(pb.GetRebalanceMillis()) * time.Millisecond,
		Assignment: pb.GetAssignment(),
	}
	for _, p := range pb.GetProtocols() {
		m.Protocols = append(m.Protocols, Protocol{Name: p.GetName(), Metadata: p.GetMetadata()})
	}
	return m
}

func (m *Member) proto() *grouppb.Member {
	pb := &grouppb.Member{
		Id: m.ID, Instance: m.Instance, ClientId: m.ClientID, ClientHost: m.ClientHost,
		SessionMillis: m.Session.Milliseconds(), RebalanceMillis: m.Rebalance.Milliseconds(),
		Assignment: m.Assignment,
	}
	for _, p := range m.Protocols {
		pb.Protocols = append(pb.Protocols, &grouppb.Protocol{Name: p.Name, Metadata: p.Metadata})
	}
	return pb
}
