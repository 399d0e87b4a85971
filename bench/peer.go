package bench

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"time"
)

// peerReadyPrefix stands before the address in what a peer says when it listens.
const peerReadyPrefix = "peer at "

// startPeer starts the broker to compare queues with: the program of bench/peers.
func startPeer(ctx context.Context, binary, dir string) (*server, error) {
	cmd := exec.CommandContext(ctx, binary, "serve", dir)
	dieWithParent(cmd)
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	s := &server{name: "jetstream", cmd: cmd, log: &tailBuffer{}, exited: make(chan struct{})}
	cmd.Stderr = s.log
	begin := time.Now()
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the peer %s: %w", binary, err)
	}
	s.pid = cmd.Process.Pid
	text, err := bufio.NewReader(out).ReadString('\n')
	go func() {
		_, _ = io.Copy(io.Discard, out)
		_ = cmd.Wait()
		close(s.exited)
	}()
	addr, ok := strings.CutPrefix(strings.TrimSpace(text), peerReadyPrefix)
	if err != nil || !ok {
		s.kill()
		return nil, fmt.Errorf("the peer did not start: %q %s", text, s.log)
	}
	s.kafka, s.ready, s.load = addr, time.Since(begin), binary
	return s, nil
}
