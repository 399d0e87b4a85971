package kafka

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/tube-mq/tube/internal/meta"
)

func TestFindCoordinatorNamesTheNode(t *testing.T) {
	eachGroupVersion(t, 10, func(t *testing.T, v int16) {
		d := newGroupDoor(t)
		req := kmsg.NewPtrFindCoordinatorRequest()
		req.CoordinatorKey, req.CoordinatorKeys = "g", []string{"g", "h"}
		r := askGroups[*kmsg.FindCoordinatorResponse](d, v, req)
		if v < 4 {
			wantGroupCode(t, r.ErrorCode, nil)
			if r.NodeID != 1 || r.Host != "tube.example" || r.Port != 9092 {
				t.Fatalf("coordinator %+v", r)
			}
			return
		}
		if len(r.Coordinators) != 2 || r.Coordinators[1].Key != "h" || r.Coordinators[1].NodeID != 1 || r.Coordinators[1].Port != 9092 {
			t.Fatalf("coordinators %+v", r.Coordinators)
		}
	})
}

func TestFindCoordinatorSaysWhyNot(t *testing.T) {
	d := newGroupDoor(t)
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.CoordinatorKey, req.CoordinatorType = "t", 2
	r := askGroups[*kmsg.FindCoordinatorResponse](d, 3, req)
	wantGroupCode(t, r.ErrorCode, kerr.InvalidRequest)
	if r.ErrorMessage == nil || r.NodeID != -1 {
		t.Fatalf("answer %+v", r)
	}
	req.CoordinatorType = 0
	// Metadata leaves out a node that is down: it must not be named here either.
	down := *d.im.Nodes[1]
	down.State = meta.NodeDown
	d.im.Nodes[1] = &down
	wantGroupCode(t, askGroups[*kmsg.FindCoordinatorResponse](d, 3, req).ErrorCode, kerr.CoordinatorNotAvailable)
	delete(d.im.Nodes, 1)
	wantGroupCode(t, askGroups[*kmsg.FindCoordinatorResponse](d, 3, req).ErrorCode, kerr.CoordinatorNotAvailable)
}

// Retried for ever, a transactional producer would never say why it does not start.
func TestNobodyCoordinatesTransactions(t *testing.T) {
	eachGroupVersion(t, 10, func(t *testing.T, v int16) {
		if v == 0 { // knows groups only
			return
		}
		d := newGroupDoor(t)
		req := kmsg.NewPtrFindCoordinatorRequest()
		req.CoordinatorType, req.CoordinatorKey, req.CoordinatorKeys = 1, "tx", []string{"tx", "other"}
		r := askGroups[*kmsg.FindCoordinatorResponse](d, v, req)
		type answer struct {
			code int16
			text *string
			node int32
		}
		answers := []answer{{r.ErrorCode, r.ErrorMessage, r.NodeID}}
		if v >= 4 {
			if len(r.Coordinators) != 2 || r.Coordinators[1].Key != "other" {
				t.Fatalf("coordinators %+v", r.Coordinators)
			}
			answers = nil
			for _, c := range r.Coordinators {
				answers = append(answers, answer{c.ErrorCode, c.ErrorMessage, c.NodeID})
			}
		}
		for _, a := range answers {
			wantGroupCode(t, a.code, kerr.TransactionalIDAuthorizationFailed)
			if kerr.TypedErrorForCode(a.code).Retriable || a.text == nil || *a.text == "" || a.node != -1 {
				t.Fatalf("answer %+v", a)
			}
		}
	})
}
