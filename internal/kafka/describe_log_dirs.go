package kafka

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/record"
)

// describeLogDirs tells the sizes of the partitions on this node, of all topics
// if none is named. There is one folder. What is not here is left out, as in Kafka.
func (d *Door) describeLogDirs(_ context.Context, _ *client, r kmsg.Request) kmsg.Response {
	req := r.(*kmsg.DescribeLogDirsRequest)
	resp := req.ResponseKind().(*kmsg.DescribeLogDirsResponse)
	im := d.image()
	dir := kmsg.NewDescribeLogDirsResponseDir()
	dir.Dir = d.cfg.DataDir
	d.addDisk(&dir)
	add := func(t *meta.Topic, partitions []int32) {
		rt := kmsg.NewDescribeLogDirsResponseDirTopic()
		rt.Topic = t.Name
		for _, n := range partitions {
			if n < 0 || int(n) >= len(t.Partitions) {
				continue
			}
			if p, err := d.partitions.Partition(t.ID, record.Partition(n)); err == nil {
				rp := kmsg.NewDescribeLogDirsResponseDirTopicPartition()
				rp.Partition, rp.Size = n, p.Lookup().SizeBytes()
				rt.Partitions = append(rt.Partitions, rp)
			}
		}
		if len(rt.Partitions) > 0 {
			dir.Topics = append(dir.Topics, rt)
		}
	}
	if req.Topics == nil {
		for _, t := range topicsByName(im) {
			add(t, everyPartition(t))
		}
	}
	for i := range req.Topics {
		if t := im.Topic(req.Topics[i].Topic); t != nil {
			add(t, req.Topics[i].Partitions)
		}
	}
	resp.Dirs = append(resp.Dirs, dir)
	return resp
}

// addDisk tells how large the disk is (KIP-827); −1, not known, stays where it
// cannot be told.
func (d *Door) addDisk(dir *kmsg.DescribeLogDirsResponseDir) {
	if d.cfg.DiskBytes == nil {
		return
	}
	if total, usable, err := d.cfg.DiskBytes(); err == nil {
		dir.TotalBytes, dir.UsableBytes = total, usable
	}
}

func everyPartition(t *meta.Topic) []int32 {
	out := make([]int32, len(t.Partitions))
	for n := range out {
		out[n] = int32(n)
	}
	return out
}
