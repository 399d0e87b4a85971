package kafka

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tube-mq/tube/internal/meta"
)

func TestClusterIsDescribed(t *testing.T) {
	eachGroupVersion(t, 60, func(t *testing.T, v int16) {
		d := newAdminDoor(t)
		r := askAdmin[*kmsg.DescribeClusterResponse](d, v, kmsg.NewPtrDescribeClusterRequest())
		wantAdminCode(t, r.ErrorCode, r.ErrorMessage, nil)
		if r.ClusterID != "cluster" || r.ControllerID != 1 || len(r.Brokers) != 2 || r.ClusterAuthorizedOperations != -1<<31 {
			t.Fatalf("%+v", r)
		}
		if one, two := r.Brokers[0], r.Brokers[1]; one.NodeID != 1 || one.Host != "one.example" || one.Port != 9092 || text(one.Rack) != "east" || two.NodeID != 2 || two.Rack != nil {
			t.Fatalf("%+v", r.Brokers)
		}
		if v >= 1 && r.EndpointType != brokerEndpoints {
			t.Fatalf("endpoint type %d", r.EndpointType)
		}
		req := kmsg.NewPtrDescribeClusterRequest()
		req.IncludeClusterAuthorizedOperations = true
		if r := askAdmin[*kmsg.DescribeClusterResponse](d, v, req); r.ClusterAuthorizedOperations != clusterOperations {
			t.Fatalf("operations %d", r.ClusterAuthorizedOperations)
		}
	})
}

func TestNodesThatAreDownAreFenced(t *testing.T) {
	eachGroupVersion(t, 60, func(t *testing.T, v int16) {
		d := newAdminDoor(t)
		if _, err := d.meta.Propose(t.Context(), meta.SetNodeState(time.UnixMilli(2), 2, meta.NodeDown)); err != nil {
			t.Fatal(err)
		}
		req := kmsg.NewPtrDescribeClusterRequest()
		if r := askAdmin[*kmsg.DescribeClusterResponse](d, v, req); len(r.Brokers) != 1 || r.Brokers[0].NodeID != 1 {
			t.Fatalf("%+v", r.Brokers)
		}
		if v < 2 {
			return
		}
		req.IncludeFencedBrokers = true
		r := askAdmin[*kmsg.DescribeClusterResponse](d, v, req)
		if len(r.Brokers) != 2 || r.Brokers[0].IsFenced || !r.Brokers[1].IsFenced {
			t.Fatalf("%+v", r.Brokers)
		}
	})
}

func TestControllerIsNamedOnlyIfItIsInTheList(t *testing.T) {
	d := newAdminDoor(t)
	if _, err := d.meta.Propose(t.Context(), meta.SetNodeState(time.UnixMilli(2), 1, meta.NodeDown)); err != nil {
		t.Fatal(err)
	}
	for _, fenced := range []bool{false, true} {
		req := kmsg.NewPtrDescribeClusterRequest()
		req.IncludeFencedBrokers = fenced
		if r := askAdmin[*kmsg.DescribeClusterResponse](d, 2, req); r.ControllerID != -1 {
			t.Fatalf("controller %d of %+v", r.ControllerID, r.Brokers)
		}
	}
}

func TestOtherEndpointsAreRefused(t *testing.T) {
	d := newAdminDoor(t)
	for kind, want := range map[int8]*kerr.Error{2: kerr.MismatchedEndpointType, 0: kerr.UnsupportedEndpointType, 9: kerr.UnsupportedEndpointType} {
		req := kmsg.NewPtrDescribeClusterRequest()
		req.EndpointType = kind
		r := askAdmin[*kmsg.DescribeClusterResponse](d, 2, req)
		wantAdminCode(t, r.ErrorCode, r.ErrorMessage, want)
	}
}
