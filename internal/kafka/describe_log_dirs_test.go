package kafka

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestDescribeLogDirsTellsSizes(t *testing.T) {
	eachVersion(t, 35, func(t *testing.T, v int16) {
		cl := newFakeCluster()
		disk := func() (total, usable int64, err error) { return 100, 60, nil }
		d := newTestDoor(t, cl, Config{DataDir: "data", DiskBytes: disk})
		size := int64(len(cl.part(cl.addTopic("t", 2), 1).add(t, 1)))
		cl.addTopic("u", 1)
		req := kmsg.NewPtrDescribeLogDirsRequest()
		r := askDoor[*kmsg.DescribeLogDirsResponse](t, d, newClient(d), v, req)
		if len(r.Dirs) != 1 || r.Dirs[0].Dir != "data" || len(r.Dirs[0].Topics) != 2 || r.Dirs[0].Topics[0].Partitions[1].Size != size {
			t.Fatalf("%+v", r)
		}
		if v >= 4 && (r.Dirs[0].TotalBytes != 100 || r.Dirs[0].UsableBytes != 60) {
			t.Fatalf("the disk: %+v", r.Dirs[0])
		}
		req.Topics = []kmsg.DescribeLogDirsRequestTopic{{Topic: "t", Partitions: []int32{0, 1, 9}}, {Topic: "nowhere"}}
		r = askDoor[*kmsg.DescribeLogDirsResponse](t, d, newClient(d), v, req)
		if len(r.Dirs[0].Topics) != 1 || len(r.Dirs[0].Topics[0].Partitions) != 2 {
			t.Fatalf("%+v", r)
		}
	})
}
