package kafka

import (
	"context"

	"github.com/tube-mq/tube/internal/group"
	"github.com/tube-mq/tube/internal/record"
)

// Groups is the coordinator's side of stream groups, in three parts. A call for
// a group that another node coordinates answers group.ErrNotCoordinator.
type Groups struct {
	Members GroupMembers
	Offsets GroupOffsets
	Admin   GroupAdmin
}

// GroupMembers is what a member needs. Join and Sync wait for other members,
// until ctx ends.
type GroupMembers interface {
	// Coordinator tells which node coordinates the group.
	// Error: group.ErrNotCoordinator if none is known just now.
	Coordinator(name string) (record.NodeID, error)
	Join(ctx context.Context, req *group.JoinRequest) *group.JoinResponse
	Sync(ctx context.Context, req *group.SyncRequest) *group.SyncResponse
	Heartbeat(ctx context.Context, req *group.HeartbeatRequest) error
	Leave(ctx context.Context, req *group.LeaveRequest) *group.LeaveResponse
	// ConsumerHeartbeat is for groups whose partitions the coordinator assigns.
	ConsumerHeartbeat(ctx context.Context, req *group.ConsumerHeartbeatRequest) *group.ConsumerHeartbeatResponse
	// ShareHeartbeat is for share groups. It does not wait.
	ShareHeartbeat(req *group.ShareHeartbeatRequest) *group.ShareHeartbeatResponse
}

// GroupOffsets are the groups' committed positions.
type GroupOffsets interface {
	Commit(ctx context.Context, req *group.CommitRequest) *group.CommitResponse
	Fetch(ctx context.Context, req *group.FetchOffsetsRequest) *group.FetchOffsetsResponse
	Delete(ctx context.Context, req *group.DeleteOffsetsRequest) *group.DeleteOffsetsResponse
}

// GroupAdmin looks at groups and removes them.
type GroupAdmin interface {
	Describe(ctx context.Context, name string) *group.Description
	DescribeConsumers(ctx context.Context, name string) *group.ConsumerDescription
	// DescribeShare tells the members of a share group; group.ErrGroupNotFound: it has none.
	DescribeShare(name string) *group.ShareDescription
	// List names the groups that this node coordinates, by name.
	List() []group.Listing
	Delete(ctx context.Context, name string) error
}
