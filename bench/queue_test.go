package bench

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	tubev1 "github.com/tube-mq/tube/proto/tube/v1"
	"github.com/tube-mq/tube/proto/tube/v1/tubev1connect"
)

// silent is a node that has one message and nothing else.
type silent struct {
	tubev1connect.UnimplementedQueueServiceHandler
	quiet chan struct{} // closed when the consumer has said all there is to say
}

func (s silent) Consume(ctx context.Context, stream *connect.BidiStream[tubev1.ConsumeRequest, tubev1.ConsumeResponse]) error {
	one := &tubev1.ConsumeMessages{Messages: []*tubev1.QueueMessage{{LeaseId: "1"}}}
	for _, step := range []func() error{
		func() error { _, err := stream.Receive(); return err }, // start
		func() error {
			return stream.Send(&tubev1.ConsumeResponse{Down: &tubev1.ConsumeResponse_Messages{Messages: one}})
		},
		func() error { _, err := stream.Receive(); return err }, // acknowledge and credit,
		func() error { _, err := stream.Receive(); return err }, // in any order
	} {
		if err := step(); err != nil {
			return err
		}
	}
	close(s.quiet)
	for {
		if _, err := stream.Receive(); err != nil {
			return nil // the client has closed its side, or is gone
		}
	}
}

// A load ends though its consumer has nothing to say at that moment.
func TestAConsumerEndsWithItsContextWhileNothingFlows(t *testing.T) {
	s := silent{quiet: make(chan struct{})}
	mux := http.NewServeMux()
	mux.Handle(tubev1connect.NewQueueServiceHandler(s))
	node := httptest.NewUnstartedServer(mux)
	node.Config.Protocols = new(http.Protocols)
	node.Config.Protocols.SetUnencryptedHTTP2(true)
	node.Start()
	defer node.Close()
	defer node.CloseClientConnections() // it waits for them
	m := &meter{load: Load{HTTP: strings.TrimPrefix(node.URL, "http://")}}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ended := make(chan error, 1)
	c := m.queueConsumer(ctx, func([]byte) {})
	go func() { ended <- c.run(ctx, "group") }()
	<-s.quiet
	cancel()
	select {
	case err := <-ended:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("it goes on")
	}
}
