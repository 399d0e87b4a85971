package node

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tube-mq/tube/internal/config"
	"github.com/tube-mq/tube/internal/vfs"
)

// onSickbed is a node alone, on a disk that can hang.
func onSickbed(t *testing.T, flags map[string]string) (*Node, *vfs.Faulty) {
	t.Helper()
	all := map[string]string{"data": t.TempDir(), "kafka": "127.0.0.1:0", "http": "127.0.0.1:0", "peer": "127.0.0.1:0"}
	for k, v := range flags {
		all[k] = v
	}
	cfg, err := config.Load(t.Context(), config.Sources{Flags: all})
	if err != nil {
		t.Fatal(err)
	}
	disk := vfs.NewFaulty(vfs.OS{})
	n, err := startOn(t.Context(), disk, cfg, "test", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return n, disk
}

// hang has writes and fsyncs hang until the returned function is called.
func hang(t *testing.T, disk *vfs.Faulty) (release func()) {
	released := make(chan struct{})
	stop, _ := disk.Inject(vfs.Fault{Ops: vfs.OpWrite | vfs.OpAnySync, Hold: released})
	release = sync.OnceFunc(func() { stop(); close(released) })
	t.Cleanup(release)
	return release
}

func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
	}
}

// A node whose disk is slow says so, while it is, and until flushes have been quick
// for a while; alone, it leads on.
func TestANodeSaysThatItsDiskIsSlow(t *testing.T) {
	n, disk := onSickbed(t, map[string]string{"disk-slow-after": "200ms", "disk-hung-after": "10m"})
	sick := func() bool {
		return slices.ContainsFunc(cluster{n}.Problems(), func(s string) bool { return strings.Contains(s, "its disk is slow") })
	}
	if sick() {
		t.Fatalf("at the start: %q", cluster{n}.Problems())
	}
	release := hang(t, disk)
	n.host.Load().Probe(func(error) {}) // something to flush
	until(t, "it is sick", sick)
	if n.host.Load().Group(metaGroup).Status().Leading == false {
		t.Error("there is nobody else, and it does not lead")
	}
	release()
	until(t, "it is well", func() bool { return !sick() })
	until(t, "both are events", func() bool {
		var kinds []string
		for _, e := range n.meta.ListEvents(0, 100) {
			kinds = append(kinds, e.Kind)
		}
		i, j := slices.Index(kinds, "node-sick"), slices.Index(kinds, "node-well")
		return i >= 0 && j > i
	})
	if err := n.Stop(context.Background()); err != nil {
		t.Error(err)
	}
}

// A node whose disk hangs ends, although nothing that it began ever comes back: not
// its flush, and not the stop that it was asked for.
func TestANodeWhoseDiskHangsEnds(t *testing.T) {
	for _, stopping := range []bool{false, true} {
		t.Run(map[bool]string{false: "at work", true: "while it stops"}[stopping], func(t *testing.T) {
			n, disk := onSickbed(t, map[string]string{"disk-slow-after": "200ms", "disk-hung-after": "1s"})
			release := hang(t, disk)
			if stopping {
				go func() { _ = n.Stop(context.Background()) }()
			} else {
				n.host.Load().Probe(func(error) {})
			}
			select {
			case <-n.Done():
			case <-time.After(30 * time.Second):
				t.Fatal("it waits for its disk")
			}
			if err := n.Err(); err == nil || !strings.Contains(err.Error(), "the disk hangs: ") || !strings.Contains(err.Error(), "wal") && !stopping {
				t.Errorf("its last word: %v", err)
			}
			release()
			_ = n.Stop(context.Background()) // so that the test leaves nothing behind
		})
	}
}

// A start on a disk that hangs ends too.
func TestAStartOnADiskThatHangsEnds(t *testing.T) {
	dir := t.TempDir()
	cfg, err := config.Load(t.Context(), config.Sources{Flags: map[string]string{
		"data": dir, "kafka": "127.0.0.1:0", "http": "127.0.0.1:0", "peer": "127.0.0.1:0",
		"disk-slow-after": "200ms", "disk-hung-after": "1s",
	}})
	if err != nil {
		t.Fatal(err)
	}
	disk := vfs.NewFaulty(vfs.OS{})
	release := hang(t, disk)
	if _, err := startOn(t.Context(), disk, cfg, "test", slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "the disk hangs") {
		t.Fatalf("the start ends with %v", err)
	}
	release()
	until(t, "what is left of it lets go of the folder", func() bool {
		lock, err := vfs.LockDir(vfs.OS{}, dir)
		return err == nil && lock.Close() == nil
	})
}
