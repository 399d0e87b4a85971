package group

import (
	"time"

	"github.com/tube-mq/tube/internal/record"
)

// JoinRequest asks for a place in a group's next generation.
type JoinRequest struct {
	Group      string
	MemberID   string // empty: a new member
	Instance   string // static membership; empty: dynamic
	ClientID   string
	ClientHost string
	// FreshID is made by the caller and unique: the id of a member that has none yet.
	FreshID string
	// NeedsKnownID: a new dynamic member must come back with the id it is given (KIP-394).
	NeedsKnownID bool
	// CanSkipAssignment: the client understands JoinResponse.SkipAssignment (KIP-814).
	CanSkipAssignment bool
	Session           time.Duration
	Rebalance         time.Duration // ≤ 0: as Session
	ProtocolType      string
	Protocols         []Protocol // in order of preference; kept by the coordinator
}

// JoinResponse answers a JoinRequest, once the generation is committed.
type JoinResponse struct {
	Err            error
	Generation     int32 // −1 on error
	ProtocolType   string
	Protocol       string
	Leader         string
	MemberID       string // also set with ErrMemberIDRequired
	SkipAssignment bool
	Members        []JoinMember // for the leader only
}

// JoinMember is what the leader hears of a member.
type JoinMember struct {
	ID, Instance string
	Metadata     []byte
}

// SyncRequest asks for the member's assignment; the leader's brings them all.
type SyncRequest struct {
	Group        string
	Generation   int32
	MemberID     string
	Instance     string
	ProtocolType string // empty: not said
	Protocol     string // empty: not said
	Assignments  map[string][]byte
}

// SyncResponse answers a SyncRequest, once the assignment is committed.
type SyncResponse struct {
	Err          error
	ProtocolType string
	Protocol     string
	Assignment   []byte
}

// HeartbeatRequest says that a member is alive.
type HeartbeatRequest struct {
	Group      string
	Generation int32
	MemberID   string
	Instance   string
}

// LeaveRequest takes members out of a group.
type LeaveRequest struct {
	Group   string
	Members []LeaveMember
}

// LeaveMember names one by id, by instance id, or by both.
type LeaveMember struct{ ID, Instance string }

// LeaveResponse has one error for each of the request's members, nil if it left.
type LeaveResponse struct {
	Err  error
	Errs []error
}

// CommitRequest stores positions. Generation < 0: from outside the group.
type CommitRequest struct {
	Group      string
	Generation int32
	MemberID   string
	Instance   string
	// NoEpochs: the request is of a version that knows no member epochs.
	NoEpochs bool
	// Retention asked for by old clients; ≤ 0: the group's.
	Retention time.Duration
	Topics    []CommitTopic
}

// CommitTopic is one topic's part of a CommitRequest.
type CommitTopic struct {
	Topic      record.TopicID
	Name       string
	Partitions []CommitPartition
}

// CommitPartition is one position.
type CommitPartition struct {
	Partition   record.Partition
	Offset      record.Offset
	LeaderEpoch record.Epoch // −1: not said
	Metadata    string
}

// CommitResponse answers a CommitRequest, once the offsets are committed.
type CommitResponse struct {
	// Err is for all partitions.
	Err error
	// Refused are the partitions that were left out while the others were
	// stored: ErrOffsetMetadata, ErrInvalidOffset.
	Refused map[record.TopicPartition]error
}

// FetchOffsetsRequest asks for positions. Nil Topics: for all there are.
type FetchOffsetsRequest struct {
	Group string
	// Member and Epoch of who asks, if it is in a group whose partitions the
	// coordinator assigns; an empty one and −1: not said.
	Member string
	Epoch  int32
	Topics []FetchTopic
}

// FetchTopic names partitions of one topic.
type FetchTopic struct {
	Topic      record.TopicID
	Partitions []record.Partition
}

// FetchOffsetsResponse holds the positions that are there; a partition that is
// not among them has none.
type FetchOffsetsResponse struct {
	Err    error
	Topics []FetchedTopic // by topic id
}

// FetchedTopic is one topic's positions, by partition number.
type FetchedTopic struct {
	Topic      record.TopicID
	Name       string // as of the last commit
	Partitions []FetchedPartition
}

// FetchedPartition is one position.
type FetchedPartition struct {
	Partition record.Partition
	Offset
}

// DeleteOffsetsRequest forgets positions.
type DeleteOffsetsRequest struct {
	Group  string
	Topics []DeleteTopic
}

// DeleteTopic names partitions of one topic.
type DeleteTopic struct {
	Topic      record.TopicID
	Name       string
	Partitions []record.Partition
}

// DeleteOffsetsResponse answers a DeleteOffsetsRequest.
type DeleteOffsetsResponse struct {
	Err error
	// Subscribed are the topics left alone as members still read them.
	Subscribed map[record.TopicID]bool
}

// Phase is a group's state as Kafka names it.
type Phase string

// The phases of a group.
const (
	// Empty: no members, perhaps offsets.
	Empty Phase = "Empty"
	// Preparing: waiting for members to join.
	Preparing Phase = "PreparingRebalance"
	// Completing: the generation is there, its assignment is not.
	Completing Phase = "CompletingRebalance"
	// Stable: everybody may know what to read.
	Stable Phase = "Stable"
	// Dead: there is no such group.
	Dead Phase = "Dead"
)

// Description is a group as it is now.
type Description struct {
	Err          error // ErrGroupNotFound with phase Dead
	Group        string
	Phase        Phase
	ProtocolType string
	Protocol     string
	Generation   int32
	Members      []DescribedMember
}

// DescribedMember is one member; metadata and assignment are there while the
// group is Stable.
type DescribedMember struct {
	ID, Instance, ClientID, ClientHost string
	Metadata, Assignment               []byte
}

// Listing is a group in a list.
type Listing struct {
	Group        string
	ProtocolType string
	Phase        Phase
	// ByCoordinator: the coordinator assigns the partitions.
	ByCoordinator bool
	// Share: it is a share group.
	Share bool
}
