package rpc

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"

	"connectrpc.com/connect"

	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/queue"
	"github.com/tube-mq/tube/internal/record"
	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
)

// queueAdmin implements tube.v1.QueueAdminService.
type queueAdmin struct{ *queueService }

// group finds a group that a request names.
func (s *queueAdmin) group(name string) (*meta.QueueGroup, error) {
	if err := named(name, "group"); err != nil {
		return nil, err
	}
	if g := s.cluster.Image().QueueGroup(name); g != nil {
		return g, nil
	}
	return nil, fmt.Errorf("%w: %.300s", queue.ErrUnknownGroup, name)
}

// topic checks that a request names a topic that is there.
func (s *queueAdmin) topic(name string) error {
	if err := named(name, "topic"); err != nil {
		return err
	}
	if s.cluster.Image().Topic(name) == nil {
		return fmt.Errorf("%w: %.300s", meta.ErrUnknownTopic, name)
	}
	return nil
}

func (s *queueAdmin) CreateGroup(ctx context.Context, req *connect.Request[tubev1.CreateGroupRequest]) (*connect.Response[tubev1.CreateGroupResponse], error) {
	m := req.Msg
	if err := named(m.Group, "group"); err != nil {
		return nil, err
	}
	if err := named(m.Topic, "topic"); err != nil {
		return nil, err
	}
	set := queue.DefaultSettings()
	if err := changeSettings(&set, m.Settings); err != nil {
		return nil, err
	}
	var err error
	if set.StartAtMillis, err = positionMillis(m.From, "from"); err != nil {
		return nil, err
	}
	set.Paused = m.Paused
	q, err := s.queues()
	if err != nil {
		return nil, err
	}
	g, err := q.Groups.CreateQueueGroup(ctx, m.Group, m.Topic, set)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&tubev1.CreateGroupResponse{Group: toGroup(s.cluster.Image(), g)}), nil
}

func (s *queueAdmin) UpdateGroup(ctx context.Context, req *connect.Request[tubev1.UpdateGroupRequest]) (*connect.Response[tubev1.UpdateGroupResponse], error) {
	if err := named(req.Msg.Group, "group"); err != nil {
		return nil, err
	}
	if req.Msg.Settings == nil {
		return nil, badField("settings", "none are given")
	}
	q, err := s.queues()
	if err != nil {
		return nil, err
	}
	g, err := q.Groups.UpdateQueueGroup(ctx, req.Msg.Group, func(set *queue.Settings) error { return changeSettings(set, req.Msg.Settings) })
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&tubev1.UpdateGroupResponse{Group: toGroup(s.cluster.Image(), g)}), nil
}

func (s *queueAdmin) DeleteGroup(ctx context.Context, req *connect.Request[tubev1.DeleteGroupRequest]) (*connect.Response[tubev1.DeleteGroupResponse], error) {
	if err := named(req.Msg.Group, "group"); err != nil {
		return nil, err
	}
	q, err := s.queues()
	if err == nil {
		err = q.Groups.DeleteQueueGroup(ctx, req.Msg.Group)
	}
	return connect.NewResponse(&tubev1.DeleteGroupResponse{}), err
}

func (s *queueAdmin) pause(ctx context.Context, name string, on bool) (*tubev1.QueueGroup, error) {
	if err := named(name, "group"); err != nil {
		return nil, err
	}
	q, err := s.queues()
	if err != nil {
		return nil, err
	}
	g, err := q.Groups.PauseQueueGroup(ctx, name, on)
	if err != nil {
		return nil, err
	}
	return toGroup(s.cluster.Image(), g), nil
}

func (s *queueAdmin) PauseGroup(ctx context.Context, req *connect.Request[tubev1.PauseGroupRequest]) (*connect.Response[tubev1.PauseGroupResponse], error) {
	g, err := s.pause(ctx, req.Msg.Group, true)
	return connect.NewResponse(&tubev1.PauseGroupResponse{Group: g}), err
}

func (s *queueAdmin) ResumeGroup(ctx context.Context, req *connect.Request[tubev1.ResumeGroupRequest]) (*connect.Response[tubev1.ResumeGroupResponse], error) {
	g, err := s.pause(ctx, req.Msg.Group, false)
	return connect.NewResponse(&tubev1.ResumeGroupResponse{Group: g}), err
}

func (s *queueAdmin) ListGroups(_ context.Context, req *connect.Request[tubev1.ListGroupsRequest]) (*connect.Response[tubev1.ListGroupsResponse], error) {
	im := s.cluster.Image()
	limit, err := counted(req.Msg.Limit, "limit", 1000, 1000)
	if err != nil {
		return nil, err
	}
	groups := slices.Collect(maps.Values(im.QueueGroups))
	if req.Msg.Topic != "" {
		if err := s.topic(req.Msg.Topic); err != nil {
			return nil, err
		}
		groups = slices.Clone(im.QueueGroupsOf(im.Topic(req.Msg.Topic).ID))
	}
	// The token is the last name that was told: what came or went meanwhile does no harm.
	groups = slices.DeleteFunc(groups, func(g *meta.QueueGroup) bool { return g.Name <= req.Msg.PageToken })
	slices.SortFunc(groups, func(a, b *meta.QueueGroup) int { return cmp.Compare(a.Name, b.Name) })
	out := &tubev1.ListGroupsResponse{}
	for _, g := range groups[:min(limit, len(groups))] {
		out.Groups = append(out.Groups, toGroup(im, g))
	}
	if len(groups) > limit {
		out.NextPageToken = groups[limit-1].Name
	}
	return connect.NewResponse(out), nil
}

