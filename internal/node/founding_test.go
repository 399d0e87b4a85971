package node

import (
	"context"
	"errors"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/tube-mq/tube/internal/config"
	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/record"
	peerv1 "github.com/tube-mq/tube/proto/tube/peer/v1"
	"github.com/tube-mq/tube/proto/tube/peer/v1/peerv1connect"
)

// Who waits for masters is told what does not mend itself, and of those who are just
// not there only who they are.
func TestANodeThatWaitsSaysWhy(t *testing.T) {
	m := config.Master{ID: 2, Addr: "h2:9070"}
	for cause, want := range map[string]string{
		"dial tcp: connect: connection refused": "2@h2:9070",
		"context deadline exceeded":             "2@h2:9070",
		"tls: failed to verify certificate: x509: certificate signed by unknown authority": "2@h2:9070 (tls: failed to verify certificate: x509: certificate signed by unknown authority)",
		"http: server gave HTTP response to HTTPS client":                                  "2@h2:9070 (it speaks plaintext, and this node TLS: all nodes have to switch together)",
		"unexpected EOF": "2@h2:9070 (it hangs up: if the other nodes talk by TLS, this one needs --peer-tls-cert too)",
		"read tcp 127.0.0.1:42810->127.0.0.1:9072: read: connection reset by peer": "2@h2:9070 (it hangs up: if the other nodes talk by TLS, this one needs --peer-tls-cert too)",
	} {
		if got := (silent{m, connect.NewError(connect.CodeUnavailable, errors.New(cause))}).String(); got != want {
			t.Errorf("%s: %s, want %s", cause, got, want)
		}
	}
	missing := []silent{{config.Master{ID: 3, Addr: "h3:1"}, errors.New("x")}, {m, errors.New("x")}}
	if got, want := waitingFor(nil, missing), "masters 2@h2:9070, 3@h3:1 to answer: a new cluster needs all of its masters once"; got != want {
		t.Errorf("it waits for %q, want %q", got, want)
	}
	there := []answer{{&peerv1.GreetResponse{Node: 1}, ""}, {&peerv1.GreetResponse{Node: 2, ClusterId: "c"}, ""}}
	if got, want := waitingFor(there, missing[:1]), "masters of cluster c to be a majority: this node's data folder is empty, and cannot stand in for the one that it had"; got != want {
		t.Errorf("it waits for %q, want %q", got, want)
	}
}

// Whoever has been in a cluster lets nobody found it again, also while it does not know
// yet what has become of the cluster.
func TestAClusterIsFoundedOnce(t *testing.T) {
	n := &Node{cfg: &config.Config{}, meta: newMetaMachine(2)}
	n.owned.Store(true)
	greet := func(id identity) *peerv1.GreetResponse {
		t.Helper()
		id.Node, id.ClusterID, id.Founders = 2, "c", []record.NodeID{1, 2, 3}
		n.identity.Store(&id)
		r, err := peerService{n: n}.Greet(t.Context(), connect.NewRequest(&peerv1.GreetRequest{Node: 1, Incarnation: "empty"}))
		if err != nil {
			t.Fatal(err)
		}
		return r.Msg
	}
	for _, c := range []struct {
		name     string
		id       identity
		founders int
	}{
		{"it is being founded", identity{Starts: 1}, 3},
		{"it was", identity{Starts: 1, Registered: true}, 0},
		{"a later start", identity{Starts: 2}, 0},
	} {
		if r := greet(c.id); r.GetClusterId() != "c" || len(r.GetFounders()) != c.founders || r.GetEstablished() {
			t.Errorf("%s: %v", c.name, r)
		}
	}
}

// One master's word is enough for what is final; of anything else it may be the master
// that is wrong.
func TestARefusalSaysWhatToDo(t *testing.T) {
	m := config.Master{ID: 2, Addr: "h2:9070"}
	for _, c := range []struct {
		refusal
		want string
	}{
		{refusal{m, "the folder is old; start with an empty one", true}, "the master at h2:9070 refuses this node: the folder is old; start with an empty one"},
		{refusal{m, "wrong cluster id", false}, "the master at h2:9070 refuses this node: wrong cluster id: give the right --masters or --data"},
	} {
		if got := c.elsewhere().Error(); got != c.want {
			t.Errorf("%q, want %q", got, c.want)
		}
	}
}

