package group

import "time"

// ShareProtocol is the protocol type of share groups.
const ShareProtocol = "share"

// ShareHeartbeatRequest is a member's heartbeat in a share group (KIP-932). What is
// nil, or not said, is as it was.
type ShareHeartbeatRequest struct {
	Group    string
	MemberID string // the member's own
	Epoch    int32  // 0 to join, −1 to leave
	Zone     string
	ClientID string
	// ClientHost is where the member's connection comes from.
	ClientHost string
	Topics     []string // nil: not said
	// Session is how long the member may be silent, Interval how often it is to come, as
	// the group's settings have it; 0: as for consumer groups.
	Session, Interval time.Duration
}

// ShareHeartbeatResponse answers a ShareHeartbeatRequest.
type ShareHeartbeatResponse struct {
	Err      error
	MemberID string
	Epoch    int32
	Interval time.Duration // when to come again
	// Assignment is there if HasAssignment: it changed, or the member may not know it.
	Assignment    Partitions
	HasAssignment bool
}

// ShareDescription is a share group as it is now.
type ShareDescription struct {
	Err     error // ErrGroupNotFound: nobody is in it
	Group   string
	Epoch   int32
	Members []DescribedShareMember // by id
	Topics  *Topics                // names of the topics in Members' assignments
}

// DescribedShareMember is one member.
type DescribedShareMember struct {
	ID, Zone, ClientID, ClientHost string
	Epoch                          int32
	Topics                         []string
	Assigned                       Partitions
}
