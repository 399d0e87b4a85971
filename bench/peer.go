package bench

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os/exec"
	"time"
)

// peerReady is what a peer says when it listens: its address and the process that does
// the work, which ends with the one that was started.
const peerReady = "peer at %s process %d"

// startPeer starts a broker to compare queues with, by its name in the program of
// bench/peers.
func startPeer(ctx context.Context, binary, name, dir string) (*server, error) {
	cmd := exec.CommandContext(ctx, binary, "serve", name, dir)
	dieWithParent(cmd)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	s := &server{name: name, cmd: cmd, log: &tailBuffer{}, exited: make(chan struct{})}
	cmd.Stderr = s.log
	begin := time.Now()
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the peer %s: %w", binary, err)
	}
	text, err := bufio.NewReader(out).ReadString('\n')
	go func() {
		_, _ = io.Copy(io.Discard, out)
		_ = cmd.Wait()
		close(s.exited)
	}()
	if _, bad := fmt.Sscanf(text, peerReady, &s.kafka, &s.pid); err != nil || bad != nil {
		s.kill()
		return nil, fmt.Errorf("the peer %s did not start: %q %s", name, text, s.log)
	}
	s.ready, s.load = time.Since(begin), binary
	return s, nil
}