// A node whose program is too old hears so from the first master that it asks, before it
// opens its data, and as something that one master decides.
func TestAnOldProgramIsRefusedWhenItGreets(t *testing.T) {
	n := &Node{cfg: &config.Config{}, meta: newMetaMachine(1)}
	now := time.Unix(1, 0)
	for i, c := range [][]byte{
		meta.Bootstrap(now, "c", meta.Founder{Node: 1, Replica: 1}),
		meta.RegisterNode(now, meta.Node{ID: 1, Incarnation: "a", Kafka: "k:1", Roles: []string{meta.RoleMaster}, Level: 1}),
		meta.SetLevel(now, 1),
	} {
		if r := n.meta.machine.Apply(record.Index(i+1), c); r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	n.meta.publish()
	n.identity.Store(&identity{Node: 1, ClusterID: "c"})
	_, err := peerService{n: n}.Greet(t.Context(), connect.NewRequest(&peerv1.GreetRequest{Node: 2, Incarnation: "b"}))
	if connect.CodeOf(err) != connect.CodePermissionDenied || !strings.Contains(err.Error(), "start a newer tube") {
		t.Errorf("an old one is answered %v", err)
	}
	if _, err := (peerService{n: n}).Greet(t.Context(), connect.NewRequest(&peerv1.GreetRequest{Node: 2, Incarnation: "b", Level: 1})); err != nil {
		t.Errorf("one that knows the level is answered %v", err)
	}
}

// empty stands for a master that has an empty folder, and does not ask again.
type empty struct {
	peerv1connect.UnimplementedPeerServiceHandler
	greeted atomic.Int64
}

func (e *empty) Greet(context.Context, *connect.Request[peerv1.GreetRequest]) (*connect.Response[peerv1.GreetResponse], error) {
	e.greeted.Add(1)
	return connect.NewResponse(&peerv1.GreetResponse{Node: 2}), nil
}

// Two of three masters are a majority, and yet no cluster before the third is a founder
// as they are.
func TestAClusterBeginsWithAllOfItsMasters(t *testing.T) {
	c := newTrio(t)
	l, err := net.Listen("tcp", c.cfgs[1].Peer)
	if err != nil {
		t.Fatal(err)
	}
	second := &empty{}
	_, handler := peerv1connect.NewPeerServiceHandler(second)
	server := &http.Server{Handler: handler, Protocols: new(http.Protocols)}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(true)
	go func() { _ = server.Serve(l) }()
	defer server.Close()
	var started sync.WaitGroup
	for _, i := range []int{0, 2} {
		started.Go(func() { c.startOne(i) })
	}
	says := func(i int) *peerv1.GreetResponse {
		r, err := peerv1connect.NewPeerServiceClient(http.DefaultClient, "http://"+c.cfgs[i].Peer).Greet(t.Context(), connect.NewRequest(&peerv1.GreetRequest{Node: 9, Level: uint32(meta.KnownLevel)}))
		if err != nil {
			return &peerv1.GreetResponse{}
		}
		return r.Msg
	}
	until(t, "both are founders", func() bool { return says(0).GetClusterId() != "" && says(2).GetClusterId() != "" })
	asked := second.greeted.Load()
	until(t, "both have asked the third again", func() bool {
		return says(0).GetEstablished() || says(2).GetEstablished() || second.greeted.Load() >= asked+4
	})
	if says(0).GetEstablished() || says(2).GetEstablished() {
		t.Error("the two are a cluster")
	}
	server.Close()
	c.startOne(1)
	started.Wait()
	defer c.stop()
	for i, n := range c.nodes {
		if id := n.id(); id.MetaReplica != record.ReplicaID(id.Node) {
			t.Errorf("node %d is replica %d of the masters' groups: it is none of the first voters", i+1, id.MetaReplica)
		}
	}
}
