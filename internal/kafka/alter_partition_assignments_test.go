package kafka

import (
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tube-mq/tube/internal/record"
)

// moveOf asks for partitions of topic t to lie on nodes; nil: to be left alone.
func moveOf(partitions ...[]int32) *kmsg.AlterPartitionAssignmentsRequest {
	req := kmsg.NewPtrAlterPartitionAssignmentsRequest()
	rt := kmsg.NewAlterPartitionAssignmentsRequestTopic()
	rt.Topic = "t"
	for i, nodes := range partitions {
		rt.Partitions = append(rt.Partitions, kmsg.AlterPartitionAssignmentsRequestTopicPartition{Partition: int32(i), Replicas: nodes})
	}
	req.Topics = append(req.Topics, rt)
	return req
}

func TestPartitionsAreReassignedAndThatIsTakenBack(t *testing.T) {
	eachGroupVersion(t, 45, func(t *testing.T, v int16) {
		d := newAdminDoor(t)
		d.placed(nil, []record.NodeID{1}, []record.NodeID{1}, []record.NodeID{1})
		r := askAdmin[*kmsg.AlterPartitionAssignmentsResponse](d, v, moveOf([]int32{2}, []int32{1}, []int32{9}, []int32{1}))
		p := r.Topics[0].Partitions
		wantAdminCode(t, p[0].ErrorCode, p[0].ErrorMessage, nil)
		wantAdminCode(t, p[1].ErrorCode, p[1].ErrorMessage, nil) // it is there already
		wantAdminCode(t, p[2].ErrorCode, p[2].ErrorMessage, kerr.InvalidReplicaAssignment)
		wantAdminCode(t, p[3].ErrorCode, p[3].ErrorMessage, kerr.UnknownTopicOrPartition)
		if target := d.image().Topic("t").Partitions[0].Target; len(target) != 1 || target[0].Node != 2 {
			t.Fatalf("target %v", target)
		}
		p = askAdmin[*kmsg.AlterPartitionAssignmentsResponse](d, v, moveOf(nil, nil)).Topics[0].Partitions
		wantAdminCode(t, p[0].ErrorCode, p[0].ErrorMessage, nil)
		wantAdminCode(t, p[1].ErrorCode, p[1].ErrorMessage, kerr.NoReassignmentInProgress)
	})
}

func TestReplicationFactorChangesOnlyIfTheRequestAllowsIt(t *testing.T) {
	for _, c := range []struct {
		version int16
		allow   bool
		want    *kerr.Error
	}{{0, false, nil}, {1, true, nil}, {1, false, kerr.InvalidReplicationFactor}} {
		d := newAdminDoor(t)
		d.placed(nil, []record.NodeID{1})
		req := moveOf([]int32{1, 2})
		req.AllowReplicationFactorChange = c.allow
		p := askAdmin[*kmsg.AlterPartitionAssignmentsResponse](d, c.version, req).Topics[0].Partitions
		wantAdminCode(t, p[0].ErrorCode, p[0].ErrorMessage, c.want)
	}
}

func TestPartitionThatStandsTwiceStays(t *testing.T) {
	d := newAdminDoor(t)
	d.placed(nil, []record.NodeID{1})
	d.unchanged(func() {
		req := moveOf([]int32{2}, []int32{2})
		req.Topics[0].Partitions[1].Partition = 0
		for _, p := range askAdmin[*kmsg.AlterPartitionAssignmentsResponse](d, 1, req).Topics[0].Partitions {
			wantAdminCode(t, p.ErrorCode, p.ErrorMessage, kerr.InvalidRequest)
		}
	})
	none := moveOf([]int32{})
	p := askAdmin[*kmsg.AlterPartitionAssignmentsResponse](d, 0, none).Topics[0].Partitions
	if !slices.Contains([]int16{kerr.InvalidReplicaAssignment.Code, kerr.InvalidReplicationFactor.Code}, p[0].ErrorCode) {
		t.Fatalf("no nodes at all: %d", p[0].ErrorCode)
	}
}
