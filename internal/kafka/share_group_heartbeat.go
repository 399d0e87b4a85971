package kafka

import (
	"context"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tube-mq/tube/internal/group"
	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/record"
)

// beginShareWait is how long a member's heartbeat waits for what it reads for the first
// time to begin. What has not begun by then begins with its first ShareFetch.
const beginShareWait = 5 * time.Second

// shareGroupHeartbeat is the whole of membership in a share group (KIP-932). A group
// begins with a topic when a member is assigned it for the first time: what is sent
// after that answer is the group's, wherever it begins.
func (d *Door) shareGroupHeartbeat(ctx context.Context, c *client, r kmsg.Request) kmsg.Response {
	req := r.(*kmsg.ShareGroupHeartbeatRequest)
	resp := req.ResponseKind().(*kmsg.ShareGroupHeartbeatResponse)
	if err := meta.CheckShareName(req.GroupID); err != nil {
		text := err.Error()
		resp.ErrorCode, resp.ErrorMessage = kerr.InvalidRequest.Code, &text
		return resp
	}
	if req.RackID != nil && *req.RackID == "" {
		text := "the rack id may be left out, but not be empty"
		resp.ErrorCode, resp.ErrorMessage = kerr.InvalidRequest.Code, &text
		return resp
	}
	h := d.groups.Members.ShareHeartbeat(d.shareHeartbeat(c, req))
	if resp.ErrorCode, resp.ErrorMessage = groupCode(h.Err), groupMessage(h.Err); h.Err != nil {
		return resp
	}
	resp.MemberID, resp.MemberEpoch = &h.MemberID, h.Epoch
	resp.HeartbeatIntervalMillis = int32(h.Interval.Milliseconds())
	if !h.HasAssignment {
		return resp
	}
	a := kmsg.NewShareGroupHeartbeatResponseAssignment()
	a.TopicPartitions = []kmsg.ShareGroupHeartbeatResponseAssignmentTopicPartition{}
	ctx, cancel := context.WithTimeout(ctx, beginShareWait)
	defer cancel()
	eachTopic(h.Assignment, func(topic record.TopicID, partitions []int32) {
		t := kmsg.NewShareGroupHeartbeatResponseAssignmentTopicPartition()
		t.TopicID, t.Partitions = topic, partitions
		a.TopicPartitions = append(a.TopicPartitions, t)
		g, err := d.shares.Queues.Queue(ctx, req.GroupID, topic)
		if err == nil {
			err = d.shares.Queues.Begun(ctx, g)
		}
		if err != nil {
			d.cfg.Logger.Warn("a share group has not begun with a topic yet; it is tried again when its members fetch", "group", req.GroupID, "topic", topic, "err", err)
		}
	})
	resp.Assignment = &a
	return resp
}

// shareHeartbeat copies everything that a group keeps: the request's bytes are used again.
func (d *Door) shareHeartbeat(c *client, req *kmsg.ShareGroupHeartbeatRequest) *group.ShareHeartbeatRequest {
	id, host := identity(c)
	config := d.image().GroupConfig(req.GroupID)
	h := &group.ShareHeartbeatRequest{
		Group: strings.Clone(req.GroupID), MemberID: strings.Clone(req.MemberID), Epoch: req.MemberEpoch, Zone: strings.Clone(orEmpty(req.RackID)),
		ClientID: strings.Clone(id), ClientHost: host, Session: config.ShareSession, Interval: config.ShareInterval,
	}
	if req.SubscribedTopicNames != nil {
		h.Topics = make([]string, len(req.SubscribedTopicNames))
		for i, t := range req.SubscribedTopicNames {
			h.Topics[i] = strings.Clone(t)
		}
	}
	return h
}
