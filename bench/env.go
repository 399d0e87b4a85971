package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// env is what scenarios run in.
type env struct {
	self      program
	binary    string   // tube, as it is started for a node
	dir       string   // for data folders, each in a folder of its own
	nodeFlags []string // added to every node
	pairs     int
	warmup    time.Duration
	duration  time.Duration
	fillBytes int64 // consume: how much there is to read
	members   Members
	crowd     int     // members of the crowd
	restart   []int64 // bytes in the data folder, one measurement each
	rate      float64 // produce and consume at once: records a second
	peers     string  // the program of bench/peers; empty: no comparison
	peer      string  // the broker of that program to compare with
	messages  int64   // queue receive: how many there are to receive
	delayed   int64   // queue: how many are sent with a delay
	held      int64   // queue-holes: how many are in hand
	pprof     string  // folder for profiles; empty: none
	show      *display
}

// load returns the common part of a load on a server.
func (e *env) load(s *server, kind, topic string, recordBytes int) Load {
	return Load{
		Kind: kind, Brokers: []string{s.kafka}, Topic: topic, RecordBytes: recordBytes, ServerPID: s.pid,
		Warmup: e.warmup, Duration: e.duration, Linger: 5 * time.Millisecond,
	}
}

// run does one load, showing its progress, and notes its result in the outcome.
func (e *env) run(ctx context.Context, o *Outcome, s *server, what string, l Load) (*Result, error) {
	label := fmt.Sprintf("%s: %s on %s", o.Name, what, s.name)
	profiled := make(chan error, 1)
	if e.pprof != "" && s.http != "" && l.Kind != KindFill {
		prefix := filepath.Join(e.pprof, fmt.Sprintf("%s-%d", o.Name, len(o.Runs)))
		go func() {
			sleep(ctx, l.Warmup)
			profiled <- s.profile(ctx, prefix, l.Duration)
		}()
	} else {
		profiled <- nil
	}
	p := e.self
	if s.load != "" {
		p = program{path: s.load}
	}
	r, err := p.runLoad(ctx, l, func(p Progress) { e.show.progress(label, p) })
	if perr := <-profiled; perr != nil {
		e.show.line("%s: no profile: %v", label, perr)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", label, err)
	}
	select {
	case <-s.exited:
		return nil, fmt.Errorf("%s: the server ended: %s", label, s.log)
	default:
	}
	o.Runs = append(o.Runs, Run{Server: s.name, What: what, Result: *r})
	e.show.line("%s: %s", label, r)
	return r, nil
}

// node starts a node on a new folder. remove stops it and deletes the folder.
func (e *env) node(ctx context.Context, flags ...string) (s *server, remove func(), err error) {
	dir, err := e.newDir()
	if err != nil {
		return nil, nil, err
	}
	s, err = e.startNode(ctx, dir, flags...)
	if err != nil {
		os.RemoveAll(dir)
		return nil, nil, err
	}
	return s, func() { s.kill(); os.RemoveAll(dir) }, nil
}

func (e *env) newDir() (string, error) {
	if err := os.MkdirAll(e.dir, 0o755); err != nil {
		return "", err
	}
	return os.MkdirTemp(e.dir, "tube-bench-")
}

func (e *env) startNode(ctx context.Context, dir string, flags ...string) (*server, error) {
	flags = append(slices.Clone(e.nodeFlags), flags...)
	if e.pprof != "" {
		flags = append(flags, "--pprof")
	}
	return startNode(ctx, e.binary, dir, flags)
}

// createTopic makes a topic and waits until all its partitions have a leader.
func createTopic(ctx context.Context, broker, topic string, partitions int) error {
	return withAdmin(ctx, broker, func(ctx context.Context, a *kadm.Client) error {
		if _, err := a.CreateTopic(ctx, int32(partitions), 1, nil, topic); err != nil {
			return fmt.Errorf("create topic %s: %w", topic, err)
		}
		for {
			led, err := ledPartitions(ctx, broker, topic)
			if led == partitions {
				return nil
			}
			if ctx.Err() != nil {
				return fmt.Errorf("wait for the leaders of %s: %w", topic, errors.Join(ctx.Err(), err))
			}
			sleep(ctx, 10*time.Millisecond)
		}
	})
}

// ledPartitions counts the partitions of a topic that have a leader. It asks
// with a client of its own, as one that is used again answers from its cache.
func ledPartitions(ctx context.Context, broker, topic string) (led int, err error) {
	err = withAdmin(ctx, broker, func(ctx context.Context, a *kadm.Client) error {
		topics, err := a.ListTopics(ctx, topic)
		for _, p := range topics[topic].Partitions {
			if p.Leader >= 0 && p.Err == nil {
				led++
			}
		}
		return err
	})
	return led, err
}

func deleteTopic(ctx context.Context, broker, topic string) error {
	return withAdmin(ctx, broker, func(ctx context.Context, a *kadm.Client) error {
		if _, err := a.DeleteTopic(ctx, topic); err != nil {
			return fmt.Errorf("delete topic %s: %w", topic, err)
		}
		return nil
	})
}

func withAdmin(ctx context.Context, broker string, do func(context.Context, *kadm.Client) error) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	c, err := kgo.NewClient(kgo.SeedBrokers(broker), kgo.ClientID("tube-bench"))
	if err != nil {
		return err
	}
	defer c.Close()
	return do(ctx, kadm.NewClient(c))
}

// settle waits until the disks have taken what is put off, at most half a minute.
func settle() {
	done := make(chan struct{})
	go func() {
		syncDisks()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
	}
}