func (s *queueAdmin) GetGroup(ctx context.Context, req *connect.Request[tubev1.GetGroupRequest]) (*connect.Response[tubev1.GetGroupResponse], error) {
	g, err := s.group(req.Msg.Group)
	if err != nil {
		return nil, err
	}
	q, err := s.queues()
	if err != nil {
		return nil, err
	}
	progress, err := q.Views.Progress(ctx, g.Name)
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(&tubev1.GetGroupResponse{Group: toGroup(s.cluster.Image(), g), Partitions: progress, Total: total(progress)}), nil
}

// total sums up what is known. Consumers wait at several leaders at once, so the most
// of one partition are counted.
func total(ps []*tubev1.QueueProgress) *tubev1.QueueProgress {
	t := &tubev1.QueueProgress{Partition: -1, Leader: -1, Known: true}
	for _, p := range ps {
		t.Known = t.Known && p.Known
		t.Backlog += p.Backlog
		t.Ready += p.Ready
		t.InFlight += p.InFlight
		t.BackingOff += p.BackingOff
		t.Delayed += p.Delayed
		t.Blocked += p.Blocked
		t.Dying += p.Dying
		t.Lost += p.Lost
		t.RetentionUsedPercent = max(t.RetentionUsedPercent, p.RetentionUsedPercent)
		t.Consumers, t.Credit = max(t.Consumers, p.Consumers), max(t.Credit, p.Credit)
		if p.Oldest != nil && (t.Oldest == nil || p.Oldest.AsTime().Before(t.Oldest.AsTime())) {
			t.Oldest = p.Oldest
		}
	}
	return t
}

func (s *queueAdmin) ExplainGroup(ctx context.Context, req *connect.Request[tubev1.ExplainGroupRequest]) (*connect.Response[tubev1.ExplainGroupResponse], error) {
	g, err := s.group(req.Msg.Group)
	if err != nil {
		return nil, err
	}
	q, err := s.queues()
	if err != nil {
		return nil, err
	}
	causes, err := q.Views.Explain(ctx, g.Name)
	if err != nil {
		return nil, err
	}
	if len(causes) == 0 {
		return nil, fmt.Errorf("nothing is said of group %s", g.Name)
	}
	k := causes[0].Kind
	return connect.NewResponse(&tubev1.ExplainGroupResponse{
		Summary: causes[0].Text, Causes: causes, Moving: k == tubev1.QueueCause_MOVING || k == tubev1.QueueCause_NOTHING_NEW,
	}), nil
}

func (s *queueAdmin) SeekGroup(ctx context.Context, req *connect.Request[tubev1.SeekGroupRequest]) (*connect.Response[tubev1.SeekGroupResponse], error) {
	g, err := s.group(req.Msg.Group)
	if err != nil {
		return nil, err
	}
	to, err := s.seekTo(g, req.Msg.To)
	if err != nil {
		return nil, err
	}
	q, err := s.queues()
	if err != nil {
		return nil, err
	}
	places, err := q.Changes.Seek(ctx, g.Name, to)
	if err != nil {
		return nil, err
	}
	out := &tubev1.SeekGroupResponse{}
	for _, p := range places {
		out.Partitions = append(out.Partitions, &tubev1.PartitionOffset{Partition: int32(p.Partition), Offset: int64(p.Offset)})
	}
	return connect.NewResponse(out), nil
}

func (s *queueAdmin) seekTo(g *meta.QueueGroup, p *tubev1.Position) (QueueSeek, error) {
	if p.GetAt() == nil {
		return QueueSeek{}, badField("to", "it is not given")
	}
	if o := p.GetOffset(); o != nil {
		place, err := placeOf(o, "to.offset")
		if t := s.cluster.Image().Topics[g.Topic]; err == nil && (t == nil || int(place.Partition) >= len(t.Partitions)) {
			err = badField("to.offset.partition", "there is no partition %d", place.Partition)
		}
		return QueueSeek{Place: &place}, err
	}
	at, err := positionMillis(p, "to")
	return QueueSeek{AtMillis: at}, err
}

func placeOf(o *tubev1.PartitionOffset, field string) (queue.Place, error) {
	if o == nil || o.Partition < 0 || o.Offset < 0 {
		return queue.Place{}, badField(field, "partition %d, offset %d; both count from 0", o.GetPartition(), o.GetOffset())
	}
	return queue.Place{Partition: record.Partition(o.Partition), Offset: record.Offset(o.Offset)}, nil
}

func (s *queueAdmin) PurgeGroup(ctx context.Context, req *connect.Request[tubev1.PurgeGroupRequest]) (*connect.Response[tubev1.PurgeGroupResponse], error) {
	g, err := s.group(req.Msg.Group)
	if err != nil {
		return nil, err
	}
	q, err := s.queues()
	if err != nil {
		return nil, err
	}
	n, err := q.Changes.Purge(ctx, g.Name)
	return connect.NewResponse(&tubev1.PurgeGroupResponse{Purged: n}), err
}
