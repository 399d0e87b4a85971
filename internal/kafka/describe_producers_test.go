package kafka

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestDescribeProducers(t *testing.T) {
	cl := newFakeCluster()
	d := newTestDoor(t, cl, Config{})
	cl.addTopic("t", 1)
	req := kmsg.NewPtrDescribeProducersRequest()
	rt := kmsg.NewDescribeProducersRequestTopic()
	rt.Topic, rt.Partitions = "t", []int32{0, 1}
	req.Topics = append(req.Topics, rt)
	r := askDoor[*kmsg.DescribeProducersResponse](t, d, newClient(d), 0, req).Topics[0].Partitions
	if p := r[0]; p.ErrorCode != 0 || len(p.ActiveProducers) != 1 || p.ActiveProducers[0].ProducerID != 5 || p.ActiveProducers[0].LastSequence != 9 || p.ActiveProducers[0].CurrentTxnStartOffset != -1 {
		t.Fatalf("%+v", p)
	}
	if p := r[1]; p.ErrorCode != kerr.UnknownTopicOrPartition.Code || p.ErrorMessage == nil {
		t.Fatalf("%+v", p)
	}
}
