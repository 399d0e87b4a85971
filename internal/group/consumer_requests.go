package group

import "time"

// ConsumerHeartbeatRequest is a member's heartbeat in a group whose partitions
// the coordinator assigns (KIP-848). What is nil, or not said, is as it was.
type ConsumerHeartbeatRequest struct {
	Group    string
	MemberID string
	// Epoch: 0 to join, −1 to leave, −2 for a static member that comes back.
	Epoch                int32
	Instance             string // empty: not said
	Zone                 string // empty: not said
	ClientID, ClientHost string
	Rebalance            time.Duration // ≤ 0: not said
	Topics               []string      // nil: not said
	Pattern              *string       // of topics besides; empty: none
	Assignor             *string
	Owned                Partitions // what the member has
	OwnedSaid            bool
}

// full reports that the request says all there is. Such a one is sent after an
// error: the member may not have heard the last answer.
func (r *ConsumerHeartbeatRequest) full() bool {
	return r.Rebalance > 0 && (r.Topics != nil || r.Pattern != nil) && r.OwnedSaid
}

// ConsumerHeartbeatResponse answers a ConsumerHeartbeatRequest.
type ConsumerHeartbeatResponse struct {
	Err      error
	MemberID string
	Epoch    int32
	Interval time.Duration // when to come again
	// Assignment is there if HasAssignment: it changed, or the member may not know it.
	Assignment    Partitions
	HasAssignment bool
}

// Phases of a group whose partitions the coordinator assigns; Empty, Stable and
// Dead as well.
const (
	// Assigning: the targets are for an older epoch.
	Assigning Phase = "Assigning"
	// Reconciling: not everybody has what it is to have.
	Reconciling Phase = "Reconciling"
)

// ConsumerDescription is such a group as it is now.
type ConsumerDescription struct {
	Err                error // ErrGroupNotFound also for a classic group
	Group              string
	Phase              Phase
	Epoch, TargetEpoch int32
	Assignor           string
	Members            []DescribedConsumer // by id
	// Topics are the names of the topics in Members' assignments.
	Topics *Topics
}

// DescribedConsumer is one member.
type DescribedConsumer struct {
	*ConsumerMember
	Target Partitions
}
