package kafka

import (
	"context"
	"encoding/binary"
	"runtime"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tube-mq/tube/internal/group"
	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/record"
)

// noGroups answers every call on groups with an error.
type noGroups struct{}

func (noGroups) Coordinator(string) (record.NodeID, error) { return -1, group.ErrNotCoordinator }
func (noGroups) Join(context.Context, *group.JoinRequest) *group.JoinResponse {
	return &group.JoinResponse{Err: group.ErrNotCoordinator}
}
func (noGroups) Sync(context.Context, *group.SyncRequest) *group.SyncResponse {
	return &group.SyncResponse{Err: group.ErrNotCoordinator}
}
func (noGroups) Heartbeat(context.Context, *group.HeartbeatRequest) error {
	return group.ErrNotCoordinator
}
func (noGroups) Leave(context.Context, *group.LeaveRequest) *group.LeaveResponse {
	return &group.LeaveResponse{Err: group.ErrNotCoordinator}
}
func (noGroups) Commit(context.Context, *group.CommitRequest) *group.CommitResponse {
	return &group.CommitResponse{Err: group.ErrNotCoordinator}
}
func (noGroups) Fetch(context.Context, *group.FetchOffsetsRequest) *group.FetchOffsetsResponse {
	return &group.FetchOffsetsResponse{Err: group.ErrNotCoordinator}
}
func (noGroups) Describe(context.Context, string) *group.Description {
	return &group.Description{Err: group.ErrNotCoordinator}
}
func (noGroups) List() []group.Listing { return nil }

func (noGroups) ConsumerHeartbeat(context.Context, *group.ConsumerHeartbeatRequest) *group.ConsumerHeartbeatResponse {
	return &group.ConsumerHeartbeatResponse{Err: group.ErrNotCoordinator}
}

func (noGroups) ShareHeartbeat(*group.ShareHeartbeatRequest) *group.ShareHeartbeatResponse {
	return &group.ShareHeartbeatResponse{Err: group.ErrNotCoordinator}
}

func (noGroups) DescribeShare(string) *group.ShareDescription {
	return &group.ShareDescription{Err: group.ErrNotCoordinator}
}

func (noGroups) DescribeConsumers(context.Context, string) *group.ConsumerDescription {
	return &group.ConsumerDescription{Err: group.ErrNotCoordinator}
}

// noGroupOffsets and noGroupAdmin differ in the shape of Delete.
type noGroupOffsets struct{ noGroups }

func (noGroupOffsets) Delete(context.Context, *group.DeleteOffsetsRequest) *group.DeleteOffsetsResponse {
	return &group.DeleteOffsetsResponse{Err: group.ErrNotCoordinator}
}

type noGroupAdmin struct{ noGroups }

func (noGroupAdmin) Delete(context.Context, string) error { return group.ErrNotCoordinator }

// FuzzFrame feeds a frame's bytes behind the length to decoder and handler. None
// may panic, nor take memory out of proportion.
func FuzzFrame(f *testing.F) {
	cl := newFakeCluster()
	topic := cl.addTopic("t", 2)
	d := newTestDoor(f, cl, Config{})
	d.groups = Groups{Members: noGroups{}, Offsets: noGroupOffsets{}, Admin: noGroupAdmin{}}
	shares := &fakeShares{f: newFakeCluster(), m: meta.New()}
	d.shares = Shares{shares, shares}
	for _, a := range apis {
		for _, v := range []int16{a.min, a.max} {
			f.Add(frameOf(v, 1, kmsg.RequestForKey(a.key))[4:])
		}
	}
	for _, v := range []int16{3, 9, 13} {
		f.Add(frameOf(v, 1, produceReq("t", topic.ID, 1, batchOf(f, 2, "value")))[4:])
	}
	for _, v := range []int16{4, 12, 18} {
		f.Add(frameOf(v, 1, fetchOf(topic, 0, 0))[4:])
	}
	f.Add(frameOf(12, 1, metadataReq("t"))[4:])
	f.Fuzz(func(t *testing.T, frame []byte) {
		if len(frame) < headBytes-4 || len(frame) > 1<<16 {
			return
		}
		h := parseHead(append(binary.BigEndian.AppendUint32(nil, uint32(len(frame))), frame...))
		row := d.table[h.key]
		if row == nil || h.version < row.min || h.version > row.max {
			return
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		handleFuzzed(d, row, h, frame[headBytes-4:])
		runtime.ReadMemStats(&after)
		if used := after.TotalAlloc - before.TotalAlloc; used > 1<<20+uint64(len(frame))*1000 {
			t.Fatalf("%s v%d: %d bytes of memory for a frame of %d", kmsg.NameForKey(h.key), h.version, used, len(frame))
		}
	})
}

func handleFuzzed(d *Door, row *api, h head, rest []byte) {
	if h.key == keyProduce && checkProduceShape(h.version, rest) != nil {
		return
	}
	buf := record.NewBuffer(len(rest))
	defer buf.Release()
	copy(buf.B, rest)
	req, _, err := decode(h, buf.B, row.start != nil)
	if err != nil {
		return
	}
	c := newClient(d)
	defer c.sessions.close()
	if row.start != nil {
		row.start(d, c, req, buf, func(o outcome) {
			if o.response != nil {
				o.response.AppendTo(nil)
			}
		})
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // nothing waits
	if resp := row.handle(d, ctx, c, req); resp != nil {
		resp.AppendTo(nil)
		if r, ok := resp.(chunked); ok {
			r.release()
		}
	}
}
