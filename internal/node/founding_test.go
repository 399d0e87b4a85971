package node

import (
	"errors"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/tube-mq/tube/internal/config"
	"github.com/tube-mq/tube/internal/meta"
	"github.com/tube-mq/tube/internal/record"
	peerv1 "github.com/tube-mq/tube/proto/tube/peer/v1"
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
	if got, want := waitingFor(missing), "masters 2@h2:9070, 3@h3:1 to answer: a new cluster needs all of its masters once"; got != want {
		t.Errorf("it waits for %q, want %q", got, want)
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
