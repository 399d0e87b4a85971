package kafka

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tube-mq/tube/internal/group"
	"github.com/tube-mq/tube/internal/master"
	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/record"
)

// instantGroups commits at once to the one shard it has.
type instantGroups struct {
	mu    sync.Mutex
	shard *master.GroupShard
	index record.Index
}

func (l *instantGroups) Propose(_ context.Context, data []byte) (any, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.index++
	return l.shard.Apply(l.index, data), nil
}

// groupDoor is a door to real groups on a log in memory. There are the topics t
// (2 partitions) and u (1).
type groupDoor struct {
	*Door
	t      *testing.T
	groups *master.Groups
	im     *meta.Image
}

func newGroupDoor(t *testing.T) *groupDoor {
	t.Helper()
	cfg := group.DefaultConfig()
	cfg.InitialDelay = 0
	g, err := master.NewGroups(master.GroupsConfig{
		Group: cfg, Shards: 1,
		Leader: func(int) (record.NodeID, bool) { return 1, true },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Stop)
	g.Shard(0).Start(&instantGroups{shard: g.Shard(0)}, nil)
	g.Shard(0).BecomeLeader(1)
	im := &meta.Image{
		Topics: map[record.TopicID]*meta.Topic{}, ByName: map[string]*meta.Topic{},
		Nodes: map[record.NodeID]*meta.Node{1: {ID: 1, Kafka: "tube.example:9092"}},
	}
	d := &groupDoor{t: t, groups: g, im: im, Door: &Door{
		groups: Groups{Members: g, Offsets: g.Offsets(), Admin: g.Admin()},
		image:  func() *meta.Image { return im },
	}}
	d.addTopic("t", 2)
	d.addTopic("u", 1)
	return d
}

// tellTopics tells the coordinator of the topics that there are.
func (d *groupDoor) tellTopics() {
	var topics []*group.Topic
	for _, t := range d.im.Topics {
		topics = append(topics, &group.Topic{ID: t.ID, Name: t.Name, Partitions: len(t.Partitions)})
	}
	d.groups.SetTopics(group.NewTopics(0, topics))
}

func (d *groupDoor) addTopic(name string, partitions int) *meta.Topic {
	topic := &meta.Topic{ID: record.NewTopicID(), Name: name, Partitions: make([]meta.Placement, partitions)}
	d.im.Topics[topic.ID], d.im.ByName[name] = topic, topic
	d.tellTopics()
	return topic
}

func (d *groupDoor) dropTopic(name string) {
	delete(d.im.Topics, d.im.ByName[name].ID)
	delete(d.im.ByName, name)
}

// askGroups sends a request through the bytes of its version, both ways, so that a
// field that the version does not have is not relied upon.
func askGroups[R kmsg.Response](d *groupDoor, version int16, req kmsg.Request) R {
	d.t.Helper()
	req.SetVersion(version)
	row, ok := groupAPI(req.Key())
	if !ok || version < row.min || version > row.max {
		d.t.Fatalf("%s v%d is not advertised", kmsg.NameForKey(req.Key()), version)
	}
	got := kmsg.RequestForKey(req.Key())
	got.SetVersion(version)
	if err := got.ReadFrom(req.AppendTo(nil)); err != nil {
		d.t.Fatalf("request v%d: %v", version, err)
	}
	resp := row.handle(d.Door, d.t.Context(), &client{}, got)
	back := kmsg.ResponseForKey(req.Key())
	back.SetVersion(version)
	if err := back.ReadFrom(resp.AppendTo(nil)); err != nil {
		d.t.Fatalf("response v%d: %v", version, err)
	}
	return back.(R)
}

func groupAPI(key int16) (api, bool) {
	for _, a := range apis {
		if a.key == key {
			return a, true
		}
	}
	return api{}, false
}

// eachGroupVersion runs the test for every version that is advertised for the key.
func eachGroupVersion(t *testing.T, key int16, f func(t *testing.T, v int16)) {
	row, ok := groupAPI(key)
	if !ok {
		t.Fatalf("%s is not advertised", kmsg.NameForKey(key))
	}
	for v := row.min; v <= row.max; v++ {
		t.Run(fmt.Sprintf("v%d", v), func(t *testing.T) { f(t, v) })
	}
}

func wantGroupCode(t *testing.T, got int16, want *kerr.Error) {
	t.Helper()
	var code int16
	if want != nil {
		code = want.Code
	}
	if got != code {
		t.Fatalf("got %v, want %v", kerr.TypedErrorForCode(got), want)
	}
}

// consumerMetadata is a consumer's metadata for one topic.
func consumerMetadata(topic string) []byte {
	m := kmsg.NewConsumerMemberMetadata()
	m.Version, m.Topics = 1, []string{topic}
	return m.AppendTo(nil)
}

// joinReq is a consumer's join.
func joinReq(name, member string, instance *string) *kmsg.JoinGroupRequest {
	req := kmsg.NewPtrJoinGroupRequest()
	req.Group, req.MemberID, req.InstanceID = name, member, instance
	req.SessionTimeoutMillis, req.RebalanceTimeoutMillis, req.ProtocolType = 30_000, 60_000, "consumer"
	p := kmsg.NewJoinGroupRequestProtocol()
	p.Name, p.Metadata = "range", consumerMetadata("t")
	req.Protocols = append(req.Protocols, p)
	return req
}

// member brings a single member of a group to where it may commit.
func (d *groupDoor) member(name string) (id string, generation int32) {
	d.t.Helper()
	j := askGroups[*kmsg.JoinGroupResponse](d, 3, joinReq(name, "", nil))
	wantGroupCode(d.t, j.ErrorCode, nil)
	s := kmsg.NewPtrSyncGroupRequest()
	s.Group, s.Generation, s.MemberID = name, j.Generation, j.MemberID
	s.GroupAssignment = []kmsg.SyncGroupRequestGroupAssignment{{MemberID: j.MemberID, MemberAssignment: []byte("mine")}}
	wantGroupCode(d.t, askGroups[*kmsg.SyncGroupResponse](d, 3, s).ErrorCode, nil)
	return j.MemberID, j.Generation
}

// commit stores one position from outside the group.
func (d *groupDoor) commit(name, topic string, p int32, offset int64, metadata string) {
	d.t.Helper()
	r := askGroups[*kmsg.OffsetCommitResponse](d, 9, commitReq(name, "", -1, topic, p, offset, &metadata))
	wantGroupCode(d.t, r.Topics[0].Partitions[0].ErrorCode, nil)
}

func commitReq(name, member string, generation int32, topic string, p int32, offset int64, metadata *string) *kmsg.OffsetCommitRequest {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.MemberID, req.Generation, req.RetentionTimeMillis = name, member, generation, -1
	rt := kmsg.NewOffsetCommitRequestTopic()
	rt.Topic = topic
	rp := kmsg.NewOffsetCommitRequestTopicPartition()
	rp.Partition, rp.Offset, rp.LeaderEpoch, rp.Metadata = p, offset, 4, metadata
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return req
}
