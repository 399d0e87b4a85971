package node

import (
	"context"
	"errors"
	"testing"

	"connectrpc.com/connect"
)

// What another node's door said of its call is told as a sentence, with that node's name,
// not as if it were what ours says of the caller's.
func TestWhatAnotherNodeSaysIsNotPassedOnAsOurs(t *testing.T) {
	lost := connect.NewError(connect.CodeNotFound, errors.New("http2: client connection lost"))
	err := asked(t.Context(), 3, lost)
	var as *connect.Error
	if errors.As(err, &as) || err.Error() != "asking node 3: http2: client connection lost" {
		t.Errorf("%v", err)
	}
	late, cancel := context.WithCancel(t.Context())
	cancel()
	if err := asked(late, 3, lost); !errors.Is(err, context.Canceled) {
		t.Errorf("a call that was given up: %v", err)
	}
}
