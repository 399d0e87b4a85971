package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tube-mq/tube/internal/master"
	"github.com/tube-mq/tube/internal/record"
)

// alterPartitionAssignments (AlterPartitionReassignments) moves partitions to
// other nodes, and takes that back where no replicas are given. It answers when
// that is decided; listPartitionReassignments tells what is under way.
func (d *Door) alterPartitionAssignments(ctx context.Context, c *client, r kmsg.Request) kmsg.Response {
	req := r.(*kmsg.AlterPartitionAssignmentsRequest)
	items := 0
	for i := range req.Topics {
		items += 1 + len(req.Topics[i].Partitions)
	}
	if d.absurd(c, "AlterPartitionReassignments", items) {
		return nil
	}
	resp := req.ResponseKind().(*kmsg.AlterPartitionAssignmentsResponse)
	resp.AllowReplicationFactorChange = req.AllowReplicationFactorChange
	ctx, cancel := adminContext(ctx, req.TimeoutMillis)
	defer cancel()
	names := tally[master.PartitionName]{}
	for i := range req.Topics {
		for j := range req.Topics[i].Partitions {
			names[partitionName(req.Topics[i].Topic, req.Topics[i].Partitions[j].Partition)]++
		}
	}
	a := assignment{errs: map[master.PartitionName]error{}}
	for i := range req.Topics {
		for j := range req.Topics[i].Partitions {
			rp := &req.Topics[i].Partitions[j]
			name := partitionName(req.Topics[i].Topic, rp.Partition)
			if first, twice := names.first(name); !first {
				continue
			} else if twice {
				a.errs[name] = refuse(kerr.InvalidRequest, "the partition stands in the request more than once")
				continue
			}
			a.add(d, name, rp.Replicas, req.Version == 0 || req.AllowReplicationFactorChange)
		}
	}
	a.carryOut(ctx, d)
	for i := range req.Topics {
		rt := kmsg.NewAlterPartitionAssignmentsResponseTopic()
		rt.Topic = req.Topics[i].Topic
		for j := range req.Topics[i].Partitions {
			n := req.Topics[i].Partitions[j].Partition
			out := kmsg.NewAlterPartitionAssignmentsResponseTopicPartition()
			out.Partition = n
			out.ErrorCode, out.ErrorMessage = d.adminError(a.errs[partitionName(rt.Topic, n)], "AlterPartitionReassignments", rt.Topic)
			rt.Partitions = append(rt.Partitions, out)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

func partitionName(topic string, n int32) master.PartitionName {
	return master.PartitionName{Topic: topic, Partition: record.Partition(n)}
}

// assignment is what one request asks for, and what came of it.
type assignment struct {
	specs   []master.ReassignSpec
	cancels []master.PartitionName
	errs    map[master.PartitionName]error
}

func (a *assignment) add(d *Door, name master.PartitionName, replicas []int32, mayChangeFactor bool) {
	if replicas == nil {
		a.cancels = append(a.cancels, name)
		return
	}
	if t := d.image().Topic(name.Topic); t != nil && name.Partition >= 0 && int(name.Partition) < len(t.Partitions) && !mayChangeFactor {
		if want := len(t.Partitions[name.Partition].Wanted()); len(replicas) != want {
			a.errs[name] = refuse(kerr.InvalidReplicationFactor, "%d replicas are given and there are %d; the request does not allow to change that", len(replicas), want)
			return
		}
	}
	a.specs = append(a.specs, master.ReassignSpec{Topic: name.Topic, Partition: name.Partition, Nodes: nodeIDs(replicas)})
}

func (a *assignment) carryOut(ctx context.Context, d *Door) {
	if len(a.specs) > 0 {
		_, errs := d.placement.Reassign(ctx, a.specs, 0, false)
		for i, err := range errs {
			a.errs[master.PartitionName{Topic: a.specs[i].Topic, Partition: a.specs[i].Partition}] = err
		}
	}
	if len(a.cancels) > 0 {
		for i, err := range d.placement.CancelReassign(ctx, a.cancels) {
			a.errs[a.cancels[i]] = err
		}
	}
}
