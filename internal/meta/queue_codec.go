package meta

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tube-mq/tube/internal/meta/metapb"
	"github.com/tube-mq/tube/internal/queue"
	"github.com/tube-mq/tube/internal/record"
)

// CreateQueueGroup makes a queue group of a topic, with all of its settings.
func CreateQueueGroup(now time.Time, name string, topic record.TopicID, s queue.Settings) []byte {
	return encode(now, &metapb.Command{Kind: &metapb.Command_CreateQueueGroup{CreateQueueGroup: &metapb.CreateQueueGroup{
		Name: name, Topic: topic[:], Settings: queueSettingsToPB(s),
	}}})
}

// UpdateQueueGroup replaces all settings of the group as of version.
func UpdateQueueGroup(now time.Time, id queue.GroupID, version record.Index, s queue.Settings) []byte {
	return encode(now, &metapb.Command{Kind: &metapb.Command_UpdateQueueGroup{UpdateQueueGroup: &metapb.UpdateQueueGroup{
		Id: uint64(id), Version: uint64(version), Settings: queueSettingsToPB(s),
	}}})
}

// DeleteQueueGroup deletes a queue group for good.
func DeleteQueueGroup(now time.Time, id queue.GroupID) []byte {
	return encode(now, &metapb.Command{Kind: &metapb.Command_DeleteQueueGroup{DeleteQueueGroup: &metapb.DeleteQueueGroup{Id: uint64(id)}}})
}

// PauseQueueGroup stops or resumes handing out. To what it is already it does nothing.
func PauseQueueGroup(now time.Time, id queue.GroupID, on bool) []byte {
	return encode(now, &metapb.Command{Kind: &metapb.Command_PauseQueueGroup{PauseQueueGroup: &metapb.PauseQueueGroup{Id: uint64(id), On: on}}})
}

// NoteQueueRetention makes an event of how near what the group is not done with in a
// partition is to being taken by retention, or of how many messages of it go.
func NoteQueueRetention(now time.Time, id queue.GroupID, p record.Partition, usedPercent int, messages int64) []byte {
	return encode(now, &metapb.Command{Kind: &metapb.Command_NoteQueueRetention{NoteQueueRetention: &metapb.NoteQueueRetention{
		Id: uint64(id), Partition: int32(p), UsedPercent: int32(usedPercent), Messages: messages,
	}}})
}

func queueSettingsToPB(s queue.Settings) *metapb.QueueSettings {
	out := &metapb.QueueSettings{
		MaxAttempts: int64(s.MaxAttempts), LeaseNanos: int64(s.Lease), MaxHandlingNanos: int64(s.MaxHandling), OrderByKey: s.OrderByKey, ParkKey: s.ParkKey,
		Broadcast: s.Broadcast, AutoAck: s.AutoAck, Rate: s.Rate, RateBytes: s.RateBytes, MaxInFlight: int64(s.MaxInFlight), Filter: s.Filter,
		DeadLetter: s.DeadLetter, Retain: s.Retain, Paused: s.Paused, IdleMemberNanos: int64(s.IdleMember), StartAtMillis: s.StartAtMillis,
	}
	for _, d := range s.Backoff {
		out.BackoffNanos = append(out.BackoffNanos, int64(d))
	}
	return out
}

func queueSettingsFromPB(s *metapb.QueueSettings) queue.Settings {
	out := queue.Settings{
		MaxAttempts: int(s.GetMaxAttempts()), Lease: time.Duration(s.GetLeaseNanos()), MaxHandling: time.Duration(s.GetMaxHandlingNanos()),
		OrderByKey: s.GetOrderByKey(), ParkKey: s.GetParkKey(), Broadcast: s.GetBroadcast(), AutoAck: s.GetAutoAck(), Rate: s.GetRate(), RateBytes: s.GetRateBytes(),
		MaxInFlight: int(s.GetMaxInFlight()), Filter: s.GetFilter(), DeadLetter: s.GetDeadLetter(), Retain: s.GetRetain(), Paused: s.GetPaused(),
		IdleMember: time.Duration(s.GetIdleMemberNanos()), StartAtMillis: s.GetStartAtMillis(),
	}
	for _, n := range s.GetBackoffNanos() {
		out.Backoff = append(out.Backoff, time.Duration(n))
	}
	return out
}

func queueGroupsToPB(im *Image) []*metapb.QueueGroup {
	groups := slices.SortedFunc(maps.Values(im.QueueGroups), func(a, b *QueueGroup) int { return cmp.Compare(a.ID, b.ID) })
	var out []*metapb.QueueGroup
	for _, g := range groups {
		out = append(out, &metapb.QueueGroup{
			Id: uint64(g.ID), Name: g.Name, Topic: slices.Clone(g.Topic[:]), Settings: queueSettingsToPB(g.Settings),
			CreatedMillis: g.Created.UnixMilli(), Version: uint64(g.Version), Share: g.Share,
		})
	}
	return out
}

// restoreQueueGroups fills a new image. Topics are there already.
func (im *Image) restoreQueueGroups(groups []*metapb.QueueGroup, last queue.GroupID) error {
	im.LastQueueGroup = last
	before := queue.GroupID(0)
	for _, pb := range groups {
		id, err := topicID(pb.GetTopic())
		if err != nil {
			return fmt.Errorf("%w: queue group %q: %w", ErrSnapshot, pb.GetName(), err)
		}
		g := &QueueGroup{
			ID: queue.GroupID(pb.GetId()), Name: pb.GetName(), Topic: id, Settings: queueSettingsFromPB(pb.GetSettings()),
			Created: time.UnixMilli(pb.GetCreatedMillis()), Version: record.Index(pb.GetVersion()), Share: pb.GetShare(),
		}
		if g.ID <= before || g.ID > last || im.Topics[id] == nil || im.QueueGroups[g.Name] != nil {
			return fmt.Errorf("%w: queue group %q with id %d of %d, topic %s", ErrSnapshot, g.Name, g.ID, last, id)
		}
		before = g.ID
		im.QueueGroups[g.Name] = g
		im.queuesByTopic[id] = append(im.queuesByTopic[id], g)
	}
	return nil
}
