package kafka

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tube-mq/tube/internal/master"
	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/record"
)

// leadersFake knows who leads what, and changes it as it is asked to.
type leadersFake struct {
	Partitions
	leads map[record.TopicPartition]record.NodeID
	err   error
}

func (f *leadersFake) Leader(topic record.TopicID, p record.Partition) (record.NodeID, record.Epoch) {
	return f.leads[record.TopicPartition{Topic: topic, Partition: p}], 1
}

func (f *leadersFake) TransferLeaders(_ context.Context, transfers []master.TransferLeader) []error {
	errs := make([]error, len(transfers))
	for i, t := range transfers {
		if errs[i] = f.err; f.err == nil {
			f.leads[t.TopicPartition] = t.To
		}
	}
	return errs
}

// placed makes topic t with a partition for each list of nodes, and leaders.
func (d *adminDoor) placed(leaders []record.NodeID, nodes ...[]record.NodeID) *leadersFake {
	d.t.Helper()
	t, err := d.topics.CreateTopic(d.t.Context(), master.TopicSpec{Name: "t", Partitions: -1, ReplicationFactor: -1, Assignment: nodes})
	if err != nil {
		d.t.Fatal(err)
	}
	f := &leadersFake{leads: map[record.TopicPartition]record.NodeID{}}
	for i, n := range leaders {
		f.leads[record.TopicPartition{Topic: t.ID, Partition: record.Partition(i)}] = n
	}
	d.partitions, d.leaders = f, f
	return f
}

func electionOf(kind int8, partitions ...int32) *kmsg.ElectLeadersRequest {
	req := kmsg.NewPtrElectLeadersRequest()
	req.ElectionType = kind
	if partitions != nil {
		req.Topics = []kmsg.ElectLeadersRequestTopic{{Topic: "t", Partitions: partitions}}
	}
	return req
}

func TestPreferredLeadersGetTheLeadBack(t *testing.T) {
	eachGroupVersion(t, 43, func(t *testing.T, v int16) {
		d := newAdminDoor(t)
		f := d.placed([]record.NodeID{2, 1}, []record.NodeID{1, 2}, []record.NodeID{1, 2})
		r := askAdmin[*kmsg.ElectLeadersResponse](d, v, electionOf(0, 0, 1, 7))
		p := r.Topics[0].Partitions
		wantAdminCode(t, p[0].ErrorCode, p[0].ErrorMessage, nil)
		wantAdminCode(t, p[1].ErrorCode, p[1].ErrorMessage, kerr.ElectionNotNeeded)
		wantAdminCode(t, p[2].ErrorCode, p[2].ErrorMessage, kerr.UnknownTopicOrPartition)
		for tp, n := range f.leads {
			if n != 1 {
				t.Errorf("partition %d is led by node %d", tp.Partition, n)
			}
		}
		// Of all partitions, those that need none are not told.
		if r := askAdmin[*kmsg.ElectLeadersResponse](d, v, electionOf(0)); len(r.Topics) != 0 {
			t.Errorf("%+v", r)
		}
	})
}

func TestPreferredLeaderThatCannotLeadIsSaid(t *testing.T) {
	d := newAdminDoor(t)
	f := d.placed([]record.NodeID{2, -1}, []record.NodeID{1, 2}, []record.NodeID{1, 2})
	f.err = errors.New("the leader did not change")
	p := askAdmin[*kmsg.ElectLeadersResponse](d, 2, electionOf(0, 0, 1)).Topics[0].Partitions
	wantAdminCode(t, p[0].ErrorCode, p[0].ErrorMessage, kerr.PreferredLeaderNotAvailable)
	wantAdminCode(t, p[1].ErrorCode, p[1].ErrorMessage, kerr.PreferredLeaderNotAvailable)
	if _, err := d.meta.Propose(t.Context(), meta.SetNodeState(time.UnixMilli(2), 1, meta.NodeDown)); err != nil {
		t.Fatal(err)
	}
	p = askAdmin[*kmsg.ElectLeadersResponse](d, 2, electionOf(0, 0)).Topics[0].Partitions
	wantAdminCode(t, p[0].ErrorCode, p[0].ErrorMessage, kerr.PreferredLeaderNotAvailable)
}

func TestUncleanElectionsAreRefused(t *testing.T) {
	d := newAdminDoor(t)
	d.placed([]record.NodeID{2, -1}, []record.NodeID{1, 2}, []record.NodeID{1, 2})
	p := askAdmin[*kmsg.ElectLeadersResponse](d, 2, electionOf(1, 0, 1)).Topics[0].Partitions
	wantAdminCode(t, p[0].ErrorCode, p[0].ErrorMessage, kerr.ElectionNotNeeded)
	wantAdminCode(t, p[1].ErrorCode, p[1].ErrorMessage, kerr.PolicyViolation)
}
